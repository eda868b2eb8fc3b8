"""Times as other systems write them. What is no time of ours becomes 1970, never an error."""

from datetime import UTC, datetime

_SECOND = 10**9
#: Of the year 9999, the last that everybody can write.
_END = 253_402_300_800 * _SECOND


def format_rfc3339(at: int, digits: int = 9) -> str:
    """RFC 3339, in UTC. Of two with the same number of digits, the later one sorts behind the other."""
    seconds, rest = divmod(clamp_time(at), _SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}"[: 20 + digits] + "Z"


def format_epoch_seconds(at: int) -> str:
    seconds, rest = divmod(clamp_time(at), _SECOND)
    return f"{seconds}.{rest // 1_000:06d}"


def clamp_time(at: int) -> int:
    return at if 0 <= at < _END else 0
