"""Durations as people read them."""

from .charts import format_seconds

_MS, _SECOND = 1_000_000, 1_000_000_000
#: From here on, in seconds, fractions do not matter.
_WHOLE_FROM = 60


def format_span(nanoseconds: int) -> str:
    """Return `3 ms`, `2.5 s`, `4 min 10 s` or more. A clock that was set back gives 0 ms."""
    nanoseconds = max(0, nanoseconds)
    if nanoseconds < _SECOND:
        return f"{nanoseconds / _MS:.0f} ms"
    seconds = nanoseconds / _SECOND
    return f"{seconds:.1f} s" if seconds < _WHOLE_FROM else format_seconds(seconds)


def sum_spans(spans: list[tuple[int, int]]) -> int:
    """Return how long at least one of these lasted; those that overlap count once."""
    total, reached = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total
