"""Format times, which are nanoseconds since 1970, and durations. What cannot be written is never an error."""

import time
from datetime import UTC, datetime
from functools import lru_cache

_SECOND_NS, _SECOND_MS = 1_000_000_000, 1_000
#: The end of the year 9999, the last that every system can write.
_END = 253_402_300_800 * _SECOND_NS
#: From so many seconds on, this unit is used.
_UNITS = ((2 * 86_400, 86_400, "days"), (2 * 3_600, 3_600, "h"), (120, 60, "min"))


def format_rfc3339(at: int, digits: int = 9) -> str:
    """Return a time as RFC 3339 in UTC. Of two with the same number of digits, the later one sorts behind the other."""
    seconds, rest = divmod(clamp_time(at), _SECOND_NS)
    fraction = f".{rest:09d}"[: 1 + digits] if digits else ""
    return f"{_format_seconds(seconds)}{fraction}Z"


@lru_cache(maxsize=1_000)
def _format_seconds(seconds: int) -> str:
    """Format whole seconds. A list is full of times that are close to each other, and the calendar is the slow part."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def format_epoch_seconds(at: int) -> str:
    """Return a time as seconds since 1970, to the microsecond."""
    seconds, rest = divmod(clamp_time(at), _SECOND_NS)
    return f"{seconds}.{rest // 1_000:06d}"


def clamp_time(at: int) -> int:
    """Return the time, or 0 for one that cannot be written."""
    return at if 0 <= at < _END else 0


def format_utc(at: int) -> str:
    """Return a time for a person, in UTC."""
    return f"{_format_seconds(at // _SECOND_NS).replace('T', ' ')} UTC" if at == clamp_time(at) else _format_number(at)


def format_local_time(at: int) -> str:
    """Return a time for a person, in the time zone of this machine."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at // _SECOND_NS))
    except (OverflowError, ValueError, OSError):
        return _format_number(at)


def _format_number(at: int) -> str:
    return f"{at} nanoseconds after 1970"


def format_duration(nanoseconds: int) -> str:
    """Return `5 s`, `3 min`, `7 h` or `12 days`. A clock that was set back gives 0 s."""
    seconds = max(0, nanoseconds) // _SECOND_NS
    for at_least, unit, word in _UNITS:
        if seconds >= at_least:
            return f"{seconds // unit:,} {word}"
    return f"{seconds} s"


def format_expiry(at: int, now: int) -> str:
    """Return when a question expires, as seen from now."""
    if not at:
        return "never"
    return f"in {format_duration(at - now)}" if at > now else "over"


def format_elapsed(milliseconds: float | None) -> str:
    """Return how long something took; nothing where that is not known."""
    if milliseconds is None:
        return ""
    return f"{milliseconds:.0f} ms" if milliseconds < _SECOND_MS else f"{milliseconds / _SECOND_MS:,.1f} s"
