"""Due times of schedules: by cron expression in a time zone, or every so many seconds. Pure, but for the zone's
file.

Due times are always counted forwards from a moment; where they are counted from does not change them, so what is due
after a crash is what was due before it.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from ....domain.errors import ConfigurationError

MAX_TRIGGER_TASK_CHARS = 32_768

is_trigger_name = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}").fullmatch


def find_trigger_problem(name: str, agent: str, task: str) -> str:
    """Return what is wrong with these fields; empty when nothing is."""
    if not is_trigger_name(name):
        return "a name has up to 64 lower-case letters, digits, - and _"
    if not agent or not task.strip() or len(task) > MAX_TRIGGER_TASK_CHARS:
        return f"it needs an agent, and a task of up to {MAX_TRIGGER_TASK_CHARS} characters"
    return ""


MAX_EVERY_SECONDS = 366 * 86_400
MAX_CRON_CHARS = 256
NANOSECONDS_PER_SECOND = 1_000_000_000
#: To find the latest due time: how far to go back, a little first, so that few due times are counted through.
_LOOK_BACK_SECONDS = (0, 3_600, 86_400, 7 * 86_400, 62 * 86_400, 366 * 86_400, 9 * 366 * 86_400)
#: The 29th of February may be eight years away, and one on a Monday forty.
_MAX_CRON_GAP = timedelta(days=45 * 366)


class Schedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule that starts runs."""

    name: str
    agent: str
    task: str
    #: `*/5 * * * *`, in its time zone; or every so many seconds, counted from 1970.
    cron: str = ""
    every_seconds: int = 0
    timezone: str = "UTC"
    enabled: bool = True

    @property
    def zone(self) -> tzinfo:
        """Time zone of the schedule."""
        return UTC if self.timezone == "UTC" else ZoneInfo(self.timezone)

    @property
    def definition(self) -> str:
        """When it is due, as text: a change of this resets the schedule."""
        return f"{self.cron or self.every_seconds} {self.timezone} {'on' if self.enabled else 'off'}"


def check_schedules(schedules: Sequence[Schedule]) -> None:
    """Raise `ConfigurationError` if a schedule is invalid or its name is not unique."""
    names: set[str] = set()
    for schedule in schedules:
        if problem := "another one has the same name" if schedule.name in names else _find_problem(schedule):
            raise ConfigurationError(f'The schedule "{schedule.name[:64]}" cannot work: {problem}.')
        names.add(schedule.name)


def find_next_due(schedule: Schedule, after: int) -> int | None:
    """Return the first due time after that moment; None: there is none."""
    return next(_iterate_due_times(schedule, after), None)


def find_latest_due(schedule: Schedule, after: int, until: int) -> int | None:
    """Return the last due time after one moment and not after another."""
    for near, far in pairwise(_LOOK_BACK_SECONDS):
        start, end = max(after, until - far * NANOSECONDS_PER_SECOND), until - near * NANOSECONDS_PER_SECOND
        found = None
        for due_at in _iterate_due_times(schedule, start) if start < end else ():
            if due_at > end:
                break
            found = due_at
        if found is not None or start == after:
            return found
    return None


def _iterate_due_times(schedule: Schedule, after: int) -> Iterator[int]:
    """Yield the due times after a moment in ascending order, in whole seconds."""
    if schedule.every_seconds:
        step = schedule.every_seconds * NANOSECONDS_PER_SECOND
        due_at = after // step * step
        while True:
            due_at += step
            yield due_at
    last = after
    moment = datetime.fromtimestamp(after // NANOSECONDS_PER_SECOND, UTC).astimezone(schedule.zone)
    try:
        for due in CronSim(schedule.cron, moment):
            # Where clocks are set back, a time of day that comes twice counts when it comes first.
            if (due_at := int(due.timestamp()) * NANOSECONDS_PER_SECOND) > last:
                last = due_at
                yield due_at
    except OverflowError:  # the year 9999
        return


def _find_problem(schedule: Schedule) -> str:
    if problem := find_trigger_problem(schedule.name, schedule.agent, schedule.task):
        return problem
    if bool(schedule.cron) == bool(schedule.every_seconds):
        return "it needs either `cron` or `every_seconds`"
    if not 0 <= schedule.every_seconds <= MAX_EVERY_SECONDS:
        return f"`every_seconds` is between 1 and {MAX_EVERY_SECONDS}"
    try:
        zone = schedule.zone
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        return f"{schedule.timezone[:64]!r} is not a time zone that this machine knows"
    return _find_cron_problem(schedule.cron, zone) if schedule.cron else ""


def _find_cron_problem(cron: str, zone: tzinfo) -> str:
    if len(cron) > MAX_CRON_CHARS:
        return f"its cron expression has more than {MAX_CRON_CHARS} characters"
    start = datetime.now(zone)
    try:
        due = next(CronSim(cron, start), None)
    except (CronSimError, ValueError, OverflowError) as error:
        return f"its cron expression cannot be read: {error}"
    return "its cron expression is never due" if due is None or due - start > _MAX_CRON_GAP else ""
