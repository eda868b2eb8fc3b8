"""One-line formatting of runs: state, times, what a call acts on."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, cast

from rich.text import Text

from ...domain import event as facts
from ...rendering.events import Tone
from ...rendering.text import shorten_line, to_compact_json


class DisplayState(StrEnum):
    """The state of a run as shown in lists."""

    RUNNING = "running"
    WAITING = "waiting"
    #: Everything that was said has its answer, and more may be said: a chat.
    RESTING = "resting"
    #: It can be resumed, and no living process owns it.
    STOPPED = "stopped"
    COMPLETED = "completed"
    DEGRADED = "degraded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    #: It cannot be read, so its state is unknown.
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
TONE_STYLES: Mapping[Tone, str] = {"neutral": "", "success": "green", "warning": "yellow", "danger": "red"}
#: Events that are shown by their title and detail alone.
NOTE_EVENTS = (
    facts.ModelFailed,
    facts.FinalAnswerRejected,
    facts.ClaimContradicted,
    facts.ApprovalVoided,
    facts.WarningRaised,
)
#: The arguments that say most about a call, the most telling first.
_SUMMARY_ARGUMENTS = ("command", "path", "file_path", "pattern", "url", "query", "name", "task", "to")


def style_state(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, ""))


def summarize_arguments(arguments: Any) -> str:
    """Return a summary of a call's arguments."""
    if not isinstance(arguments, dict):
        return "" if arguments is None else shorten_line(str(arguments))
    values = cast(dict[str, Any], arguments)
    for name in _SUMMARY_ARGUMENTS:
        if isinstance(value := values.get(name), str) and value:
            return shorten_line(value)
    return shorten_line(", ".join(f"{name} {to_compact_json(value)}" for name, value in values.items()))
