"""Format a run in short, event by event: who said what, and what became of each call. `runs events` has it all.

`RunPrinter` prints lines as they come, before it is known how wide the columns have to be.
"""

import json
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.text import Text

from ...domain import event as facts
from ...domain.event import Event
from ...domain.observation import Observation
from ...domain.state.ledger import ANSWER_TRIGGERS
from ...rendering.events import present_event
from ...rendering.text import shorten_line
from ...rendering.times import format_elapsed
from ..config.logs import shorten_id
from .event_format import format_event_row
from .formatting import NOTE_EVENTS, TONE_STYLES, summarize_arguments
from .output import make_visible


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
    """Formats events in order, from the first on: what a later event is about was said by an earlier one."""

    def __init__(self) -> None:
        self._calls: dict[str, _CallSummary] = {}

    def format_event(self, event: Event) -> TranscriptLine | None:
        """Return the line of an event; None where it has none."""
        line = None
        match event.fact:
            case facts.CallProposed() as fact:
                raw_input = fact.raw_input if not fact.raw_artifact_id else f"{fact.raw_bytes:,} bytes"
                self._calls.setdefault(fact.call_id, _CallSummary(fact.tool, summarize_arguments(raw_input)))
            case facts.RunStarted() as fact if fact.forked_from:
                line = TranscriptLine("fork", f"of {shorten_id(fact.forked_from)} at event {fact.forked_at}")
            case facts.UserMessageReceived() as fact:
                line = TranscriptLine(fact.by or "you", shorten_line(fact.text), style="bold")
            case facts.ModelResponded() as fact if fact.text.strip():
                line = TranscriptLine("model", shorten_line(fact.text))
            case facts.CallObserved() as fact:
                line = self._format_observation(fact.observation)
            case fact if type(fact) in ANSWER_TRIGGERS:
                line = self._format_answer(fact)
            case fact if isinstance(fact, NOTE_EVENTS):
                line = _format_note(event)
            case _:
                pass
        return line

    def _format_answer(self, fact: Any) -> TranscriptLine:
        reason = f": {shorten_line(fact.answer.reason, 80)}" if fact.answer.reason else ""
        outcome = f"{present_event(fact).title.lower()}{reason}"
        return TranscriptLine(
            fact.answer.by or "unknown", " ".join(self._find_call(fact.call_id)).strip(), outcome, "bold"
        )

    def _format_observation(self, observation: Observation) -> TranscriptLine:
        tool, about = self._find_call(observation.call_id)
        code = "ok" if observation.ok else "failed" if observation.code == "ok" else observation.code
        outcome = " ".join(part for part in (code, format_elapsed(observation.duration_ms)) if part)
        return TranscriptLine(tool, about, outcome, "green" if observation.ok else "red")

    def _find_call(self, call_id: str) -> _CallSummary:
        return self._calls.get(call_id, _CallSummary(call_id, ""))


def _format_note(event: Event) -> TranscriptLine:
    shown, who = present_event(event.fact), event.type.partition(".")[0]
    title = "" if who == shown.title.lower() else f"{shown.title}: "
    return TranscriptLine(who, shorten_line(title + shown.detail), style=TONE_STYLES[shown.tone])


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
