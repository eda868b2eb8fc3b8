"""How runs are told about in a line: state, times, what a call acts on."""

import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, cast

from rich.text import Text

from .output import to_compact_json


class DisplayState(StrEnum):
    RUNNING = "running"
    WAITING = "waiting"
    #: Everything that was said has its answer, and more may be said: a chat.
    RESTING = "resting"
    #: It can go on, and no living process has it.
    STOPPED = "stopped"
    COMPLETED = "completed"
    DEGRADED = "degraded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    #: It cannot be read, so nobody knows.
    DAMAGED = "damaged"


_STYLES: Mapping[str, str] = {
    "running": "cyan",
    "waiting": "yellow",
    "resting": "cyan",
    "stopped": "yellow",
    "completed": "green",
    "degraded": "yellow",
    "failed": "red",
    "cancelled": "red",
    "damaged": "bold red",
}
#: The arguments that say most about a call, the most telling first.
_SUMMARY_ARGUMENTS = ("command", "path", "file_path", "pattern", "url", "query", "name", "task", "to")
_SECOND_NS, _SECOND_MS = 1_000_000_000, 1_000
#: From so many seconds on, this unit is used.
_UNITS = ((2 * 86_400, 86_400, "days"), (2 * 3_600, 3_600, "h"), (120, 60, "min"))
_MAX_SUMMARY_CHARS = 200


def style_state(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, ""))


def format_duration(nanoseconds: int) -> str:
    """`5 s`, `3 min`, `7 h`, `12 days`. A clock that was set back gives 0 s."""
    seconds = max(0, nanoseconds) // _SECOND_NS
    for at_least, unit, word in _UNITS:
        if seconds >= at_least:
            return f"{seconds // unit:,} {word}"
    return f"{seconds} s"


def format_expiry(at: int, now: int) -> str:
    """When a question ends."""
    if not at:
        return "never"
    return f"in {format_duration(at - now)}" if at > now else "over"


def format_elapsed(milliseconds: float | None) -> str:
    if milliseconds is None:
        return ""
    return f"{milliseconds:.0f} ms" if milliseconds < _SECOND_MS else f"{milliseconds / _SECOND_MS:,.1f} s"


def format_local_time(at: int) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at // _SECOND_NS))
    except (OverflowError, ValueError, OSError):
        return f"{at} nanoseconds after 1970"


def shorten_line(text: str, max_chars: int = _MAX_SUMMARY_CHARS) -> str:
    """The beginning of a text as one line."""
    line = " ".join(text[: 4 * max_chars].split())
    return line if len(line) <= max_chars and len(text) <= 4 * max_chars else f"{line[:max_chars].rstrip()}..."


def summarize_arguments(arguments: Any) -> str:
    """What a call is about, from its arguments as a model wrote them."""
    if not isinstance(arguments, dict):
        return "" if arguments is None else shorten_line(str(arguments))
    values = cast(dict[str, Any], arguments)
    for name in _SUMMARY_ARGUMENTS:
        if isinstance(value := values.get(name), str) and value:
            return shorten_line(value)
    return shorten_line(", ".join(f"{name} {to_compact_json(value)}" for name, value in values.items()))
