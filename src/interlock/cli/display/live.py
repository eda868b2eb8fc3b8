"""The live view of a run: what the model says as it says it, a line per call, and rows for what is under way.

It is fed from two sides. The log tells what happened (`event`), the model is heard directly (`heard`), and the log is a
moment behind. So what is heard waits until the log has come to the request that it answers: then everything is shown in
the order in which it happened. What one request was answered with is one `_Heard`.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

from rich.text import Text

from ...domain import event as facts
from ...domain.event import Event
from ...models.interface import Finished, ModelEvent, Restarted, TextPiece
from .formatting import acts_on, first_words
from .live_calls import SPINNER, LiveCall, ended_lines
from .live_region import Region
from .live_text import MARK_CELLS, StreamedText, harmless, marked, rows_of
from .output import visible_line

_FRAMES_PER_SECOND = 10
_MAX_ROWS = 8
_HANGING = "    "
_MAX_EARLY = 100
_MAX_PROGRESS_CHARS = 500
_MAX_NAME_CHARS = 60
#: A model that takes longer is seen to be waited for.
_PATIENCE_NS = 500_000_000
#: How far the log may be behind.
_BEHIND_SECONDS = 2.0


class _Heard:
    """What one request was answered with, as far as it came. Pieces that were not shown yet."""

    def __init__(self) -> None:
        self.pieces: list[TextPiece | Restarted] = []
        self.is_over = False
        self.has_text = False


class LiveView:
    def __init__(self, region: Region, now: Callable[[], int] = time.time_ns) -> None:
        self._region = region
        self._now = now
        self._calls: dict[str, LiveCall] = {}
        #: What calls said before the log came to them.
        self._early: dict[str, str] = {}
        self._heard: deque[_Heard] = deque()
        #: Since when the model is asked; 0: it is not, as far as the log tells.
        self._asked_at = 0
        self._text = StreamedText(region.width - MARK_CELLS)
        #: Questions that were answered at this terminal.
        self.answered_here: set[str] = set()
        #: Set: the log has come to the question.
        self._questions: dict[str, asyncio.Event] = {}
        self._shown: Mapping[type, Callable[[Any, Event], None]] = {
            facts.ModelAsked: self._asked,
            facts.ModelAnswered: self._answered,
            facts.ModelFailed: self._failed,
            facts.CallProposed: self._proposed,
            **dict.fromkeys((facts.ApprovalRequested, facts.InputRequested, facts.ConsentRequested), self._requested),
            **dict.fromkeys(_DECISIONS, self._decided),
            facts.ActionVoided: self._voided,
            facts.InvocationStarted: self._started,
            facts.InvocationSuspended: self._suspended,
            facts.CallObserved: self._observed,
            facts.Warned: self._warned,
            facts.AnswerRefused: self._refused,
            facts.ClaimContradicted: self._contradicted,
        }

    @property
    def moves(self) -> bool:
        return self._region.moves

    def held(self) -> AbstractContextManager[None]:
        """The terminal is somebody else's: nothing is drawn, and what there is to say waits."""
        return self._region.held()

    def say(self, text: str, style: str = "") -> None:
        """A note of ours, which may hold text from elsewhere. What the model said so far stands before it."""
        self._end_text()
        core = text.lstrip(" ")
        indent = text[: len(text) - len(core)]
        line, room = visible_line(core), self._region.width - len(indent)
        first = rows_of(line, room)[0]
        rest = line[len(first) :].lstrip(" ")
        # Text from elsewhere may reach the next row, which must not look like one of ours.
        more = rows_of(rest, room - len(_HANGING)) if rest else []
        self._region.say(Text(indent + first, style), *(Text(indent + _HANGING + row, style) for row in more))

    def show(self, *lines: Text) -> None:
        self._region.say(*lines)

    async def has_shown(self, action_id: str) -> None:
        """Waits until everything was shown that happened before this question, for a moment at most."""
        shown = self._questions.setdefault(action_id, asyncio.Event())
        with suppress(TimeoutError):
            await asyncio.wait_for(shown.wait(), _BEHIND_SECONDS)

    def heard(self, event: ModelEvent) -> None:
        if not self._heard or self._heard[-1].is_over:
            self._heard.append(_Heard())
        answer = self._heard[-1]
        match event:
            case TextPiece() | Restarted():
                answer.pieces.append(event)
            case Finished():
                answer.is_over = True
            case _:
                pass
        with self._region.one_frame():
            self._show_heard()

    def progress(self, call_id: str, message: str) -> None:
        """What a running call says. May come from any thread: it is drawn with the next frame."""
        call, said = self._calls.get(call_id), message[-_MAX_PROGRESS_CHARS:]
        if call is not None:
            call.progress = said
        elif len(self._early) < _MAX_EARLY:  # The log is a moment behind.
            self._early[call_id] = said

    def event(self, event: Event) -> None:
        show = self._shown.get(type(event.fact))
        with self._region.one_frame():
            if show is not None:
                show(event.fact, event)
            self.tick()

    def remember(self, event: Event) -> None:
        """What happened before anybody looked: the calls that are still open have a name."""
        match event.fact:
            case facts.CallProposed() as fact:
                self._proposed(fact, event)
            case facts.ApprovalRequested() | facts.InputRequested() | facts.ConsentRequested() as fact:
                self._requested(fact, event)
            case facts.CallObserved() as fact:
                self._calls.pop(fact.observation.call_id, None)
            case _:
                pass

    def tick(self) -> None:
        """Draw what is under way, as it is now."""
        now = self._now()
        rows = [row for call in self._calls.values() for row in call.rows(now)]
        if len(rows) > _MAX_ROWS:
            rows = [*rows[: _MAX_ROWS - 1], Text("  ... and more", "dim")]
        if self._text.rest:
            rows.insert(0, marked(self._text.rest))
        elif self._asked_at and not rows and now - self._asked_at >= _PATIENCE_NS:
            seconds = (now - self._asked_at) / 1e9
            frame = SPINNER[int(seconds * _FRAMES_PER_SECOND) % len(SPINNER)]
            rows = [Text(f"  {frame}        {seconds:,.0f} s   waiting for the model", "dim")]
        self._region.draw(rows)

    def rest(self) -> None:
        """The run is not moved on any more. What is not done is not under way either."""
        self._region.clear()
        self._end_text()
        self._heard.clear()
        self._early.clear()
        for call in self._calls.values():
            call.since = 0
        self._asked_at = 0

    def _show_heard(self) -> None:
        if not self._asked_at or not self._heard:
            return
        answer = self._heard[0]
        for piece in answer.pieces:
            if isinstance(piece, Restarted):
                self._end_text()
                self.say(f"(the answer broke off: {piece.reason} It is asked for again.)", "yellow")
            else:
                answer.has_text = True
                self._region.say(*map(marked, self._text.add(piece.text)))
        if answer.pieces:
            answer.pieces.clear()
            self.tick()

    def _end_text(self) -> None:
        self._region.say(*map(marked, self._text.end()))

    def _asked(self, fact: facts.ModelAsked, event: Event) -> None:
        self._asked_at = event.at
        self._show_heard()

    def _answered(self, fact: facts.ModelAnswered, event: Event) -> None:
        self._show_heard()
        answer = self._heard.popleft() if self._heard else _Heard()
        self._asked_at = 0
        if fact.text and not answer.has_text:
            self._region.say(*map(marked, self._text.add(fact.text)))
        self._end_text()

    def _failed(self, fact: facts.ModelFailed, event: Event) -> None:
        self._heard.clear()
        self._asked_at = 0
        self._end_text()
        self.say(f"The model gave no answer: {fact.message}", "red")

    def _proposed(self, fact: facts.CallProposed, event: Event) -> None:
        if not fact.duplicate:
            written = fact.raw_input if not fact.raw_artifact_id else f"{fact.raw_bytes:,} bytes"
            self._calls[fact.call_id] = LiveCall(
                fact.tool, acts_on(written), progress=self._early.pop(fact.call_id, "")
            )

    def _requested(self, fact: Any, event: Event) -> None:
        self._change(fact.call_id, waits=True)
        self._questions.setdefault(fact.question.action_id, asyncio.Event()).set()

    def _decided(self, fact: Any, event: Event) -> None:
        self._change(fact.call_id, waits=False)
        if fact.action_id in self.answered_here:
            return
        why = f" ({fact.answer.reason})" if fact.answer.reason else ""
        by = fact.answer.by or "somebody"
        call = self._calls.get(fact.call_id, LiveCall("", ""))
        self.say(f"  {_DECISIONS[type(fact)]} by {by}{why}: {call.tool} {first_words(call.acts_on, 40)}", "yellow")

    def _voided(self, fact: facts.ActionVoided, event: Event) -> None:
        self.say(f"  The question does not hold any more: {fact.reason}", "yellow")

    def _started(self, fact: facts.InvocationStarted, event: Event) -> None:
        self._change(fact.call_id, waits=False, since=event.at)

    def _suspended(self, fact: facts.InvocationSuspended, event: Event) -> None:
        self._change(fact.call_id, waits=True, since=0)

    def _observed(self, fact: facts.CallObserved, event: Event) -> None:
        seen = fact.observation
        call = self._calls.pop(seen.call_id, LiveCall(seen.tool, ""))
        self._region.say(*ended_lines(call, seen, self._region.width))

    def _warned(self, fact: facts.Warned, event: Event) -> None:
        self.say(f"  warning: {fact.message}", "yellow")

    def _refused(self, fact: facts.AnswerRefused, event: Event) -> None:
        self.say(f"  The answer was not taken: {fact.message}", "yellow")

    def _contradicted(self, fact: facts.ClaimContradicted, event: Event) -> None:
        told = " The model is told." if fact.told else ""
        self.say(f"  The answer contradicts the facts: {fact.message}{told}", "bold red")

    def _change(self, call_id: str, **changes: Any) -> None:
        call = self._calls.get(call_id)
        if call is not None:
            for name, value in changes.items():
                setattr(call, name, value)


def said_lines(who: str, text: str, width: int) -> list[Text]:
    """What somebody said, for a conversation that is shown again."""
    rows = [row for line in harmless(text).split("\n") for row in rows_of(line, width - MARK_CELLS)]
    return [Text(visible_line(first_words(who, _MAX_NAME_CHARS)), "bold"), *map(marked, rows)]


_DECISIONS: Mapping[type, str] = {
    facts.ApprovalGranted: "approved elsewhere",
    facts.ApprovalRejected: "refused elsewhere",
    facts.ApprovalExpired: "not answered in time: refused",
    facts.InputProvided: "answered elsewhere",
    facts.InputRefused: "refused elsewhere",
    facts.InputExpired: "not answered in time: refused",
    facts.ConsentGranted: "consented elsewhere",
    facts.ConsentRefused: "consent refused",
    facts.ConsentExpired: "consent not given in time",
}
