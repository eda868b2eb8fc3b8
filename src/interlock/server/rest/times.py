"""Times in REST: RFC 3339 in UTC, to the microsecond. Internally they are nanoseconds since 1970; 0 is never."""

from datetime import datetime

from ...rendering.times import format_rfc3339

_NS_PER_US = 1_000
#: Later ones are more nanoseconds than the log and the database count.
_LAST_SECOND = 2**63 // 10**9 - 1


def format_optional_time(at: int) -> str | None:
    return format_time(at) if at else None


def format_time(at: int) -> str:
    """Of something that has happened."""
    return format_rfc3339(at, 6)


def to_nanoseconds(at: datetime) -> int:
    """Convert a time. Raise `ValueError` without a time zone."""
    if at.tzinfo is None:
        raise ValueError("has to say its time zone, as in 2030-01-31T12:00:00Z")
    whole = int(at.timestamp())
    if not 0 <= whole <= _LAST_SECOND:
        raise ValueError("has to lie between 1970 and 2262")
    return whole * 1_000_000_000 + at.microsecond * _NS_PER_US
