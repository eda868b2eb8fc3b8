"""Whoever follows events gets each of them once, in order: from the log first, then live, however slow it is."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock import MemoryLog, SqliteLog
from interlock.domain.errors import LogError
from interlock.domain.event import WarningRaised
from interlock.server.core.index.run_index import RunIndex
from interlock.server.core.live import event_reader as live_reader
from interlock.server.core.live.event_reader import EventReader
from interlock.server.core.live.hub import EventHub, TooManyReadersError
from interlock.server.core.live.live_event import LiveEvent
from interlock.storage.event_log import EventLog
from tests.patience import HANG_SECONDS

from .index_runs import Written, begun, events_of, paused


@asynccontextmanager
async def _hub(folder: Path, log: EventLog, **options: Any) -> AsyncGenerator[EventHub]:
    """One that looks without a pause, and leaves no task behind."""
    index = RunIndex(folder / f"{uuid4()}.db", log)
    hub = EventHub(index, **{"poll_seconds": 0, **options})
    try:
        yield hub
    finally:
        await hub.close()
        await index.close()
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def _take(reader: EventReader, count: int) -> list[LiveEvent]:
    """So many events or more, as they come."""
    taken: list[LiveEvent] = []
    async with asyncio.timeout(HANG_SECONDS):
        while len(taken) < count:
            taken += events_of(await anext(reader))
    return taken


async def _rest(reader: EventReader) -> list[LiveEvent]:
    async with asyncio.timeout(HANG_SECONDS):
        return [live async for batch in reader for live in events_of(batch)]


def _seqs(events: list[LiveEvent]) -> list[int]:
    return [live.entry.seq for live in events]


def _warn(run: Written, count: int) -> None:
    for _ in range(count):
        run.add(WarningRaised(message="Look."))


@pytest.mark.requirement("R138", "R142")
async def test_a_reader_of_one_run_gets_what_was_and_then_what_comes(tmp_path: Path) -> None:
    log = MemoryLog()
    run, other = begun(log, "run_1"), begun(log, "run_2")
    async with _hub(tmp_path, log) as hub, hub.open_reader("run_1") as reader:
        before = await _take(reader, 2)
        _warn(run, 3)
        _warn(other, 3)
        after = await _take(reader, 3)

    assert [live.entry for live in (*before, *after)] == await log.read("run_1")
    assert all(live.event is not None and live.event.seq == live.entry.seq for live in (*before, *after))


async def test_a_reader_goes_on_after_the_event_that_it_had_last(tmp_path: Path) -> None:
    log = MemoryLog()
    run = begun(log, "run_1")
    _warn(run, 10)
    async with _hub(tmp_path, log) as hub:
        async with hub.open_reader("run_1", after=7) as reader:
            of_run = await _take(reader, 4)
        async with hub.open_reader(after=9) as reader:
            of_all = await _take(reader, 3)
        async with hub.open_reader("run_1", after=-(10**30)) as reader:
            from_the_start = await _take(reader, 12)

    assert _seqs(of_run) == [8, 9, 10, 11]
    assert [live.position for live in of_all] == [10, 11, 12]
    assert _seqs(from_the_start) == list(range(12))


async def test_a_reader_of_all_runs_begins_now_or_at_the_end_of_a_log_that_is_shorter_than_it_says(
    tmp_path: Path,
) -> None:
    log = MemoryLog()
    run = begun(log, "run_1")
    async with _hub(tmp_path, log) as hub, hub.open_reader() as reader, hub.open_reader(after=10**30) as far:
        _warn(run, 1)
        begun(log, "run_2")

        for each in (reader, far):
            assert [live.position for live in await _take(each, 3)] == [3, 4, 5]


_MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2), st.integers(1, 30)),
        st.tuples(st.just("read"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("give up"), st.integers(0, 3), st.just(0)),
    ),
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(-1, 12), _MOVES)
async def test_however_readers_and_writers_take_turns_nothing_is_lost_or_told_twice(
    tmp_path: Path, after: int, moves: list[tuple[str, int, int]]
) -> None:
    log = MemoryLog()
    runs = [begun(log, f"run_{number}") for number in range(3)]
    _warn(runs[0], 10)
    begin = len(await log.feed())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_reader, "MAX_QUEUED", 20)
        patch.setattr(live_reader, "PAGE_EVENTS", 5)
        async with (
            _hub(tmp_path, log) as hub,
            hub.open_reader("run_0", after) as one,
            hub.open_reader("run_1") as two,
            hub.open_reader() as every,
            hub.open_reader(after=0) as whole,
        ):
            readers = (one, two, every, whole)
            told: list[list[LiveEvent]] = [[], [], [], []]
            for move, number, count in moves:
                if move == "write":
                    _warn(runs[number], count)
                elif readers[number].cursor < await _end(log, number):
                    timeout = HANG_SECONDS if move == "read" else 0
                    told[number] += await _next(readers[number], timeout)
            for number, reader in enumerate(readers):
                while reader.cursor < await _end(log, number):
                    told[number] += await _next(reader, HANG_SECONDS)

    assert [live.entry for live in told[0]] == await log.read("run_0", after)
    assert [live.entry for live in told[1]] == await log.read("run_1")
    assert [live.entry for live in told[2]] == [placed.entry for placed in await log.feed(begin)]
    assert [live.position for live in told[3]] == list(range(1, len(await log.feed()) + 1))


async def _end(log: MemoryLog, number: int) -> int:
    return len(await log.read(f"run_{number}")) - 1 if number < 2 else len(await log.feed())


async def _next(reader: EventReader, seconds: float) -> list[LiveEvent]:
    try:
        async with asyncio.timeout(seconds):
            return events_of(await anext(reader))
    except TimeoutError:
        assert seconds == 0
        return []


async def test_a_slow_reader_holds_up_nobody_and_has_no_more_kept_for_it_than_its_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_reader, "MAX_QUEUED", 50)
    log = MemoryLog()
    run = begun(log, "run_1")
    async with _hub(tmp_path, log) as hub, hub.open_reader("run_1") as slow, hub.open_reader("run_1") as quick:
        await _take(slow, 2)
        seen = _seqs(await _take(quick, 2))
        for _ in range(30):
            _warn(run, 10)
            seen += _seqs(await _take(quick, 10))
            assert slow.queue_size <= 50
        late = await _take(slow, 300)

    assert seen == list(range(302))
    assert _seqs(late) == list(range(2, 302))


async def test_large_events_are_not_kept_for_a_slow_reader(tmp_path: Path) -> None:
    log = MemoryLog()
    run = begun(log, "run_1")
    async with _hub(tmp_path, log) as hub, hub.open_reader("run_1") as slow, hub.open_reader("run_1") as quick:
        await _take(slow, 2)
        await _take(quick, 2)
        for _ in range(3):
            run.add(WarningRaised(message="x" * (1 << 20)))
            await _take(quick, 1)

        assert slow.queue_size == 0
        assert _seqs(await _take(slow, 3)) == [2, 3, 4]


async def test_a_form_of_an_event_is_made_once_for_all_readers(tmp_path: Path) -> None:
    log = MemoryLog()
    run = begun(log, "run_1")
    made: list[int] = []

    def make(live: LiveEvent) -> bytes:
        made.append(live.entry.seq)
        return live.entry.body

    async with _hub(tmp_path, log) as hub, hub.open_reader("run_1") as one, hub.open_reader(after=0) as other:
        await asyncio.gather(_take(one, 2), _take(other, 2))
        _warn(run, 1)
        taken = await asyncio.gather(_take(one, 1), _take(other, 1))

    assert [live.render_once("body", make) for (live,) in taken] == [taken[0][0].entry.body] * 2
    assert made == [2]


async def test_there_are_no_more_readers_than_there_may_be(tmp_path: Path) -> None:
    log = MemoryLog()
    run = begun(log, "run_1")
    async with _hub(tmp_path, log, max_readers=2) as hub, hub.open_reader("run_1") as first:
        async with hub.open_reader():
            with pytest.raises(TooManyReadersError, match="2 readers follow events already"):
                await hub.open_reader("run_1").__aenter__()
        async with hub.open_reader("run_1") as again:
            _warn(run, 1)
            assert _seqs(await _take(first, 3)) == _seqs(await _take(again, 3)) == [0, 1, 2]
        assert hub.reader_count == 1


async def test_of_all_runs_one_follows_those_that_one_may_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.server.core.live.hub._MAX_CACHED_RUNS", 2)
    log = MemoryLog()
    async with (
        _hub(tmp_path, log) as hub,
        hub.open_reader(agents=frozenset(), person="user:ada") as ada,
        hub.open_reader(agents=frozenset({"clerk"})) as clerk,
        hub.open_reader(agents=frozenset()) as nobody,
    ):
        paused(log, "run_ada", requester="user:ada")
        paused(log, "run_made", created_by="user:ada")
        paused(log, "run_bob", agent="clerk", requester="user:bob")
        begun(log, "run_in", agent="helper", parent_run_id="run_ada")

        assert {live.entry.run_id for live in await _take(ada, 16)} == {"run_ada", "run_made", "run_in"}
        assert {live.entry.run_id for live in await _take(clerk, 7)} == {"run_bob"}
        assert await _next(nobody, 0) == []


async def test_the_log_is_looked_at_only_while_somebody_follows_or_listens(tmp_path: Path) -> None:
    log = MemoryLog()
    run = begun(log, "run_1")
    looks = 0
    version = log.version

    def counted() -> int:
        nonlocal looks
        looks += 1
        return version()

    log.version = counted
    async with _hub(tmp_path, log) as hub:
        told = asyncio.Event()
        end = hub.subscribe(lambda page: told.set())
        _warn(run, 1)
        async with asyncio.timeout(HANG_SECONDS):
            await told.wait()
        end()
        end()
        async with hub.open_reader("run_1"):
            pass
        looks = 0
        _warn(run, 1)
        await asyncio.wait([asyncio.create_task(asyncio.to_thread(int))])

    assert looks == 0


async def test_events_of_another_process_arrive_by_themselves(tmp_path: Path) -> None:
    memory = MemoryLog()
    paused(memory, "run_1")
    entries = await memory.read("run_1")
    taken: list[LiveEvent] = []
    async with (
        SqliteLog(tmp_path / "runs.db") as log,
        SqliteLog(tmp_path / "runs.db") as elsewhere,
        _hub(tmp_path, log) as hub,
        hub.open_reader("run_1") as reader,
    ):
        for entry in entries:
            appended = elsewhere.append("run_1", [entry])
            assert appended is not None
            await appended
            taken += await _take(reader, 1)

    assert [live.entry for live in taken] == entries


async def test_closing_ends_every_reader_and_later_ones_at_once(tmp_path: Path) -> None:
    log = MemoryLog()
    begun(log, "run_1")
    async with _hub(tmp_path, log) as hub, hub.open_reader("run_1") as reader:
        await _take(reader, 2)
        waiting = asyncio.create_task(_rest(reader))
        await asyncio.wait([waiting], timeout=0)

        await hub.close()

        assert await waiting == []
        async with hub.open_reader() as late:
            assert await _rest(late) == []


async def test_a_log_that_cannot_be_read_is_told_and_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.server.core.live.hub._RETRY_SECONDS", 0)
    log = MemoryLog()
    run = begun(log, "run_1")
    feed = log.feed
    async with _hub(tmp_path, log) as hub, hub.open_reader("run_1") as reader:
        await _take(reader, 2)
        log.feed = _failing
        _warn(run, 1)
        await _until(lambda: "cannot read the log" in hub.last_error)
        log.feed = feed

        assert _seqs(await _take(reader, 1)) == [2]
        await _until(lambda: hub.last_error == "")


async def _failing(after: int = 0, limit: int | None = None) -> Any:
    raise LogError("cannot read the log")


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not is_so():
            await asyncio.to_thread(int)
