"""Every event reaches every destination: in order, at least once, whatever the receiver does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.audit.schemas import build_renderers
from interlock.domain.errors import ConfigurationError
from interlock.domain.event import Event, LogEntry, decode_event
from interlock.server.core.audit_sinks.destination import FileDestination, check_destinations
from interlock.server.core.audit_sinks.forwarder import Forwarder, ForwarderOptions, RunForwardResult
from interlock.server.core.audit_sinks.positions import DeadLetter
from interlock.server.core.audit_sinks.senders import SendDelay, SendOutcome, SendRejection, SendSuccess
from interlock.server.core.database.interface import Database
from interlock.server.core.database.sqlite import SqliteDatabase
from interlock.storage.event_log import FeedEntry
from interlock.storage.memory import MemoryLog
from tests.logs import open_database
from tests.storage.runs import append, chained

from .forwarded import AT, Told, Unwilling, add_run, render

NOW = AT + 10**12
DISK = FileDestination(name="disk", path="/unused")
BAD = SendRejection("not this one")
PACE = ForwarderOptions(batch_events=8, max_attempts=3, random=lambda: 1.0, now=lambda: NOW)


@pytest.fixture
def db(tmp_path: Path, database_backend: str) -> Iterator[Database]:
    db = open_database(tmp_path / "server.db")
    yield db
    db.close()


def forwarder(log: MemoryLog, db: Database, sender: Told, pace: ForwarderOptions = PACE) -> Forwarder:
    return Forwarder(log, db, DISK, render, sender=sender, options=pace)


async def drain(forwarder: Forwarder) -> list[float]:
    """Step until there is nothing to send. The waits that it asked for."""
    waits: list[float] = []
    while (wait := await forwarder.send_next_batch()) is not None:
        assert len(waits) < 10_000
        waits.append(wait)
    return [wait for wait in waits if wait]


@pytest.mark.requirement("R172")
async def test_events_of_all_runs_are_sent_once_in_the_order_of_the_log(db: Database) -> None:
    log, sender = MemoryLog(), Told()
    expected = await add_run(log, "a", 5) + await add_run(log, "b", 20)
    forward = forwarder(log, db, sender)

    await drain(forward)
    expected += await add_run(log, "c", 1)
    await drain(forward)

    assert sender.lines == expected
    assert [len(batch.items) for batch in sender.batches] == [8, 8, 8, 1, 1]


async def test_a_forwarder_that_is_made_anew_goes_on_where_the_last_one_stopped(db: Database) -> None:
    log, first, second = MemoryLog(), Told(), Told()
    expected = await add_run(log, "a", 20)

    await forwarder(log, db, first).send_next_batch()
    await drain(forwarder(log, db, second))

    assert first.lines + second.lines == expected
    assert len(first.lines) == 8


async def test_a_batch_that_nobody_confirmed_is_sent_again_as_it_was_although_more_has_come(db: Database) -> None:
    log, lost, again = MemoryLog(), Told(SendDelay("no answer")), Told()
    await add_run(log, "a", 3)
    await forwarder(log, db, lost).send_next_batch()
    await add_run(log, "b", 2)

    await drain(forwarder(log, db, again))

    assert again.batches[0] == lost.batches[0]
    assert len(again.lines) == 5


async def test_waits_double_up_to_a_minute_and_a_retry_after_is_respected(db: Database) -> None:
    log = MemoryLog()
    await add_run(log, "a", 1)
    sender = Told(*[SendDelay("down")] * 9, SendDelay("busy", 300.0), SendDelay("busy", 2.0))

    waits = await drain(forwarder(log, db, sender))

    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 300.0, 60.0]
    assert len({batch.delivery for batch in sender.batches}) == 1


async def test_an_event_that_is_not_wanted_is_found_tried_again_and_set_aside_alone(db: Database) -> None:
    log = MemoryLog()
    expected = await add_run(log, "a", 20)
    sender = Unwilling({b"a 5", b"a 6"}, BAD)
    forward = forwarder(log, db, sender)

    waits = await drain(forward)

    assert sender.taken == [line for line in expected if line not in (b"a 5", b"a 6")]
    assert await forward.list_dead_letters() == [
        DeadLetter(position=6, run_id="a", seq=5, problem="not this one", at=NOW),
        DeadLetter(position=7, run_id="a", seq=6, problem="not this one", at=NOW),
    ]
    assert waits == [1.0, 2.0, 1.0, 2.0]
    assert (await forward.get_status()).dead_letter_count == 2


async def test_what_was_set_aside_can_be_sent_later_and_is_then_off_the_list(db: Database) -> None:
    log = MemoryLog()
    await add_run(log, "a", 3)
    sender = Unwilling({b"a 1"}, BAD)
    forward = forwarder(log, db, sender)
    await drain(forward)

    assert await forward.retry(2) == BAD
    assert len(await forward.list_dead_letters()) == 1
    sender.relent()
    assert await forward.retry(2) == SendSuccess()
    assert await forward.list_dead_letters() == []
    assert sender.taken == [b"a 0", b"a 2", b"a 1"]
    assert isinstance(await forward.retry(2), SendRejection)


async def test_a_receiver_that_was_down_does_not_cost_an_event_its_tries(db: Database) -> None:
    log, sender = MemoryLog(), Told(*[SendDelay("down")] * 10, BAD)
    await add_run(log, "a", 1)
    forward = forwarder(log, db, sender)

    await drain(forward)

    assert await forward.list_dead_letters() == []
    assert len(sender.batches) == 12


async def test_an_event_that_cannot_be_shown_is_set_aside_and_holds_up_nothing(db: Database) -> None:
    log, sender = MemoryLog(), Told()
    await add_run(log, "a", 3)
    corrupt = chained("b", 2)[:1]
    await append(log, "b", [LogEntry("b", 0, b"{nonsense", corrupt[0].hash)])

    def picky(entry: LogEntry, event: Event, agent: str) -> bytes:
        if entry.seq == 1:
            raise ZeroDivisionError("a bug")
        return render(entry, event) + b"\r\n on two lines\n"

    forward = Forwarder(log, db, DISK, picky, sender=sender, options=PACE)
    await drain(forward)

    assert sender.lines == [b"a 0  on two lines", b"a 2  on two lines"]
    aside = await forward.list_dead_letters()
    assert [(one.run_id, one.seq) for one in aside] == [("a", 1), ("b", 0)]
    assert "ZeroDivisionError: a bug" in aside[0].problem
    assert isinstance(await forward.retry(2), SendRejection)


@pytest.mark.requirement("R172")
@pytest.mark.parametrize("schema", ["interlock", "splunk_hec", "ecs", "ocsf", "cef"])
async def test_every_schema_of_an_export_can_be_forwarded_one_event_per_line(db: Database, schema: str) -> None:
    log, sender = MemoryLog(), Told()
    await add_run(log, "a", 9)
    forward = Forwarder(log, db, DISK, build_renderers()[schema], sender=sender, options=PACE)

    await drain(forward)

    assert await forward.list_dead_letters() == []
    assert sender.lines == [
        build_renderers()[schema](entry, decode_event(entry), "billing") for entry in await log.read("a")
    ]


async def test_only_runs_of_its_agents_reach_a_destination(db: Database) -> None:
    log, sender = MemoryLog(), Told()
    await add_run(log, "a", 12, agent="billing")
    expected = await add_run(log, "b", 3, agent="research")
    await add_run(log, "c", 12, agent="billing")
    await append(log, "d", chained("d", 1))  # begins with no agent
    place = FileDestination(name="disk", path="/unused", agents=frozenset({"research"}))
    forward = Forwarder(log, db, place, render, sender=sender, options=PACE)

    await drain(forward)

    assert sender.lines == expected
    status = await forward.get_status()
    assert (status.position, status.pending_count) == (28, 0)
    refused = await forward.forward_run("a")
    assert (refused.sent, refused.total) == (0, 12)
    assert "no runs of this agent" in refused.problem


async def test_only_events_of_its_types_reach_a_destination(db: Database) -> None:
    log, sender = MemoryLog(), Told()
    sent = [await add_run(log, name, 3) for name in ("a", "b")]
    place = FileDestination(name="disk", path="/unused", events=frozenset({"run.started"}))
    forward = Forwarder(log, db, place, render, sender=sender, options=PACE)

    await drain(forward)

    assert sender.lines == [lines[0] for lines in sent]
    assert (await forward.get_status()).pending_count == 0


def test_an_event_that_there_is_none_of_is_refused() -> None:
    place = FileDestination(name="disk", path="/unused", events=frozenset({"aproval.granted"}))

    with pytest.raises(ConfigurationError, match=r"did you mean 'approval\.granted'"):
        check_destinations([place])


async def test_batches_are_bounded_in_bytes_but_hold_at_least_one_event(db: Database) -> None:
    log, sender = MemoryLog(), Told()
    expected = await add_run(log, "a", 6)

    await drain(forwarder(log, db, sender, ForwarderOptions(batch_bytes=7)))
    tiny = Told()
    await drain(
        Forwarder(
            log, db, FileDestination(name="b", path="/x"), render, sender=tiny, options=ForwarderOptions(batch_bytes=0)
        )
    )

    assert [len(batch.items) for batch in sender.batches] == [2, 2, 2]
    assert tiny.lines == expected


async def test_the_status_says_how_far_it_is_and_what_went_wrong(db: Database) -> None:
    log, sender = MemoryLog(), Told(SendSuccess(), SendDelay("down"))
    await add_run(log, "a", 10)
    forward = forwarder(log, db, sender)

    await forward.send_next_batch()
    await forward.send_next_batch()
    status = await forward.get_status()

    assert (status.name, status.kind, status.schema) == ("disk", "file", "interlock")
    assert (status.position, status.pending_count, status.oldest_pending_at) == (8, 2, AT + 8)
    assert (status.last_success_at, status.last_error, status.last_error_at) == (NOW, "down", NOW)
    await drain(forward)
    assert ((await forward.get_status()).last_error, (await forward.get_status()).pending_count) == ("", 0)


@pytest.mark.requirement("R172")
async def test_one_run_can_be_sent_now_and_says_what_came_of_it(db: Database) -> None:
    log, sender = MemoryLog(), Told(SendSuccess(), SendRejection("no"), SendSuccess())
    await add_run(log, "a", 3)
    expected = await add_run(log, "b", 10)
    forward = forwarder(log, db, sender)

    assert await forward.forward_run("b") == RunForwardResult(
        run_id="b", destination="disk", sent=8, total=10, problem="no"
    )
    assert await forward.forward_run("b") == RunForwardResult(run_id="b", destination="disk", sent=10, total=10)
    assert sender.lines[10:] == expected
    assert (await forward.forward_run("nobody")).total == 0
    assert (await forward.get_status()).position == 0


async def test_another_log_in_the_place_of_the_old_one_is_sent_from_its_beginning(db: Database) -> None:
    old, new, sender = MemoryLog(), MemoryLog(), Told()
    await add_run(old, "a", 5)
    await drain(forwarder(old, db, Told()))
    expected = await add_run(new, "z", 7)

    await drain(forwarder(new, db, sender))

    assert sender.lines == expected


async def test_a_log_or_a_disk_that_fails_for_a_moment_stops_nothing(db: Database) -> None:
    class Failing(MemoryLog):
        async def feed(self, after: int = 0, limit: int | None = None) -> list[FeedEntry]:
            raise OSError("gone for a moment")

    slept: list[float] = []

    class EnoughError(BaseException):
        pass

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise EnoughError

    forward = forwarder(Failing(), db, Told(), ForwarderOptions(random=lambda: 1.0, sleep=sleep))
    with pytest.raises(EnoughError):
        await forward.run()

    assert slept == [1.0, 2.0, 4.0]


OUTCOMES: st.SearchStrategy[SendOutcome] = st.sampled_from([SendSuccess(), SendDelay("down"), SendRejection("no")])


@given(st.lists(OUTCOMES, max_size=40), st.lists(st.integers(0, 30), max_size=6), st.integers(1, 6))
async def test_whatever_is_answered_and_whenever_it_restarts_no_event_is_lost(
    outcomes: list[SendOutcome], restarts: list[int], batch_events: int
) -> None:
    """Every event was sent and confirmed, or is set aside; and events of the run are confirmed in order."""
    db, log = SqliteDatabase(":memory:"), MemoryLog()
    expected = await add_run(log, "a", 13)
    sender, pace = Told(*outcomes), ForwarderOptions(batch_events=batch_events, max_attempts=2)
    for steps in restarts:
        forward = forwarder(log, db, sender, pace)
        for _ in range(steps):
            await forward.send_next_batch()
    last = forwarder(log, db, sender, pace)
    await drain(last)
    aside = {f"{one.run_id} {one.seq}".encode() for one in await last.list_dead_letters()}
    db.close()

    assert list(dict.fromkeys(sender.taken)) == [line for line in expected if line not in aside]
