"""Times, as pages have them: nanoseconds since 1970 in words for programs and for people."""

from datetime import UTC, datetime

_SECOND_NS = 1_000_000_000


def format_iso(at: int) -> str:
    time = _to_datetime(at)
    return "" if time is None else f"{time:%Y-%m-%dT%H:%M:%SZ}"


def format_utc(at: int) -> str:
    time = _to_datetime(at)
    return f"{at} nanoseconds after 1970" if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC"


def _to_datetime(at: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(at // _SECOND_NS, UTC)
    except (OverflowError, ValueError, OSError):
        return None
