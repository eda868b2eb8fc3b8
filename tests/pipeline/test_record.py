"""Facts are sealed at once, written together, and nothing follows a failed append."""

import asyncio
from collections.abc import Sequence
from itertools import count

import pytest

from interlock.audit.verify import verify
from interlock.domain.errors import IllegalTransitionError, LogError, LogFencedError, LogWriteError
from interlock.domain.event import (
    SCHEMA_VERSION,
    CallValidated,
    LogEntry,
    RunStarted,
    WarningRaised,
    decode_event,
    genesis_hash,
)
from interlock.domain.state.ledger import Ledger
from interlock.pipeline.record import Recorder
from interlock.storage.event_log import EventLog, Lease
from interlock.storage.memory import MemoryLog
from tests.log_around import LogAround
from tests.patience import HANG_SECONDS


class HeldLog(LogAround):
    """Every append stays under way until the test lets it end."""

    def __init__(self) -> None:
        self._durable = MemoryLog()
        super().__init__(self._durable)
        self.immediate = False
        self.appends: list[list[LogEntry]] = []
        self._writing: list[asyncio.Future[None]] = []

    def append(self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None) -> "asyncio.Future[None]":
        self.appends.append(list(entries))
        self._writing.append(asyncio.get_running_loop().create_future())
        return self._writing[-1]

    def let_end(self) -> None:
        """The append under way is durable."""
        self._durable.append("run", self.appends[-1])
        self._writing.pop().set_result(None)

    def let_fail(self, error: Exception) -> None:
        self._writing.pop().set_exception(error)


def recorder_on(log: EventLog) -> Recorder:
    ticks = count()
    return Recorder(log, Ledger(run_id="run"), genesis_hash("run"), lambda: next(ticks))


def warn(recorder: Recorder, number: int = 0) -> int:
    return recorder.add(WarningRaised(message=f"{number}"))


async def turn_of_loop() -> None:
    """Let everybody who can go on do so."""
    for _ in range(3):
        turn = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turn.set_result, None)
        await turn


async def messages(log: EventLog) -> list[str]:
    facts = [decode_event(entry).fact for entry in await log.read("run")]
    return [fact.message for fact in facts if isinstance(fact, WarningRaised)]


async def test_a_sealed_fact_is_in_the_state_at_once_and_in_the_log_after_commit() -> None:
    log = MemoryLog()
    recorder = recorder_on(log)

    assert recorder.add(RunStarted(schema=SCHEMA_VERSION)) == 0
    assert recorder.ledger.started
    assert await log.read("run") == []

    await recorder.commit()
    assert len(await log.read("run")) == 1


async def test_entries_are_dense_and_chained_in_the_order_they_were_sealed() -> None:
    log = MemoryLog()
    recorder = recorder_on(log)
    for number in range(10):
        assert warn(recorder, number) == number
        if number % 3 == 0:
            await recorder.commit()
    await recorder.commit()

    entries = await log.read("run")
    assert [entry.seq for entry in entries] == list(range(10))
    assert await messages(log) == [f"{number}" for number in range(10)]
    assert verify(entries, "run").ok
    assert entries[-1].hash == recorder.head


async def test_a_hundred_callers_share_two_appends() -> None:
    log = HeldLog()
    recorder = recorder_on(log)

    async def record(number: int) -> None:
        warn(recorder, number)
        await recorder.commit()

    async with asyncio.timeout(HANG_SECONDS):
        callers = [asyncio.ensure_future(record(number)) for number in range(100)]
        await turn_of_loop()
        assert [len(entries) for entries in log.appends] == [1], "the first does not wait for company"
        log.let_end()
        await turn_of_loop()
        assert [caller.done() for caller in callers] == [True] + [False] * 99
        log.let_end()
        await asyncio.gather(*callers)

    assert [len(entries) for entries in log.appends] == [1, 99]
    assert await messages(log) == [f"{number}" for number in range(100)]


async def test_commit_waits_for_what_was_sealed_before_it_and_not_for_more() -> None:
    log = HeldLog()
    recorder = recorder_on(log)
    warn(recorder, 1)
    first = asyncio.ensure_future(recorder.commit())
    await turn_of_loop()
    warn(recorder, 2)
    assert not first.done()

    log.let_end()
    await asyncio.wait_for(first, HANG_SECONDS)
    assert len(log.appends) == 1, "nobody has asked for the second fact yet"


async def test_commit_without_news_appends_nothing() -> None:
    log = HeldLog()
    await asyncio.wait_for(recorder_on(log).commit(), HANG_SECONDS)
    assert log.appends == []


async def test_a_caller_that_stops_waiting_loses_no_fact() -> None:
    log = HeldLog()
    recorder = recorder_on(log)
    warn(recorder, 1)
    impatient = asyncio.ensure_future(recorder.commit())
    await turn_of_loop()
    warn(recorder, 2)
    queued = asyncio.ensure_future(recorder.commit())
    await turn_of_loop()
    impatient.cancel()
    queued.cancel()
    await asyncio.wait({impatient, queued})

    async with asyncio.timeout(HANG_SECONDS):
        log.let_end()
        patient = asyncio.ensure_future(recorder.commit())
        await turn_of_loop()
        log.let_end()
        await patient

    assert await messages(log) == ["1", "2"]


async def test_a_fact_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    log = MemoryLog()
    recorder = recorder_on(log)
    head = recorder.head
    with pytest.raises(IllegalTransitionError):
        recorder.add(CallValidated(call_id="nobody", ok=True))

    assert (recorder.head, recorder.ledger.next_seq) == (head, 0)
    assert warn(recorder) == 0
    await recorder.commit()
    assert verify(await log.read("run"), "run").ok


@pytest.mark.parametrize("text", ["\u2028", "\u2029", "\u0085", "\ud800", "\n", "\r\n\x0b\x0c\x1c"])
async def test_an_event_is_one_line_whatever_it_says(text: str) -> None:
    log = MemoryLog()
    recorder = recorder_on(log)
    recorder.add(WarningRaised(message=f"a{text}b"))
    await recorder.commit()

    [entry] = await log.read("run")
    assert len(entry.body.decode().splitlines()) == 1
    assert verify([entry], "run").ok


async def test_a_watcher_wakes_when_an_event_after_its_place_is_durable() -> None:
    log = HeldLog()
    recorder = recorder_on(log)
    watchers = [asyncio.ensure_future(recorder.committed_after(seq)) for seq in (-1, -1, 0, 1)]
    warn(recorder, 0)
    warn(recorder, 1)
    writer = asyncio.ensure_future(recorder.commit())
    await turn_of_loop()
    assert not any(watcher.done() for watcher in watchers), "sealed is not durable"

    log.let_end()
    await turn_of_loop()
    assert [watcher.done() for watcher in watchers] == [True, True, True, False]
    watchers[3].cancel()
    await asyncio.gather(writer, *watchers, return_exceptions=True)


async def test_a_watcher_that_left_disturbs_nobody() -> None:
    log = MemoryLog()
    recorder = recorder_on(log)
    left, stays = (asyncio.ensure_future(recorder.committed_after(-1)) for _ in range(2))
    await turn_of_loop()
    left.cancel()
    await asyncio.wait({left})

    warn(recorder)
    await recorder.commit()
    await asyncio.wait_for(stays, HANG_SECONDS)


async def test_a_watcher_of_the_past_does_not_wait() -> None:
    recorder = recorder_on(MemoryLog())
    warn(recorder)
    await recorder.commit()
    await asyncio.wait_for(recorder.committed_after(-1), HANG_SECONDS)


@pytest.mark.requirement("P15")
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (LogWriteError("no space"), LogWriteError),
        (LogFencedError("somebody else"), LogFencedError),
        (OSError("no space"), LogError),
    ],
)
async def test_a_failed_append_stops_everybody_who_waits_and_everything_after(
    error: Exception, raised: type[LogError]
) -> None:
    log = HeldLog()
    recorder = recorder_on(log)
    warn(recorder, 1)
    first = asyncio.ensure_future(recorder.commit())
    await turn_of_loop()
    warn(recorder, 2)
    waiting = [first, asyncio.ensure_future(recorder.commit()), asyncio.ensure_future(recorder.committed_after(-1))]
    await turn_of_loop()
    log.let_fail(error)

    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), HANG_SECONDS)
    assert [type(outcome) for outcome in outcomes] == [raised] * 3
    await expect_stopped(recorder, raised)
    assert len(log.appends) == 1


class RefusingLog(MemoryLog):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.attempts = 0
        self._error = error

    def append(self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None) -> None:
        self.attempts += 1
        raise self._error


@pytest.mark.requirement("P15")
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (LogWriteError("no space"), LogWriteError),
        (LogFencedError("somebody else"), LogFencedError),
        (OSError("no space"), LogError),
    ],
)
async def test_an_append_that_is_refused_at_once_stops_everything_after(
    error: Exception, raised: type[LogError]
) -> None:
    log = RefusingLog(error)
    recorder = recorder_on(log)
    watcher = asyncio.ensure_future(recorder.committed_after(-1))
    await turn_of_loop()
    warn(recorder)

    with pytest.raises(raised):
        await recorder.commit()
    with pytest.raises(raised):
        await asyncio.wait_for(watcher, HANG_SECONDS)
    await expect_stopped(recorder, raised)
    assert log.attempts == 1


async def expect_stopped(recorder: Recorder, raised: type[LogError]) -> None:
    sealed = recorder.ledger.next_seq
    with pytest.raises(raised):
        warn(recorder, 3)
    with pytest.raises(raised):
        await recorder.commit()
    with pytest.raises(raised):
        await asyncio.wait_for(recorder.committed_after(sealed), HANG_SECONDS)
    assert recorder.ledger.next_seq == sealed
