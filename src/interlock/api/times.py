"""Times as REST has them: RFC 3339 in UTC, to the microsecond. Inside they are nanoseconds since 1970; 0 is never."""

from datetime import datetime

from ..history.exports.times import utc

_NS_PER_US = 1_000


def when(at: int) -> str | None:
    return utc(at, 6) if at else None


def moment(at: int) -> str:
    """Of something that has happened."""
    return utc(at, 6)


def nanoseconds(at: datetime) -> int:
    """`ValueError` for one without a time zone: it would be another one elsewhere."""
    if at.tzinfo is None:
        raise ValueError("has to say its time zone, as in 2030-01-31T12:00:00Z")
    whole = int(at.timestamp())
    return whole * 1_000_000_000 + at.microsecond * _NS_PER_US
