"""A run told in short, event by event: who said what, and what became of each call. For people; `events` has it all.

`Rows` are its lines as they come, when nobody knows yet how wide the columns have to be.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.text import Text

from ...domain import event as facts
from ...domain.event import Event
from ..config.logs import short
from .events import row
from .formatting import acts_on, first_words, took
from .output import visible_line

_OUTCOMES = {"ok": "green", "failed": "red"}


class Told(msgspec.Struct, frozen=True):
    """One line: who or which tool, about what, and what became of it. All three may be text from anywhere."""

    who: str
    what: str = ""
    outcome: str = ""
    style: str = ""


class _Call(NamedTuple):
    tool: str
    about: str


class Story:
    """Told in order, from the first event on: what a later event is about was said by an earlier one."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}

    def tell(self, event: Event) -> Told | None:
        """None: there is nothing to tell about it."""
        say = _WORDS.get(type(event.fact))
        return say(self, event.fact) if say else None

    def proposed(self, fact: facts.CallProposed) -> None:
        if fact.call_id not in self._calls:
            written = fact.raw_input if not fact.raw_artifact_id else f"{fact.raw_bytes:,} bytes"
            self._calls[fact.call_id] = _Call(fact.tool, acts_on(written))

    def started_run(self, fact: facts.RunStarted) -> Told | None:
        if not fact.forked_from:
            return None
        return Told("fork", f"of {short(fact.forked_from)} at event {fact.forked_at}")

    def user(self, fact: facts.UserSaid) -> Told:
        return Told(fact.by or "you", first_words(fact.text), style="bold")

    def answered(self, fact: facts.ModelAnswered) -> Told | None:
        return Told("model", first_words(fact.text)) if fact.text.strip() else None

    def decided(self, fact: Any) -> Told:
        tool, about = self._call(fact.call_id)
        word = _ANSWERS[type(fact)]
        why = f": {first_words(fact.answer.reason, 80)}" if fact.answer.reason else ""
        return Told(fact.answer.by or "somebody", f"{tool} {about}".strip(), f"{word}{why}", "bold")

    def voided(self, fact: facts.ActionVoided) -> Told:
        return Told("void", f"{self._call(fact.call_id).tool} {short(fact.action_id)}", fact.reason, "yellow")

    def observed(self, fact: facts.CallObserved) -> Told:
        seen = fact.observation
        tool, about = self._call(seen.call_id)
        code = "ok" if seen.ok else "failed" if seen.code == "ok" else seen.code
        outcome = " ".join(part for part in (code, took(seen.duration_ms)) if part)
        return Told(tool, about, outcome, _OUTCOMES["ok" if seen.ok else "failed"])

    def conflict(self, fact: facts.ClaimContradicted) -> Told:
        return Told("conflict", first_words(fact.message), style="bold red")

    def refused(self, fact: facts.AnswerRefused) -> Told:
        return Told("not taken", first_words(fact.message), style="yellow")

    def model_failed(self, fact: facts.ModelFailed) -> Told:
        return Told("model", first_words(fact.message), "gave no answer", "red")

    def warned(self, fact: facts.Warned) -> Told:
        return Told("warning", first_words(fact.message), style="yellow")

    def _call(self, call_id: str) -> _Call:
        return self._calls.get(call_id, _Call(call_id, ""))


_ANSWERS: Mapping[type, str] = {
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

_WORDS: Mapping[type, Callable[[Story, Any], Told | None]] = {
    facts.RunStarted: Story.started_run,
    facts.UserSaid: Story.user,
    facts.ModelAnswered: Story.answered,
    facts.ModelFailed: Story.model_failed,
    facts.AnswerRefused: Story.refused,
    facts.ClaimContradicted: Story.conflict,
    facts.CallProposed: Story.proposed,
    **dict.fromkeys(_ANSWERS, Story.decided),
    facts.ActionVoided: Story.voided,
    facts.CallObserved: Story.observed,
    facts.Warned: Story.warned,
}


_WHO_CELLS, _OUTCOME_CELLS, _TYPE_CELLS = 13, 14, 25
_LEAST_CELLS = 8
_GAP = "  "
#: For a pipe, which has no width.
_MAX_CHARS = 500


class Rows:
    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._room = max(self._console.width, 40) if self._console.is_terminal else _MAX_CHARS

    def event(self, event: Event, started_at: int) -> None:
        number, seconds, kind, words = row(event, started_at)
        self._print(Text(f"{number}{_GAP}{seconds}{_GAP}{kind:{_TYPE_CELLS}}{_GAP}{visible_line(words)}"))

    def told(self, told: Told) -> None:
        """Who, about what, and the outcome: that is never cut for what it is about."""
        line = _fit(told.who, _WHO_CELLS, pad=True).append(_GAP)
        outcome = Text(visible_line(told.outcome), style=told.style)
        about = self._room - line.cell_len
        if told.outcome:
            about -= max(outcome.cell_len, _OUTCOME_CELLS) + len(_GAP)
            outcome = Text(_GAP).append_text(outcome)
        what = _fit(told.what, max(about, _LEAST_CELLS), pad=bool(told.outcome) and self._console.is_terminal)
        what.stylize("" if told.outcome else told.style)
        self._print(line.append_text(what).append_text(outcome))

    def _print(self, line: Text) -> None:
        line.truncate(self._room, overflow="ellipsis")
        line.rstrip()
        self._console.print(line, soft_wrap=True)


def say_json_line(value: Any) -> None:
    """One value on one line, at once: somebody may be reading along."""
    text = json.dumps(msgspec.to_builtins(value, str_keys=True))
    print(text.replace("\x7f", "\\u007f"), flush=True)


def _fit(text: str, cells: int, *, pad: bool) -> Text:
    fitted = Text(visible_line(text))
    fitted.truncate(cells, overflow="ellipsis", pad=pad)
    return fitted
