"""Format events, states and calls of a run. The transcript is the run in short: who said what, and what became of each
call. `runs events` has it all.

`RunPrinter` prints lines as they come, before it is known how wide the columns have to be.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import msgspec
from rich.console import Console
from rich.text import Text

from ...domain import event as facts
from ...domain.event import Event
from ...domain.json import JsonObject
from ...domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ...domain.observation import Observation
from ...domain.state.ledger import ANSWER_TRIGGERS, Ledger
from ...rendering.events import Tone, describe_channel, get_call_id, present_event
from ...rendering.run_states import RUN_STATES, StateTone
from ...rendering.text import shorten_line, to_compact_json
from ...rendering.times import format_elapsed
from ..config.logs import shorten_id
from .output import make_visible, truncate_text

_STATE_STYLES: Mapping[StateTone, str] = {
    "active": "cyan",
    "warning": "yellow",
    "success": "green",
    "danger": "red",
    "neutral": "",
}
TONE_STYLES: Mapping[Tone, str] = {"neutral": "", "success": "green", "warning": "yellow", "danger": "red"}
QUESTION_EVENTS = (facts.ApprovalRequested, facts.InputRequested, facts.ConsentRequested)
#: Events that are shown by their title and detail alone.
NOTE_EVENTS = (
    facts.ModelFailed,
    facts.ContextTrimmed,
    facts.ContextCompacted,
    facts.FinalAnswerRejected,
    facts.ClaimContradicted,
    facts.ApprovalVoided,
    facts.WarningRaised,
)
#: The arguments that say most about a call, the most important first.
_SUMMARY_ARGUMENTS = ("command", "path", "file_path", "pattern", "url", "query", "name", "task", "to")


def style_state(state: str) -> Text:
    """Return the state of a run in its colour."""
    return Text(state, style=_STATE_STYLES[RUN_STATES[state].tone])


def summarize_arguments(arguments: Any) -> str:
    """Return a summary of a call's arguments."""
    if not isinstance(arguments, dict):
        return "" if arguments is None else shorten_line(str(arguments))
    values = cast(dict[str, Any], arguments)
    for name in _SUMMARY_ARGUMENTS:
        if isinstance(value := values.get(name), str) and value:
            return shorten_line(value)
    return shorten_line(", ".join(f"{name} {to_compact_json(value)}" for name, value in values.items()))


_MAX_CALLS = 20
_MAX_MESSAGES = 8


def format_event_row(event: Event, started_at: int) -> tuple[str, str, str, str]:
    """Return its number, seconds since the start, its type, and its call with what there is to say."""
    text = f"{get_call_id(event.fact)} {present_event(event.fact).detail}".strip()
    return f"{event.seq:5}", f"{(event.at - started_at) / 1e9:7.3f}", event.type, truncate_text(text)


def format_event(event: Event) -> list[str]:
    """Return everything that is recorded, a line per field."""
    fields: dict[str, Any] = msgspec.to_builtins(event.fact, str_keys=True)
    del fields["type"]
    texts = {name: value if isinstance(value, str) else to_compact_json(value) for name, value in fields.items()}
    return [
        *([f"  about: {event.correlation_id}"] if event.correlation_id else []),
        *([] if event.causation_id is None else [f"  because of event: {event.causation_id}"]),
        *(f"  {name}: {truncate_text(text)}" for name, text in texts.items()),
    ]


def state_to_json(ledger: Ledger) -> JsonObject:
    """Return the state of a run, for JSON output."""
    return {
        "run": str(ledger.state),
        "next_event": ledger.next_seq,
        "calls": {
            call_id: {"tool": call.tool, "state": str(call.state), "ok": call.ok}
            for call_id, call in ledger.calls.items()
        },
        "questions": {
            action_id: {"tool": action.question.tool_name, "state": str(action.state), "prompt": action.question.prompt}
            for action_id, action in ledger.actions.items()
        },
        "conversation": msgspec.to_builtins(ledger.dialogue.messages),
    }


def format_state(ledger: Ledger) -> list[str]:
    """Return the state of a run: its calls, its questions, and the end of what the model would be sent now."""
    calls, messages = list(ledger.calls.items()), ledger.dialogue.messages
    questions = [action.question for action in ledger.actions.values() if action.is_open]
    return [
        f"  run: {ledger.state}",
        *_count_earlier(len(calls) - _MAX_CALLS, "calls"),
        *(f"  {call_id}: {call.tool}, {call.state}{_format_ok(call)}" for call_id, call in calls[-_MAX_CALLS:]),
        *(f"  waits: {question.action_id}: {truncate_text(question.prompt)}" for question in questions),
        *_count_earlier(len(messages) - _MAX_MESSAGES, "messages"),
        *map(_format_message, messages[-_MAX_MESSAGES:]),
    ]


def _count_earlier(count: int, what: str) -> list[str]:
    return [f"  ... {count:,} {what} before"] if count > 0 else []


def _format_message(message: Message) -> str:
    match message:
        case UserMessage():
            return f"  person: {truncate_text(message.text)}"
        case ToolMessage():
            return f"  tools: {message.call_id} {truncate_text(message.text)}"
        case AssistantMessage():
            calls = f"calls {', '.join(call.tool for call in message.calls)}" if message.calls else ""
            return f"  model: {truncate_text(' '.join(part for part in (message.text, calls) if part))}"


def _format_ok(call: Any) -> str:
    return "" if call.observed_seq < 0 else ", ok" if call.ok else ", not ok"


class TranscriptLine(msgspec.Struct, frozen=True):
    """One line: author or tool, subject, and outcome. All three may be untrusted text."""

    who: str
    what: str = ""
    outcome: str = ""
    style: str = ""
    #: Of a call that is over.
    observation: Observation | None = None


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
                shown, who = present_event(fact), event.type.partition(".")[0]
                title = "" if who == shown.title.lower() else f"{shown.title}: "
                line = TranscriptLine(who, shorten_line(title + shown.detail), style=TONE_STYLES[shown.tone])
            case _:
                pass
        return line

    def _format_answer(self, fact: Any) -> TranscriptLine:
        reason = f": {shorten_line(fact.answer.reason, 80)}" if fact.answer.reason else ""
        where = describe_channel(fact.answer)
        outcome = f"{present_event(fact).title.lower()}{f', {where}' if where else ''}{reason}"
        return TranscriptLine(
            fact.answer.by or "unknown", " ".join(self._find_call(fact.call_id)).strip(), outcome, "bold"
        )

    def _format_observation(self, observation: Observation) -> TranscriptLine:
        tool, about = self._find_call(observation.call_id)
        code = "ok" if observation.ok else "failed" if observation.code == "ok" else observation.code
        outcome = " ".join(part for part in (code, format_elapsed(observation.duration_ms)) if part)
        return TranscriptLine(tool, about, outcome, "green" if observation.ok else "red", observation)

    def _find_call(self, call_id: str) -> _CallSummary:
        return self._calls.get(call_id, _CallSummary(call_id, ""))


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
        """Print an event as a row: number, time since the start, type and text."""
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

    def print_rows(self, rows: Iterable[Text]) -> None:
        """Print rows that are formatted already."""
        for row in rows:
            self._console.print(row, soft_wrap=True)

    @property
    def width(self) -> int:
        """Number of cells of a row."""
        return self._room

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
