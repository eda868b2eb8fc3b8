"""The transcript of a run: its turns for the page. Long texts are cut, and say so; the call has them in full."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ....domain.messages import Usage
from ....domain.outcome import Phase
from ....domain.state.lifecycle import RunState
from ....history.call_view import CallView, QuestionView
from ....history.turns import CallEntry, EndEntry, Entry, ModelEntry, NoteEntry, Turn, UserEntry
from ....rendering.edit_diff import DiffLine, build_edit_diff, diff_json, parse_unified_diff
from ....rendering.events import EventPresentation, get_call_id, present_event
from ....rendering.run_states import RUN_STATES, DisplayState, to_display_state
from ....rendering.text import shorten
from ..markup import OutlineLine, build_outline
from .call import outline_value
from .durations import format_span

MAX_LINES = 40
MAX_TEXT_LINES = 400
MAX_LINE_CHARS = 2_000

_Line = TypeVar("_Line")


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """The first lines of a text, of a diff or of arguments, and how many more there are."""

    lines: Sequence[str] | Sequence[DiffLine] | Sequence[OutlineLine] = ()
    more: int = 0


class TranscriptMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a user, or an answer of the model."""

    kind: str
    seq: int
    at: int
    by: str
    text: Excerpt
    took: str = ""
    usage: Usage = Usage()
    part_count: int = 0
    problem: str = ""
    is_open: bool = False


class TranscriptQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question about a call: who answered what, and how long it waited."""

    asked: QuestionView
    waited: str
    #: What it does to a file, where its arguments say that.
    path: str
    edit: Excerpt
    #: What the person wrote instead.
    edited: Excerpt
    value: Excerpt


class TranscriptCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call in the transcript."""

    kind: str = "call"
    view: CallView
    #: What became of it: the words, and a colour.
    state: str
    tone: str
    took: str
    is_running: bool
    arguments: Excerpt
    questions: list[TranscriptQuestion]
    diff: Excerpt
    output: Excerpt
    problem: str
    child_run_id: str = ""


class TranscriptNote(msgspec.Struct, frozen=True, kw_only=True):
    """Another event: a warning, an end, a result of an earlier call."""

    kind: str
    seq: int
    at: int
    presentation: EventPresentation
    text: Excerpt
    call_id: str = ""


Panel = TranscriptMessage | TranscriptCall | TranscriptNote


class TurnPanel(msgspec.Struct, frozen=True, kw_only=True):
    """A turn of the transcript."""

    seq: int
    last_seq: int
    panels: list[Panel]


def build_transcript(turns: Sequence[Turn]) -> list[TurnPanel]:
    """Build the transcript of some turns."""
    return [
        TurnPanel(seq=turn.seq, last_seq=turn.last_seq, panels=[_build_panel(entry) for entry in turn.entries])
        for turn in turns
    ]


def describe_call_state(view: CallView) -> tuple[str, str]:
    """Return what became of a call, and the tone of it."""
    observation = view.execution.observation
    if observation is not None:
        return _describe_outcome(view)
    if any(question.status == "PENDING" for question in view.person_view.questions):
        return "Waits for a person", "warning"
    invocations = view.execution.invocations
    if invocations and invocations[-1].ended is None:
        return ("Waits for the run inside", "warning") if invocations[-1].child_run_id else ("Running", "active")
    return ("Ended" if invocations else "Proposed"), "neutral"


def _describe_outcome(view: CallView) -> tuple[str, str]:
    observation = view.execution.observation
    failure = None if observation is None else observation.failure
    if failure is not None and failure.phase is Phase.PERMIT:
        state = to_display_state(RunState.FAILED, failure.code)
        return ("Refused", "warning") if state is DisplayState.FAILED else RUN_STATES[state][:2]
    is_ok = observation is not None and observation.ok
    return ("Done", "success") if is_ok else ("Failed", "danger")


def _build_panel(entry: Entry) -> Panel:
    match entry:
        case UserEntry():
            text = _excerpt_text(entry.text)
            count = entry.part_count
            return TranscriptMessage(kind="user", seq=entry.seq, at=entry.at, by=entry.by, text=text, part_count=count)
        case ModelEntry():
            return _build_model(entry)
        case CallEntry():
            return _build_call(entry.view)
        case NoteEntry():
            event = entry.event
            shown = present_event(event.fact)
            return TranscriptNote(
                kind="note",
                seq=event.seq,
                at=event.at,
                presentation=shown,
                text=_excerpt_text(shown.detail),
                call_id=get_call_id(event.fact),
            )
        case EndEntry():
            event = entry.event
            text = _excerpt_text(entry.message)
            return TranscriptNote(
                kind="end", seq=event.seq, at=event.at, presentation=present_event(event.fact), text=text
            )


def _build_model(entry: ModelEntry) -> TranscriptMessage:
    return TranscriptMessage(
        kind="summary" if entry.is_summary else "model",
        seq=entry.seq,
        at=entry.started_at,
        by=entry.model or entry.agent,
        text=_excerpt_text(entry.text),
        took=format_span(entry.ended_at - entry.started_at) if entry.ended_at else "",
        usage=entry.usage,
        problem=shorten(entry.problem, MAX_LINE_CHARS),
        is_open=not entry.ended_at,
    )


def _build_call(view: CallView) -> TranscriptCall:
    observation, invocations = view.execution.observation, view.execution.invocations
    state, tone = describe_call_state(view)
    content = None if observation is None else observation.content
    is_diff = content is not None and content.format == "diff"
    failure = None if observation is None else observation.failure
    ran = next((each for each in reversed(invocations) if each.ended is not None), None)
    return TranscriptCall(
        view=view,
        state=state,
        tone=tone,
        took="" if ran is None or ran.ended is None else format_span(int(ran.ended.duration_ms * 1_000_000)),
        is_running=state == "Running",
        arguments=_excerpt(outline_value(view.model_view.arguments), MAX_LINES),
        questions=[_build_question(asked) for asked in view.person_view.questions],
        diff=_excerpt(parse_unified_diff(content.text), MAX_LINES) if content is not None and is_diff else Excerpt(),
        output=_excerpt_text(content.text, MAX_LINES) if content is not None and not is_diff else Excerpt(),
        problem="" if failure is None else shorten(f"{failure.code}: {failure.message}", MAX_LINE_CHARS),
        child_run_id=next((each.child_run_id for each in reversed(invocations) if each.child_run_id), ""),
    )


def _build_question(asked: QuestionView) -> TranscriptQuestion:
    answer, arguments = asked.answer, asked.question.arguments
    edit = build_edit_diff(arguments, asked.question.bound.surroundings.files)
    edited = [] if answer is None or answer.arguments is None else diff_json(arguments, answer.arguments)
    value = [] if answer is None or answer.value is None else build_outline({"value": answer.value})
    return TranscriptQuestion(
        asked=asked,
        waited=format_span(asked.answered_at - asked.asked_at) if asked.answered_at else "",
        path="" if edit is None else edit.path,
        edit=Excerpt() if edit is None else _excerpt(edit.lines, MAX_LINES),
        edited=_excerpt(edited, MAX_LINES),
        value=_excerpt(value, MAX_LINES),
    )


def _excerpt_text(text: str, max_lines: int = MAX_TEXT_LINES) -> Excerpt:
    if not text.strip():
        return Excerpt()
    lines = text.split("\n", max_lines)
    more = 1 + lines[max_lines].count("\n") if len(lines) > max_lines else 0
    return Excerpt(lines=[shorten(line, MAX_LINE_CHARS) for line in lines[:max_lines]], more=more)


def _excerpt(lines: Sequence[_Line], max_lines: int) -> Excerpt:
    shown = [_shorten_line(line) for line in lines[:max_lines]]
    return Excerpt(lines=shown, more=max(0, len(lines) - max_lines))  # pyright: ignore[reportArgumentType]  # of one kind


def _shorten_line(line: _Line) -> _Line:
    match line:
        case DiffLine() if len(line.text) > MAX_LINE_CHARS:
            return msgspec.structs.replace(line, text=shorten(line.text, MAX_LINE_CHARS))
        case OutlineLine() if len(line.rest) > MAX_LINE_CHARS:
            return msgspec.structs.replace(line, rest=shorten(line.rest, MAX_LINE_CHARS))
        case _:
            return line
