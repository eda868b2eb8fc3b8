"""Scheduled runs.

For every schedule the due time that was started last is durable. The start comes first and the mark after it, and the
run's id is made of the schedule and the due time; so a crash between the two starts the same run again, which is no
second run. What was due while the server was down is started once, for the latest due time. A schedule that is new,
changed or enabled again counts from now on: runs of last month are not made up. So does one whose mark is ahead of
the clock by more than an hour: the clock was wrong, and the schedule must not rest until it would have been right.

What was due while a schedule was paused is passed over: it counts as dealt with.

Where servers share a database, one of them may have an older configuration for a while. So the mark of a schedule that
a server does not have stays, until servers have run for a day without one that has it.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import time_ns
from typing import NamedTuple, TypeAlias

import msgspec

from ..database.interface import Connection, Database
from ..errors import ServiceError, StorageError
from ..switches import Switches
from .due_times import NANOSECONDS_PER_SECOND, Schedule, check_schedules, find_latest_due, find_next_due
from .refusals import TriggerRefusals

#: How long a schedule rests whose run could not be started.
RETRY_SECONDS = 60
#: A mark that lies further ahead was made by a clock that was wrong.
_MAX_CLOCK_SKEW_SECONDS = 3600
#: How long servers run without a schedule before it counts as removed, where others may have it.
KEEP_SECONDS = 86_400

#: In the row that says when a server was running last, whatever its schedules.
_ANY_SCHEDULE = ""
_SELECT_MARKS = "SELECT name, definition, due_at, seen_at FROM schedule_marks"
_UPSERT_MARK = """INSERT INTO schedule_marks (name, definition, due_at, seen_at) VALUES (?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET
    definition = excluded.definition, due_at = excluded.due_at, seen_at = excluded.seen_at"""


class DueRun(msgspec.Struct, frozen=True):
    """A run to start now. Its id is deterministic: starting it twice starts it once."""

    schedule: Schedule
    #: Nanoseconds since 1970.
    due_at: int
    run_id: str


RunStarter: TypeAlias = Callable[[DueRun], Awaitable[None]]


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a schedule."""

    name: str
    agent: str
    enabled: bool
    #: When it is due next; 0: never.
    next_due_at: int
    #: Why its last run could not be started; empty: it could.
    problem: str = ""


class _Mark(NamedTuple):
    definition: str
    due_at: int
    seen_at: int


class Schedules:
    """Starts scheduled runs."""

    def __init__(
        self, db: Database, schedules: Sequence[Schedule], start: RunStarter, now: Callable[[], int] = time_ns
    ) -> None:
        check_schedules(schedules)
        self._db = db
        self._schedules = tuple(schedules)
        self._start = start
        self._now = now
        self._switches = Switches(db, now)
        self.refusals = TriggerRefusals(db, now)
        #: The due time that was dealt with last, by name.
        self._marks: dict[str, int] = {}
        self._problems: dict[str, str] = {}
        self._retry_at: dict[str, int] = {}

    @property
    def configured(self) -> tuple[Schedule, ...]:
        """All schedules of the settings."""
        return self._schedules

    async def open(self) -> None:
        """Load what was started before, and reset new or changed schedules. Call first, and every few hours, so that
        the schedules count as present.
        """
        now = self._now()

        def write(connection: Connection) -> dict[str, int]:
            known = {row[0]: _Mark(*row[1:]) for row in connection.execute(_SELECT_MARKS).fetchall()}
            last_run = known.pop(_ANY_SCHEDULE, _Mark("", 0, 0)).seen_at
            is_removed = {name: self._is_removed(name, mark.seen_at, last_run) for name, mark in known.items()}
            for name in [name for name, removed in is_removed.items() if removed]:
                connection.execute("DELETE FROM schedule_marks WHERE name = ?", (name,))
                del known[name]
            marks: dict[str, int] = {}
            for schedule in self._schedules:
                mark = known.get(schedule.name)
                marks[schedule.name] = mark.due_at if mark and mark.definition == schedule.definition else now
                _save_mark(connection, schedule, marks[schedule.name], now)
            connection.execute(_UPSERT_MARK, (_ANY_SCHEDULE, "", 0, now))
            return marks

        self._marks = await self._db.run(write)

    def _is_removed(self, name: str, seen_at: int, last_run: int) -> bool:
        if self._db.is_shared:
            return last_run - seen_at > KEEP_SECONDS * NANOSECONDS_PER_SECOND
        return all(schedule.name != name for schedule in self._schedules)

    def get_next_due(self) -> int | None:
        """Return when to call `start_due_runs` next; None: never."""
        now = self._now()
        times = [self._find_next_start(schedule, now) for schedule in self._schedules if schedule.enabled]
        return min((due_at for due_at in times if due_at is not None), default=None)

    async def start_due_runs(self, now: int) -> list[DueRun]:
        """Start what is due, each for its latest due time. Failed starts are tried again later."""
        started: list[DueRun] = []
        paused = await self._switches.list("schedule")
        for schedule in self._schedules:
            if not schedule.enabled or self._retry_at.get(schedule.name, 0) > now:
                continue
            due_at = find_latest_due(schedule, self._get_mark(schedule, now), now)
            if due_at is not None:
                due = DueRun(schedule, due_at, f"sched-{schedule.name}-{due_at // NANOSECONDS_PER_SECOND}")
                if schedule.name in paused:
                    await self._mark_done(due, now)
                elif await self._start_due_run(due, now):
                    started.append(due)
        return started

    def list_statuses(self) -> list[ScheduleStatus]:
        """List every schedule with its next start and last problem."""
        now = self._now()
        return [
            ScheduleStatus(
                name=schedule.name,
                agent=schedule.agent,
                enabled=schedule.enabled,
                next_due_at=(self._find_next_start(schedule, now, after=now) or 0) if schedule.enabled else 0,
                problem=self._problems.get(schedule.name, ""),
            )
            for schedule in self._schedules
        ]

    async def _start_due_run(self, due: DueRun, now: int) -> bool:
        name = due.schedule.name
        try:
            await self._start(due)
            await self._mark_done(due, now)
        except Exception as error:  # of this schedule: the others are started all the same
            self._problems[name] = str(error)
            self._retry_at[name] = now + RETRY_SECONDS * NANOSECONDS_PER_SECOND
            code = error.code if isinstance(error, ServiceError) else "failed"
            with suppress(StorageError):
                await self.refusals.record("schedule", name, code, str(error))
            return False
        return True

    async def _mark_done(self, due: DueRun, now: int) -> None:
        await self._db.run(lambda connection: _save_mark(connection, due.schedule, due.due_at, now))
        self._marks[due.schedule.name] = due.due_at
        self._problems.pop(due.schedule.name, None)
        self._retry_at.pop(due.schedule.name, None)

    def _get_mark(self, schedule: Schedule, now: int) -> int:
        # A server that does not lead has loaded none.
        if self._marks.setdefault(schedule.name, now) > now + _MAX_CLOCK_SKEW_SECONDS * NANOSECONDS_PER_SECOND:
            self._marks[schedule.name] = now
            self._retry_at.pop(schedule.name, None)
        return self._marks[schedule.name]

    def _find_next_start(self, schedule: Schedule, now: int, after: int = 0) -> int | None:
        due_at = find_next_due(schedule, max(after, self._get_mark(schedule, now)))
        return None if due_at is None else max(due_at, self._retry_at.get(schedule.name, 0))


def _save_mark(connection: Connection, schedule: Schedule, due_at: int, now: int) -> None:
    connection.execute(_UPSERT_MARK, (schedule.name, schedule.definition, due_at, now))
