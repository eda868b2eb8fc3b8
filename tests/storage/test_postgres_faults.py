"""A log in Postgres when connections are lost, servers stop, processes die and clocks go on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from signal import SIGINT, SIGQUIT
from threading import Event
from typing import Any

import psycopg
import pytest

from interlock.domain.errors import LogError, LogFencedError, LogWriteError, RunClaimedError
from interlock.domain.event import LogEntry
from interlock.storage import packing
from interlock.storage.event_log import EffectClaim, EventLog, Lease, QueuedCommand
from interlock.storage.postgres import heartbeat, operations, writer
from interlock.storage.postgres.connection import WRITER
from interlock.storage.postgres.log import PostgresLog
from interlock.storage.postgres.queries import QUERIES
from tests.patience import HANG_SECONDS
from tests.postgres.server import PostgresServer

from .runs import append, chained

RUN = chained("run", 8)


@pytest.fixture
def schema(postgres: PostgresServer) -> str:
    return postgres.empty_schema()


@pytest.fixture
async def log(postgres: PostgresServer, schema: str) -> AsyncIterator[PostgresLog]:
    async with postgres.open_log(schema) as log:
        yield log


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of its own, to stop."""
    server = PostgresServer()
    try:
        yield server.start()
    finally:
        server.close()


class AnswerLost:
    """Executes a statement, and loses the connection before its answer arrives; once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *queries: str) -> None:
        self.statements = {QUERIES[query] for query in queries}
        self._execute = writer.execute
        for module in (writer, operations):
            monkeypatch.setattr(module, "execute", self)

    def __call__(self, connection: Any, sql: str, parameters: Any = ()) -> Any:
        cursor = self._execute(connection, sql, parameters)
        if sql in self.statements:
            self.statements.clear()
            connection.close()
            raise psycopg.OperationalError("the connection is lost")
        return cursor


async def _append_new(log: EventLog) -> object:
    await append(log, "new", chained("new", 3))
    return await log.read("new") == chained("new", 3)


async def _append_more(log: EventLog) -> object:
    await append(log, "run", RUN[2:4], Lease("run", 1))
    return await log.read("run") == RUN[:4]


async def _acquire(log: EventLog) -> object:
    lease = await log.acquire("free")
    await append(log, "free", chained("free", 1), lease)
    return lease.token


async def _claim(log: EventLog) -> object:
    claimed = [await log.claim_effect("pay", EffectClaim(0, "run", call, 1), 0) for call in ("c1", "c2")]
    return claimed, {claim.call_id for claim in await log.effect_claims("pay", 9)}


async def _enqueue(log: EventLog) -> object:
    commands = [QueuedCommand("stop", b"1"), QueuedCommand("stop", b"2")]
    return [await log.enqueue("run", command) for command in commands], await log.queued_commands("run")


async def _release(log: EventLog) -> object:
    return await log.release(Lease("run", 1)), await log.lease_holder("run")


OPERATIONS: dict[str, tuple[Callable[[EventLog], Awaitable[object]], object]] = {
    "append_listed": (_append_new, True),
    "append_many": (_append_more, True),
    "append_one": (_append_more, True),
    "acquire": (_acquire, 1),
    "claim_effect": (_claim, ([True, False], {"c1"})),
    "enqueue": (_enqueue, ([True, False], [QueuedCommand("stop", b"1")])),
    "release": (_release, (False, "")),
}


@pytest.mark.parametrize("query", OPERATIONS)
async def test_lost_answer_is_resolved_by_reading(
    log: PostgresLog, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    operation, expected = OPERATIONS[query]
    await append(log, "run", RUN[:2], await log.acquire("run"))
    if query == "append_many":  # one row for each event
        monkeypatch.setattr(packing, "_MAX_ROW_BYTES", 1)

    lost = AnswerLost(monkeypatch, query)
    assert await operation(log) == expected

    assert not lost.statements
    assert not log.problem


async def test_ended_connections_are_opened_again(postgres: PostgresServer, log: PostgresLog) -> None:
    await append(log, "run", RUN[:2])
    await log.read("run")
    postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'interlock-%'")

    await append(log, "run", RUN[2:4])

    assert await log.read("run") == RUN[:4]


@pytest.mark.parametrize("how", [SIGINT, SIGQUIT], ids=["stopped", "crashed"])
async def test_restart_delays_appends_and_loses_nothing(server: PostgresServer, how: Any) -> None:
    async with server.open_log(server.new_schema()) as log:
        lease = await log.acquire("run")
        await append(log, "run", RUN[:1], lease)
        await asyncio.to_thread(server.stop, how)

        waiting = [asyncio.ensure_future(append(log, "run", [entry], lease)) for entry in RUN[1:]]
        await asyncio.to_thread(server.start)
        await asyncio.gather(*waiting)

        assert await log.read("run") == RUN
        assert [item.entry for item in await log.feed()] == RUN
        assert list(await log.lease_holders()) == ["run"]


async def test_database_away_for_too_long(server: PostgresServer) -> None:
    """Appends fail, the log refuses, its leases are free for others after a while, and it can be opened again."""
    schema = server.new_schema()
    async with server.open_log(schema, patience_seconds=0.3, lease_seconds=1) as log:
        lease = await log.acquire("run")
        await append(log, "run", RUN[:1], lease)
        await asyncio.to_thread(server.stop)

        for _ in range(2):
            with pytest.raises(LogWriteError, match="a write failed"):
                await append(log, "run", RUN[1:2], lease)
        assert "a write failed" in log.problem
        await asyncio.to_thread(server.start)
        async with server.open_log(schema) as other:
            await append(other, "run", RUN[1:2], await _take_over(other, "run"))

        await log.reopen()
        assert not log.problem
        with pytest.raises(LogFencedError):
            await append(log, "run", RUN[2:3], lease)
        assert await log.read("run") == RUN[:2]


async def _take_over(log: EventLog, run_id: str) -> Lease:
    """Acquire a run as soon as its lease is over."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            try:
                return await log.acquire(run_id)
            except RunClaimedError:
                await log.wait_for_change(log.version(), 0.05)


async def test_lease_ends_by_the_clock_of_the_database(postgres: PostgresServer, schema: str) -> None:
    async with postgres.open_log(schema, lease_seconds=60) as stopped, postgres.open_log(schema) as other:
        lost = await stopped.acquire("run")
        await append(stopped, "run", RUN[:1], lost)
        with pytest.raises(RunClaimedError, match="owned by"):
            await other.acquire("run")

        postgres.execute("UPDATE processes SET beat_at = beat_at - interval '61 seconds'", schema)
        assert await other.lease_holders() == {}
        lease = await other.acquire("run")

        with pytest.raises(LogFencedError, match="taken over"):
            await append(stopped, "run", RUN[1:2], lost)
        await append(other, "run", RUN[1:2], lease)


async def test_stuck_event_loop_loses_its_leases(
    postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat has a thread of its own, which would keep a run for ever."""
    monkeypatch.setattr(heartbeat, "STUCK_SECONDS", 0.5)
    held, go_on = asyncio.Event(), Event()
    loop = asyncio.get_running_loop()

    async def hold() -> None:
        async with postgres.open_log(schema, lease_seconds=1) as stuck:
            lease = await stuck.acquire("run")
            loop.call_soon_threadsafe(held.set)
            go_on.wait(HANG_SECONDS)
            with pytest.raises(LogFencedError):
                await append(stuck, "run", RUN[:1], lease)

    holding = asyncio.create_task(asyncio.to_thread(asyncio.run, hold()))
    await held.wait()
    async with postgres.open_log(schema) as other:
        await _take_over(other, "run")
        go_on.set()
        await holding


async def test_closed_log_frees_its_leases_at_once(postgres: PostgresServer, schema: str) -> None:
    async with postgres.open_log(schema, lease_seconds=600) as ours, postgres.open_log(schema) as theirs:
        await ours.acquire("run")
        await ours.close()

        assert await theirs.lease_holder("run") == ""
        assert (await theirs.acquire("run")).token == 2


async def test_unfinished_append_holds_back_later_ones(postgres: PostgresServer, schema: str, log: PostgresLog) -> None:
    """An event never appears behind a reader: what is later waits, and the reader is woken."""
    with psycopg.connect(postgres.url, application_name=WRITER) as unfinished:
        unfinished.execute("SELECT pg_current_xact_id()")
        await append(log, "run", RUN[:1])

        assert (await log.feed(), await log.feed_position()) == ([], 0)
        seen = log.version()
        unfinished.rollback()

    assert await log.wait_for_change(seen, HANG_SECONDS)
    assert [item.entry for item in await log.feed()] == RUN[:1]


async def test_no_event_is_lost_to_a_follower(postgres: PostgresServer, schema: str) -> None:
    """Three logs append to many runs at once, while another program keeps a transaction open."""
    logs = [postgres.open_log(schema) for _ in range(3)]
    follower = postgres.open_log(schema)
    runs = {f"{number}-{place}": chained(f"{number}-{place}", 24) for number in range(3) for place in range(8)}

    async def write(run_id: str, entries: list[LogEntry]) -> None:
        for start in range(0, len(entries), 2):
            await append(logs[int(run_id[0])], run_id, entries[start : start + 2])

    with psycopg.connect(postgres.url, application_name="another program") as foreign:
        foreign.execute("SELECT pg_current_xact_id()")
        writing = asyncio.gather(*(write(run_id, entries) for run_id, entries in runs.items()))
        found: list[LogEntry] = []
        after = 0
        async with asyncio.timeout(HANG_SECONDS):
            while len(found) < sum(map(len, runs.values())):
                seen = follower.version()
                page = await follower.feed(after, 50)
                found += [item.entry for item in page]
                after = page[-1].position if page else after
                if not page:
                    await follower.wait_for_change(seen, HANG_SECONDS)
        await writing

    assert {run_id: [entry for entry in found if entry.run_id == run_id] for run_id in runs} == runs
    for log in (*logs, follower):
        await log.close()


async def test_beat_finds_writes_without_a_notification(postgres: PostgresServer, schema: str) -> None:
    async with postgres.open_log(schema, lease_seconds=1) as log:
        await append(log, "run", RUN[:1])
        postgres.execute("INSERT INTO commands (run, key, body) SELECT number, 'stop', '' FROM runs", schema)

        async with asyncio.timeout(HANG_SECONDS):
            while not await log.queued_commands("run"):
                await log.wait_for_change(log.version(), HANG_SECONDS)


async def test_positions_grow_in_a_restored_database(postgres: PostgresServer, server: PostgresServer) -> None:
    """Transaction ids of a new cluster begin below those that made the positions, and a reader goes on."""
    schema = postgres.new_schema()
    async with postgres.open_log(schema) as log:
        await append(log, "run", RUN[:2])
        after = await log.feed_position()
    await asyncio.to_thread(postgres.copy_to, server, schema)

    async with server.open_log(schema) as restored:
        assert await restored.feed(after) == []
        await append(restored, "run", RUN[2:4])

        assert [item.entry for item in await restored.feed(after)] == RUN[2:4]
        assert [item.entry for item in await restored.feed()] == RUN[:4]


async def test_reader_ahead_of_an_old_backup_is_refused(log: PostgresLog) -> None:
    await append(log, "run", RUN[:2])

    with pytest.raises(LogError, match=r"restored from an older backup. Read the feed again"):
        await log.feed(await log.feed_position() + (1 << 40))
