"""A short transcript of a run, event by event: messages, and the outcome of each call. `events` has everything.

`RunPrinter` prints lines as they come, before column widths are known.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.text import Text

from ...domain import event as facts
from ...domain.event import Event
from ...rendering.text import shorten_line
from ...rendering.times import format_elapsed
from ..config.logs import shorten_id
from .event_format import format_event_row
from .formatting import summarize_arguments
from .output import make_visible

_OUTCOME_STYLES = {"ok": "green", "failed": "red"}


class TranscriptLine(msgspec.Struct, frozen=True):
    """One line: author or tool, subject, and outcome. All three may be untrusted text."""

    who: str
    what: str = ""
    outcome: str = ""
    style: str = ""


class _CallSummary(NamedTuple):
    tool: str
    about: str


class EventFormatter:
    """Formats events in order, from the first one: later events refer to earlier ones."""

    def __init__(self) -> None:
        self._calls: dict[str, _CallSummary] = {}

    def format_event(self, event: Event) -> TranscriptLine | None:
        """Return the line of an event; None: nothing to show."""
        format_fact = _FORMATTERS.get(type(event.fact))
        return format_fact(self, event.fact) if format_fact else None

    def remember_call(self, fact: facts.CallProposed) -> None:
        if fact.call_id not in self._calls:
            raw_input = fact.raw_input if not fact.raw_artifact_id else f"{fact.raw_bytes:,} bytes"
            self._calls[fact.call_id] = _CallSummary(fact.tool, summarize_arguments(raw_input))

    def format_run_started(self, fact: facts.RunStarted) -> TranscriptLine | None:
        if not fact.forked_from:
            return None
        return TranscriptLine("fork", f"of {shorten_id(fact.forked_from)} at event {fact.forked_at}")

    def format_user_message(self, fact: facts.UserMessageReceived) -> TranscriptLine:
        return TranscriptLine(fact.by or "you", shorten_line(fact.text), style="bold")

    def format_model_response(self, fact: facts.ModelResponded) -> TranscriptLine | None:
        return TranscriptLine("model", shorten_line(fact.text)) if fact.text.strip() else None

    def format_decision(self, fact: Any) -> TranscriptLine:
        tool, about = self._find_call(fact.call_id)
        label = _DECISION_LABELS[type(fact)]
        reason = f": {shorten_line(fact.answer.reason, 80)}" if fact.answer.reason else ""
        return TranscriptLine(fact.answer.by or "somebody", f"{tool} {about}".strip(), f"{label}{reason}", "bold")

    def format_void(self, fact: facts.ApprovalVoided) -> TranscriptLine:
        return TranscriptLine(
            "void", f"{self._find_call(fact.call_id).tool} {shorten_id(fact.action_id)}", fact.reason, "yellow"
        )

    def format_observation(self, fact: facts.CallObserved) -> TranscriptLine:
        observation = fact.observation
        tool, about = self._find_call(observation.call_id)
        code = "ok" if observation.ok else "failed" if observation.code == "ok" else observation.code
        outcome = " ".join(part for part in (code, format_elapsed(observation.duration_ms)) if part)
        return TranscriptLine(tool, about, outcome, _OUTCOME_STYLES["ok" if observation.ok else "failed"])

    def format_conflict(self, fact: facts.ClaimContradicted) -> TranscriptLine:
        return TranscriptLine("conflict", shorten_line(fact.message), style="bold red")

    def format_answer_refused(self, fact: facts.FinalAnswerRejected) -> TranscriptLine:
        return TranscriptLine("not taken", shorten_line(fact.message), style="yellow")

    def format_model_failure(self, fact: facts.ModelFailed) -> TranscriptLine:
        return TranscriptLine("model", shorten_line(fact.message), "gave no answer", "red")

    def format_warning(self, fact: facts.WarningRaised) -> TranscriptLine:
        return TranscriptLine("warning", shorten_line(fact.message), style="yellow")

    def _find_call(self, call_id: str) -> _CallSummary:
        return self._calls.get(call_id, _CallSummary(call_id, ""))


_DECISION_LABELS: Mapping[type, str] = {
    facts.ApprovalGranted: "approved",
    facts.ApprovalRejected: "rejected",
    facts.ApprovalExpired: "not answered in time",
    facts.InputProvided: "gave a value",
    facts.InputRefused: "gave no value",
    facts.InputExpired: "not answered in time",
    facts.ConsentGranted: "consented",
    facts.ConsentRefused: "did not consent",
    facts.ConsentExpired: "did not consent in time",
}

_FORMATTERS: Mapping[type, Callable[[EventFormatter, Any], TranscriptLine | None]] = {
    facts.RunStarted: EventFormatter.format_run_started,
    facts.UserMessageReceived: EventFormatter.format_user_message,
    facts.ModelResponded: EventFormatter.format_model_response,
    facts.ModelFailed: EventFormatter.format_model_failure,
    facts.FinalAnswerRejected: EventFormatter.format_answer_refused,
    facts.ClaimContradicted: EventFormatter.format_conflict,
    facts.CallProposed: EventFormatter.remember_call,
    **dict.fromkeys(_DECISION_LABELS, EventFormatter.format_decision),
    facts.ApprovalVoided: EventFormatter.format_void,
    facts.CallObserved: EventFormatter.format_observation,
    facts.WarningRaised: EventFormatter.format_warning,
}


_WHO_CELLS, _OUTCOME_CELLS, _TYPE_CELLS = 13, 14, 25
_MIN_CELLS = 8
_GAP = "  "
#: For a pipe, which has no width.
_MAX_CHARS = 500


class RunPrinter:
    """Prints the transcript of a run."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._room = max(self._console.width, 40) if self._console.is_terminal else _MAX_CHARS

    def print_event(self, event: Event, started_at: int) -> None:
        number, seconds, kind, text = format_event_row(event, started_at)
        self._print(Text(f"{number}{_GAP}{seconds}{_GAP}{kind:{_TYPE_CELLS}}{_GAP}{make_visible(text)}"))

    def print_line(self, line: TranscriptLine) -> None:
        """Print a line. The outcome is never cut for the subject."""
        row = _fit_cell(line.who, _WHO_CELLS, pad=True).append(_GAP)
        outcome = Text(make_visible(line.outcome), style=line.style)
        about = self._room - row.cell_len
        if line.outcome:
            about -= max(outcome.cell_len, _OUTCOME_CELLS) + len(_GAP)
            outcome = Text(_GAP).append_text(outcome)
        what = _fit_cell(line.what, max(about, _MIN_CELLS), pad=bool(line.outcome) and self._console.is_terminal)
        what.stylize("" if line.outcome else line.style)
        self._print(row.append_text(what).append_text(outcome))

    def _print(self, line: Text) -> None:
        line.truncate(self._room, overflow="ellipsis")
        line.rstrip()
        self._console.print(line, soft_wrap=True)


def echo_json_line(value: Any) -> None:
    """Print one JSON value on one line, flushed for readers that follow."""
    text = json.dumps(msgspec.to_builtins(value, str_keys=True))
    print(text.replace("\x7f", "\\u007f"), flush=True)


def _fit_cell(text: str, cells: int, *, pad: bool) -> Text:
    fitted = Text(make_visible(text))
    fitted.truncate(cells, overflow="ellipsis", pad=pad)
    return fitted
