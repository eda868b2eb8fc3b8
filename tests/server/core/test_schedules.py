"""A schedule starts one run for each time that it is due, and not one for each time that the server was down."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.errors import ConfigurationError
from interlock.server.core.database.interface import Database
from interlock.server.core.settings import parse_settings
from interlock.server.core.triggers.due_times import Schedule, find_latest_due, find_next_due
from interlock.server.core.triggers.schedules import DueRun, Schedules
from tests.each import each
from tests.logs import open_database

SECOND = 10**9


def moment(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


NOON = moment("2026-03-10T12:00:00")
MINUTE = 60 * SECOND


def schedule(name: str = "nightly", cron: str = "", **more: object) -> Schedule:
    wanted = {"name": name, "agent": "billing", "task": "close the books", "cron": cron, **more}
    return parse_settings({"schedules": [wanted]}).schedules[0]


EVERY_5 = schedule(cron="*/5 * * * *")


@pytest.fixture
def db(tmp_path: Path, database_backend: str) -> Iterator[Database]:
    db = open_database(tmp_path / "server.db")
    yield db
    db.close()


class Starts:
    """Starts runs as a server does: the same id twice is one run."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails = False

    async def __call__(self, due: DueRun) -> None:
        if self.fails:
            raise ConfigurationError("there is no agent of this name")
        self.asked.append(due.run_id)


async def opened(db: Database, starts: Starts, now: int, *schedules: Schedule) -> Schedules:
    made = Schedules(db, schedules or (EVERY_5,), starts, now=lambda: now)
    await made.open()
    return made


@pytest.mark.requirement("R125")
async def test_a_run_is_started_when_it_is_due_and_once(db: Database) -> None:
    starts = Starts()
    schedules = await opened(db, starts, NOON + 1)

    assert schedules.get_next_due() == NOON + 5 * MINUTE
    assert await schedules.start_due_runs(NOON + 5 * MINUTE - 1) == []
    fired = await schedules.start_due_runs(NOON + 5 * MINUTE)
    assert await schedules.start_due_runs(NOON + 6 * MINUTE) == []

    assert fired == [DueRun(EVERY_5, NOON + 5 * MINUTE, f"sched-nightly-{NOON // SECOND + 300}")]
    assert starts.asked == [fired[0].run_id]
    assert schedules.get_next_due() == NOON + 10 * MINUTE


async def test_what_was_due_while_the_server_was_down_is_started_once_for_the_latest_time(db: Database) -> None:
    starts = Starts()
    await opened(db, starts, NOON)

    again = await opened(db, starts, NOON + 3 * 60 * MINUTE + 7 * MINUTE)
    await again.start_due_runs(NOON + 3 * 60 * MINUTE + 7 * MINUTE)

    assert starts.asked == [f"sched-nightly-{NOON // SECOND + 3 * 3600 + 300}"]


async def test_a_crash_between_start_and_mark_asks_for_the_same_run_again(db: Database) -> None:
    starts, due_at = Starts(), NOON + 5 * MINUTE
    await opened(db, starts, NOON)

    class CrashError(BaseException):
        pass

    async def crash(due: DueRun) -> None:
        await starts(due)
        raise CrashError

    crashing = Schedules(db, [EVERY_5], crash, now=lambda: due_at)
    await crashing.open()
    with pytest.raises(CrashError):
        await crashing.start_due_runs(due_at)
    again = await opened(db, starts, due_at)
    await again.start_due_runs(due_at + 1)
    await again.start_due_runs(due_at + 2)

    assert starts.asked == [f"sched-nightly-{due_at // SECOND}"] * 2


async def test_a_schedule_that_is_new_changed_or_enabled_again_counts_from_now(db: Database) -> None:
    starts = Starts()
    off = schedule(cron="*/5 * * * *", enabled=False)
    other = schedule(cron="*/7 * * * *")
    hour = 60 * MINUTE
    for day, wanted in enumerate([EVERY_5, off, EVERY_5, other, schedule("else", every_seconds=60), EVERY_5]):
        made = await opened(db, starts, NOON + day * 24 * hour, wanted)
        await made.start_due_runs(NOON + day * 24 * hour)
        assert (made.get_next_due() is None) == (wanted is off)

    assert starts.asked == []


async def test_a_run_that_cannot_be_started_is_tried_again_after_a_minute_and_holds_up_no_other(db: Database) -> None:
    starts, fine, due_at = Starts(), Starts(), NOON + 5 * MINUTE

    async def start(due: DueRun) -> None:
        await (starts if due.schedule.name == "broken" else fine)(due)

    broken = schedule("broken", cron="*/5 * * * *")
    schedules = Schedules(db, [broken, EVERY_5], start, now=lambda: NOON)
    await schedules.open()
    starts.fails = True

    assert [due.schedule.name for due in await schedules.start_due_runs(due_at)] == ["nightly"]
    assert schedules.get_next_due() == due_at + MINUTE
    assert [status.problem for status in schedules.list_statuses()] == ["there is no agent of this name", ""]
    starts.fails = False
    assert await schedules.start_due_runs(due_at + MINUTE - 1) == []
    assert len(await schedules.start_due_runs(due_at + MINUTE)) == 1
    assert starts.asked == [f"sched-broken-{due_at // SECOND}"]
    assert schedules.list_statuses()[0].problem == ""


async def test_a_clock_that_is_set_back_starts_nothing_twice(db: Database) -> None:
    starts = Starts()
    schedules = await opened(db, starts, NOON)
    await schedules.start_due_runs(NOON + 10 * MINUTE)

    for back in range(12):
        await schedules.start_due_runs(NOON + back * MINUTE)

    assert len(starts.asked) == 1


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_clock_that_was_far_ahead_for_a_moment_does_not_silence_a_schedule(
    db: Database, is_restarted: bool
) -> None:
    starts, now = Starts(), NOON
    schedules = Schedules(db, [EVERY_5], starts, now=lambda: now)
    await schedules.open()
    now = NOON + 366 * 24 * 60 * MINUTE
    await schedules.start_due_runs(now)
    now = NOON + MINUTE
    if is_restarted:
        schedules = Schedules(db, [EVERY_5], starts, now=lambda: now)
        await schedules.open()

    assert schedules.get_next_due() == NOON + 5 * MINUTE
    now = NOON + 5 * MINUTE
    await schedules.start_due_runs(now)
    await schedules.start_due_runs(now)

    assert starts.asked[1:] == [f"sched-nightly-{now // SECOND}"]


@pytest.mark.parametrize(
    ("cron", "zone", "after", "due"),
    [
        ("0 3 * * *", "UTC", "2026-03-10T12:00:00", "2026-03-11T03:00:00"),
        ("0 3 * * *", "Europe/Berlin", "2026-03-10T12:00:00", "2026-03-11T02:00:00"),
        # 02:30 does not exist on the 29th of March in Berlin, and exists twice on the 25th of October.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00", "2026-03-29T01:00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00", "2026-10-25T00:30:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00", "2026-10-26T01:30:00"),
        ("0 0 29 2 *", "UTC", "2026-03-01T00:00:00", "2028-02-29T00:00:00"),
    ],
)
def test_a_cron_expression_is_meant_in_its_time_zone(cron: str, zone: str, after: str, due: str) -> None:
    try:
        wanted = schedule(cron=cron, timezone=zone)
    except ConfigurationError as error:
        pytest.skip(str(error))

    assert find_next_due(wanted, moment(after)) == moment(due)


CRONS = ["* * * * *", "*/7 * * * *", "30 2 * * *", "0 */3 * * 1-5", "15 1,2,3 * * SUN", "0 0 1 * *", "0 12 29 2 *"]


@given(
    st.sampled_from(CRONS),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    st.integers(moment("2026-01-01T00:00:00"), moment("2027-12-31T00:00:00")),
    st.integers(0, 40 * 24 * 3600 * SECOND),
)
def test_the_latest_due_time_is_the_last_of_all_counted_one_by_one(cron: str, zone: str, after: int, span: int) -> None:
    wanted = Schedule(name="x", agent="a", task="t", cron=cron, timezone=zone)
    span = min(span, 3 * 24 * 3600 * SECOND) if cron.startswith("*") else span
    expected, due_at = None, find_next_due(wanted, after)
    while due_at is not None and due_at <= after + span:
        expected, due_at = due_at, find_next_due(wanted, due_at)

    assert find_latest_due(wanted, after, after + span) == expected


@given(st.integers(1, 10**7), st.integers(0, 10**19), st.integers(0, 10**13))
def test_every_so_many_seconds_is_due_at_whole_multiples(every: int, after: int, span: int) -> None:
    wanted = Schedule(name="x", agent="a", task="t", every_seconds=every)
    due_at = find_next_due(wanted, after)

    assert due_at is not None
    assert due_at % (every * SECOND) == 0
    assert after < due_at <= after + every * SECOND
    latest = find_latest_due(wanted, after, after + span)
    assert latest is None if due_at > after + span else latest == (after + span) // (every * SECOND) * every * SECOND


@each(
    ("wrong", "words"),
    [
        ({"cron": "* * * *"}, "Wrong number of fields"),
        ({"cron": "61 * * * *"}, "Bad minute"),
        ({"cron": "0 0 30 2 *"}, "Bad day"),
        ({"cron": "*/0 * * * *"}, "Bad minute"),
        ({"cron": "* " * 200}, "more than 256"),
        ({"cron": "0 0 * * *", "timezone": "Mars/Olympus"}, "time zone"),
        ({"cron": "0 0 * * *", "timezone": "../../etc/passwd"}, "time zone"),
        ({"cron": "0 0 * * *", "timezone": ""}, "time zone"),
        ({}, "either"),
        ({"cron": "0 0 * * *", "every_seconds": 5}, "either"),
        ({"every_seconds": -5}, "between 1"),
        ({"every_seconds": 10**12}, "between 1"),
        ({"every_seconds": 5, "name": "Not a Name"}, "lower-case"),
        ({"every_seconds": 5, "task": " "}, "task"),
        ({"every_seconds": 5, "agent": ""}, "agent"),
        ({"every_seconds": 5, "secret": "x"}, "unknown field"),
        ({"every_seconds": "often"}, "every_seconds"),
    ],
)
def test_a_schedule_that_cannot_work_is_named_before_the_server_starts(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_settings({"schedules": [{"name": "nightly", "agent": "billing", "task": "close", **wrong}]})


def test_two_schedules_of_one_name_are_refused() -> None:
    table = {"name": "nightly", "agent": "billing", "task": "close", "every_seconds": 5}
    with pytest.raises(ConfigurationError, match="same name"):
        parse_settings({"schedules": [table, table]})
