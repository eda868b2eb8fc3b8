"""Times, as pages have them: nanoseconds since 1970 in words for programs and for people."""

from datetime import UTC, datetime

_SECOND_NS = 1_000_000_000


def iso(at: int) -> str:
    moment = _moment(at)
    return "" if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def clock(at: int) -> str:
    moment = _moment(at)
    return f"{at} nanoseconds after 1970" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _moment(at: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(at // _SECOND_NS, UTC)
    except (OverflowError, ValueError, OSError):
        return None
