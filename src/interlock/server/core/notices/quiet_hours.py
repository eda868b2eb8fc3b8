"""Quiet hours: when notices wait, in the local time of the people that they are for."""

import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

import msgspec

from ....domain.errors import ConfigurationError

_SPAN = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


class QuietHours(msgspec.Struct, frozen=True):
    """A span of every day, possibly across midnight."""

    start: time
    end: time
    zone: tzinfo

    def find_end(self, at: int) -> int:
        """Return the end of the quiet hours that a moment is in, in nanoseconds since 1970; the moment if in none."""
        moment = datetime.fromtimestamp(at // 1_000_000_000, UTC).astimezone(self.zone)
        clock = moment.time()
        if self.start < self.end:
            is_quiet, days = self.start <= clock < self.end, 0
        else:
            is_quiet, days = clock >= self.start or clock < self.end, 1 if clock >= self.start else 0
        if not is_quiet:
            return at
        end = datetime.combine(moment.date() + timedelta(days=days), self.end, self.zone)
        return max(at, int(end.timestamp()) * 1_000_000_000)


def parse_quiet_hours(text: str, time_zone: str) -> QuietHours:
    """Parse quiet hours such as `22:00-07:00`. Raise `ConfigurationError` for others."""
    found = _SPAN.fullmatch(text)
    if found is None or found.group(1, 2) == found.group(3, 4):
        raise ConfigurationError(f"{text[:32]!r} is not a span of quiet hours; expected one like 22:00-07:00")
    start, end = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
    return QuietHours(start, end, load_time_zone(time_zone))


def load_time_zone(name: str) -> tzinfo:
    """Return a time zone by its name. Raise `ConfigurationError` if this machine does not know it."""
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise ConfigurationError(f"{name[:64]!r} is not a time zone that this machine knows") from None
