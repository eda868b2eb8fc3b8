"""The live view of a run: streamed model output, a line per call, and rows for running ones.

It has two sources: the log (`on_event`) and the model stream (`on_model_event`), and the log lags a moment behind. So
streamed output waits until the log has reached the request that it answers: then everything is shown in order. The
output for one request is one `_StreamedAnswer`.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import msgspec
from rich.text import Text

from ...domain import event as facts
from ...domain.event import Event, Fact
from ...domain.messages import Usage
from ...domain.observation import Observation
from ...domain.rendering import render_for_user
from ...domain.state.ledger import ANSWER_TRIGGERS
from ...models.interface import ModelEvent, StreamFinished, StreamRestarted, TextDelta
from ...rendering.escaping import output_lines
from ...rendering.events import describe_answerer, present_event
from ...rendering.text import pluralize, shorten_line
from ...rendering.times import format_duration, format_elapsed
from ..config.logs import add_log_option, shorten_artifact_id
from .live_region import MARK_CELLS, LiveRegion, StreamedText, mark_row, neutralize_text, wrap_line
from .markdown import DIFF_STYLES, MarkdownRows
from .output import make_visible
from .transcript import NOTE_EVENTS, QUESTION_EVENTS, TONE_STYLES, summarize_arguments

MAX_DIFF_LINES = 12
#: The last lines of a command's output that stay on the terminal.
MAX_OUTPUT_LINES = 10
_ALL_LINES = 1_000_000
#: The key that shows more output, for people.
OUTPUT_KEY = "Ctrl-O"
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 10
#: From so long on a running call shows its output.
_PROGRESS_AFTER_MS = 500
_INDENT = " " * 21
#: Before each line of an output. No row of ours begins like that.
_OUTPUT_MARK = "    | "
#: The artifacts that hold the output of a command.
_OUTPUT_KIND = "command_output"
_MAX_DETAIL_ROWS = 3
_LABEL_CHARS = 9
_TIME_CHARS = 7

#: What became of a call, by its code: the word, and its colour.
_OUTCOME_LABELS: Mapping[str, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "policy_denied": ("denied", "red"),
    "budget_exceeded": ("over", "red"),
    "user_denied": ("refused", "red"),
    "approval_unavailable": ("refused", "red"),
    "approval_expired": ("expired", "red"),
    "guardrail_refused": ("denied", "red"),
    "cancelled": ("cancelled", "yellow"),
    "cancelled_before_start": ("cancelled", "yellow"),
    "skipped": ("skipped", "yellow"),
    "timed_out": ("timed out", "red"),
    "outcome_unknown": ("unknown", "bold red"),
}


class LiveCall(msgspec.Struct):
    """A call that has no outcome yet."""

    tool: str
    summary: str
    #: When it was started, in nanoseconds since 1970; 0: it was not.
    started_at: int = 0
    is_waiting: bool = False
    #: The last lines of its output, or what it said last.
    progress: str = ""

    def rows(self, now: int) -> list[Text]:
        """Return the rows of the call, without its output; empty: there is nothing to see yet."""
        if self.is_waiting:
            return [_format_row("waits", "yellow", "", self.tool, self.summary)]
        if not self.started_at:
            return []
        elapsed_ms = max(0, now - self.started_at) / 1e6
        frame = SPINNER[int(elapsed_ms / 1e3 * _FRAMES_PER_SECOND) % len(SPINNER)]
        return [_format_row(frame, "cyan", f"{elapsed_ms / 1e3:,.0f} s", self.tool, self.summary)]

    def output_rows(self, now: int, max_rows: int) -> list[Text]:
        """Return the last lines of the output of a running call."""
        is_seen = self.started_at and now - self.started_at >= _PROGRESS_AFTER_MS * 1_000_000
        if not is_seen or self.is_waiting or max_rows < 1:
            return []
        return _mark_output("\n".join(self.progress.strip("\r\n").split("\n")[-max_rows:]))[-max_rows:]


def format_finished_call(
    call: LiveCall, observation: Observation, width: int, log_path: Path | None, max_lines: int
) -> list[Text]:
    """Format a call with its outcome; a command also with the end of its output."""
    label, style = _OUTCOME_LABELS.get("ok" if observation.ok else observation.code, ("failed", "red"))
    lines = [_format_row(label, style, format_elapsed(observation.duration_ms), call.tool, call.summary)]
    if not observation.ok or observation.kind == "verification":
        is_repeated = observation.user_text.startswith("$ ")  # the line above has the command already
        shown = msgspec.structs.replace(observation, user_text="") if is_repeated else observation
        rows = wrap_line(render_for_user(shown), max(width - len(_INDENT), 20))
        if len(rows) > _MAX_DETAIL_ROWS:
            rows[_MAX_DETAIL_ROWS - 1] += "..."
        detail_style = "dim" if observation.ok else style
        lines += [Text(f"{_INDENT}{row}", detail_style) for row in rows[:_MAX_DETAIL_ROWS]]
    if observation.ok and observation.content is not None and observation.content.format == "diff":
        lines += format_diff(observation.content.text, observation.truncated)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return [*lines, *format_output(observation, width, log_path, max_lines)] if is_command(observation) else lines


def is_command(observation: Observation) -> bool:
    """Return True if the call ran a command, or read the output of one."""
    return not {"command", "task"}.isdisjoint(observation.facts)


def format_output(observation: Observation, width: int, log_path: Path | None, max_lines: int) -> list[Text]:
    """Return the last lines of an output, and how to see the rest of it."""
    rows = _mark_output(observation.content.text if observation.content else "")
    more, rows = len(rows) - max_lines, rows[-max_lines:]
    for row in rows:
        row.truncate(width, overflow="ellipsis")
    left = f"... {pluralize(more, 'more line')}" if more > 0 else ""
    if observation.truncated and observation.size is not None:
        left = f"... {observation.size.produced:,} bytes in all"
    stored = next((each.id for each in observation.artifacts if each.kind == _OUTPUT_KIND), "")
    if left and stored:
        left += f": {add_log_option(f'interlock artifacts show {shorten_artifact_id(stored)}', log_path)}"
    return [*rows, Text(f"{_OUTPUT_MARK[:-2]}{left}", "dim")] if left else rows


def _mark_output(text: str) -> list[Text]:
    text = text.strip("\r\n")
    return [Text(f"{_OUTPUT_MARK}{line}", "dim") for line in output_lines(text)] if text else []


def format_usage(usage: Usage) -> str:
    """Format tokens and cost; empty where none were counted."""
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out" if usage.input_tokens else ""
    return " · ".join(filter(None, (tokens, f"cost {usage.cost:,.4f}" if usage.cost else "")))


def format_diff(
    diff: str, was_cut: bool = False, *, max_lines: int = MAX_DIFF_LINES, with_names: bool = False
) -> list[Text]:
    """Return the first lines of a diff, without its two lines of names or with them."""
    lines = neutralize_text(diff).split("\n")
    if not with_names:
        lines = [line for line in lines if not line.startswith(("--- ", "+++ "))]
    indent = "  " if with_names else _INDENT
    shown = [Text(f"{indent}{line}", DIFF_STYLES.get(line[:1], "dim")) for line in lines[:max_lines]]
    more = len(lines) - max_lines
    if more > 0 or was_cut:
        left = f"{more:,} more lines" if more > 0 else "more"
        shown.append(Text(f"{indent}... {left}; the whole diff is kept with the run", "dim"))
    return shown


def _format_row(label: str, style: str, time: str, tool: str, summary: str) -> Text:
    row = Text("  ")
    row.append(f"{label:{_LABEL_CHARS}}", style)
    row.append(f"{time:>{_TIME_CHARS}}   ", "dim")
    row.append(make_visible(tool), "bold")
    return row.append(f" {make_visible(summary)}" if summary else "")


_MAX_ROWS = 8
_MIN_ROWS = 3
#: Rows of the terminal that the view leaves to what stays.
_FREE_ROWS = 3
_HANGING = "    "
_MAX_EARLY_PROGRESS = 100
_MAX_PROGRESS_CHARS = 6_000
_MAX_NAME_CHARS = 60
#: A model that takes longer is seen to be waited for.
_MODEL_WAIT_NS = 500_000_000
#: How far the log may be behind.
_LOG_DELAY_SECONDS = 2.0


class _StreamedAnswer:
    """The streamed response to one request, as far as it came, with the parts not shown yet."""

    def __init__(self) -> None:
        self.pieces: list[TextDelta | StreamRestarted] = []
        self.is_over = False
        self.has_text = False


class LiveView:
    """The live view of a run on a terminal."""

    def __init__(
        self,
        region: LiveRegion,
        now: Callable[[], int] = time.time_ns,
        *,
        mode: str = "",
        log_path: Path | None = None,
        max_output_lines: int = MAX_OUTPUT_LINES,
    ) -> None:
        """Show a run in a region. `mode`: for the status line, which there is none without; `log_path`: for commands
        to type next.
        """
        self._region = region
        self._now = now
        self._mode = mode
        self._log_path = log_path
        self._max_output_lines = max_output_lines
        #: Outputs are shown in full.
        self._is_expanded = False
        #: The last output of which only the end was shown.
        self._cut_output: Observation | None = None
        self._usage = Usage()
        #: When the first event was shown; 0: nothing was, or the run is no longer driven.
        self._shown_since = 0
        self._calls: dict[str, LiveCall] = {}
        #: What calls said before the log came to them.
        self._early_progress: dict[str, str] = {}
        self._streamed: deque[_StreamedAnswer] = deque()
        #: Since when the model is asked; 0: it is not, according to the log.
        self._asked_at = 0
        self._text = StreamedText(region.width - MARK_CELLS)
        self._markdown = MarkdownRows()
        #: Keys of the terminal reach the view.
        self.has_keys = False
        #: Questions that were answered at this terminal.
        self.answered_locally: set[str] = set()
        #: Set: the log has come to the question.
        self._questions: dict[str, asyncio.Event] = {}
        self._handlers: Mapping[type, Callable[[Any, Event], None]] = {
            facts.ModelRequested: self._on_model_request,
            facts.ModelResponded: self._on_model_response,
            facts.CallProposed: self._on_intent,
            **dict.fromkeys(QUESTION_EVENTS, self._on_question),
            **dict.fromkeys(ANSWER_TRIGGERS, self._on_decision),
            facts.InvocationStarted: self._on_started,
            facts.InvocationSuspended: self._on_suspended,
            facts.CallObserved: self._on_observation,
            **dict.fromkeys(NOTE_EVENTS, self._on_note),
            facts.ContextCompacted: self._on_summary,
            facts.ModelFailed: self._on_model_failure,
        }

    @property
    def is_animated(self) -> bool:
        """True if the terminal can redraw the region."""
        return self._region.is_animated

    def suspended(self) -> AbstractContextManager[None]:
        """Suspend the view while something else uses the terminal: output is buffered."""
        return self._region.suspended()

    def print_note(self, text: str, style: str = "") -> None:
        """Print a note, which may hold untrusted text, after the model output so far."""
        self._finish_text()
        core = text.lstrip(" ")
        indent = text[: len(text) - len(core)]
        line, room = make_visible(core), self._region.width - len(indent)
        first = wrap_line(line, room)[0]
        rest = line[len(first) :].lstrip(" ")
        # Text from elsewhere may reach the next row, which must not look like one of ours.
        more = wrap_line(rest, room - len(_HANGING)) if rest else []
        self._region.print_lines(Text(indent + first, style), *(Text(indent + _HANGING + row, style) for row in more))

    def print_lines(self, *lines: Text) -> None:
        """Print lines above the live region."""
        self._region.print_lines(*lines)

    async def wait_until_shown(self, action_id: str) -> None:
        """Wait until everything before this question was shown, for a moment at most."""
        shown = self._questions.setdefault(action_id, asyncio.Event())
        with suppress(TimeoutError):
            await asyncio.wait_for(shown.wait(), _LOG_DELAY_SECONDS)

    def on_model_event(self, event: ModelEvent) -> None:
        """Show an event of the model stream."""
        if not self._streamed or self._streamed[-1].is_over:
            self._streamed.append(_StreamedAnswer())
        answer = self._streamed[-1]
        match event:
            case TextDelta() | StreamRestarted():
                answer.pieces.append(event)
            case StreamFinished():
                answer.is_over = True
            case _:
                pass
        with self._region.one_frame():
            self._print_streamed()

    def on_progress(self, call_id: str, message: str) -> None:
        """Show the progress of a running call, from any thread, with the next frame."""
        call, text = self._calls.get(call_id), message[-_MAX_PROGRESS_CHARS:]
        if call is not None:
            call.progress = text
        elif len(self._early_progress) < _MAX_EARLY_PROGRESS:  # The log is a moment behind.
            self._early_progress[call_id] = text

    def on_event(self, event: Event) -> None:
        """Show an event of the log."""
        show = self._handlers.get(type(event.fact))
        self._shown_since = self._shown_since or self._now()
        with self._region.one_frame():
            if show is not None:
                show(event.fact, event)
            self.refresh()
        if isinstance(event.fact, QUESTION_EVENTS):
            self._region.notify(f"{event.fact.question.tool_name} waits for an answer")

    def restore_event(self, event: Event) -> None:
        """Restore an earlier event without showing it, so that open calls have a name."""
        if isinstance(event.fact, (facts.CallProposed, *QUESTION_EVENTS)):
            self._handlers[type(event.fact)](event.fact, event)
        elif isinstance(event.fact, facts.CallObserved):
            self._calls.pop(event.fact.observation.call_id, None)
        elif isinstance(event.fact, facts.ModelResponded | facts.ContextCompacted):
            self._usage += event.fact.usage

    def refresh(self) -> None:
        """Draw the running calls as they are now."""
        now = self._now()
        status = self._format_status(now)
        most = self._region.height if self._is_expanded else _MAX_ROWS
        max_rows = max(_MIN_ROWS, min(most, self._region.height - _FREE_ROWS - len(status)))
        running = [(call, row) for call in self._calls.values() for row in call.rows(now)]
        if len(running) > max_rows:
            rows = [*(row for _, row in running[: max_rows - 1]), Text("  ... and more", "dim")]
        else:
            room = (max_rows - len(running)) // max(len(running), 1)
            rows = [each for call, row in running for each in (row, *call.output_rows(now, room))]
        if self._text.partial_row:
            rows.insert(0, mark_row(self._markdown.preview(self._text.partial_row)))
        elif self._asked_at and not rows and now - self._asked_at >= _MODEL_WAIT_NS:
            seconds = (now - self._asked_at) / 1e9
            frame = SPINNER[int(seconds * _FRAMES_PER_SECOND) % len(SPINNER)]
            rows = [Text(f"  {frame}        {seconds:,.0f} s   waiting for the model", "dim")]
        self._region.draw([*rows, *status])

    def toggle_output(self) -> None:
        """Show outputs in full from now on, beginning with the last one, or only their ends again."""
        self._is_expanded = not self._is_expanded
        last, self._cut_output = self._cut_output, None
        with self._region.one_frame():
            if self._is_expanded:
                self.print_note(f"  All of each output is shown. {OUTPUT_KEY} shows the last lines.", "dim")
            else:
                self.print_note(f"  The last lines of each output are shown. {OUTPUT_KEY} shows all.", "dim")
            if last is not None and self._is_expanded:
                self._region.print_lines(*format_output(last, self._region.width, self._log_path, _ALL_LINES))
            self.refresh()

    def stop(self) -> None:
        """Stop the view: the run is no longer driven."""
        self._region.clear()
        self._finish_text()
        self._streamed.clear()
        self._early_progress.clear()
        for call in self._calls.values():
            call.started_at = 0
        self._asked_at = self._shown_since = 0

    def _format_status(self, now: int) -> list[Text]:
        if not self._mode or not self._shown_since:
            return []
        hint = f"{OUTPUT_KEY}: {'less' if self._is_expanded else 'more'} output" if self.has_keys else ""
        parts = (self._mode, format_usage(self._usage), format_duration(now - self._shown_since), hint)
        return [Text(f"  {' · '.join(filter(None, parts))}", "dim")]

    def _print_streamed(self) -> None:
        if not self._asked_at or not self._streamed:
            return
        answer = self._streamed[0]
        for piece in answer.pieces:
            if isinstance(piece, StreamRestarted):
                self._finish_text()
                self.print_note(f"(the answer broke off: {piece.reason} It is asked for again.)", "yellow")
            else:
                answer.has_text = True
                self._print_speech(self._text.add(piece.text))
        if answer.pieces:
            answer.pieces.clear()
            self.refresh()

    def _print_speech(self, rows: list[str]) -> None:
        is_styled = self._region.is_terminal
        self._region.print_lines(*(mark_row(self._markdown.style(row) if is_styled else row) for row in rows))

    def _finish_text(self) -> None:
        self._print_speech(self._text.end())
        self._markdown = MarkdownRows()

    def _on_model_request(self, fact: facts.ModelRequested, event: Event) -> None:
        self._asked_at = event.at
        self._print_streamed()

    def _on_model_response(self, fact: facts.ModelResponded, event: Event) -> None:
        self._print_streamed()
        answer = self._streamed.popleft() if self._streamed else _StreamedAnswer()
        self._asked_at = 0
        self._usage += fact.usage
        if fact.text and not answer.has_text:
            self._print_speech(self._text.add(fact.text))
        self._finish_text()

    def _on_model_failure(self, fact: facts.ModelFailed, event: Event) -> None:
        self._streamed.clear()
        self._asked_at = 0
        self._finish_text()
        self._on_note(fact, event)

    def _on_summary(self, fact: facts.ContextCompacted, event: Event) -> None:
        self._asked_at = 0
        self._usage += fact.usage
        self._on_note(fact, event)

    def _on_intent(self, fact: facts.CallProposed, event: Event) -> None:
        if not fact.duplicate:
            raw_input = fact.raw_input if not fact.raw_artifact_id else f"{fact.raw_bytes:,} bytes"
            self._calls[fact.call_id] = LiveCall(
                fact.tool, summarize_arguments(raw_input), progress=self._early_progress.pop(fact.call_id, "")
            )

    def _on_question(self, fact: Any, event: Event) -> None:
        self._update_call(fact.call_id, is_waiting=True)
        self._questions.setdefault(fact.question.action_id, asyncio.Event()).set()

    def _on_decision(self, fact: Any, event: Event) -> None:
        self._update_call(fact.call_id, is_waiting=False)
        if fact.action_id in self.answered_locally:
            return
        reason = f" ({fact.answer.reason})" if fact.answer.reason else ""
        by = f" {who}" if (who := describe_answerer(fact.answer)) else ""
        call, shown = self._calls.get(fact.call_id, LiveCall("", "")), present_event(fact)
        self.print_note(f"  {shown.title}{by}{reason}: {call.tool} {shorten_line(call.summary, 40)}", "yellow")

    def _on_started(self, fact: facts.InvocationStarted, event: Event) -> None:
        self._update_call(fact.call_id, is_waiting=False, started_at=event.at)

    def _on_suspended(self, fact: facts.InvocationSuspended, event: Event) -> None:
        self._update_call(fact.call_id, is_waiting=True, started_at=0)

    def _on_observation(self, fact: facts.CallObserved, event: Event) -> None:
        observation = fact.observation
        call = self._calls.pop(observation.call_id, LiveCall(observation.tool, ""))
        width, log_path = self._region.width, self._log_path
        max_lines = _ALL_LINES if self._is_expanded else self._max_output_lines
        self._region.print_lines(*format_finished_call(call, observation, width, log_path, max_lines))
        if is_command(observation):
            self._cut_output = None if self._is_expanded else observation

    def _on_note(self, fact: Fact, event: Event) -> None:
        shown = present_event(fact)
        self.print_note(f"  {shown.title}: {shown.detail}", TONE_STYLES[shown.tone])

    def _update_call(self, call_id: str, **changes: Any) -> None:
        for name, value in changes.items() if call_id in self._calls else ():
            setattr(self._calls[call_id], name, value)


def format_speech(author: str, text: str, width: int) -> list[Text]:
    """Format an earlier message for a conversation that is shown again."""
    rows = [row for line in neutralize_text(text).split("\n") for row in wrap_line(line, width - MARK_CELLS)]
    return [Text(make_visible(shorten_line(author, _MAX_NAME_CHARS)), "bold"), *map(mark_row, rows)]
