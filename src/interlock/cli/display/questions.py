"""The questions of all runs: the one that is meant, as a line of a list, in full on a terminal, and for programs.

A question is named by its id, by the first letters of it, or as `last`.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from ...domain.call import Question
from ...domain.errors import ConfigurationError, IllegalTransitionError, LogCorruptError
from ...domain.state.ledger import ActionEntry, Ledger
from ...history.fold import load
from ...interaction.terminal_keys import high_risk
from ...rendering.question import MAX_WIDTH, Line, Style, fact, facts, render
from ...sandbox.workspace.operands import bind_files
from ...storage.event_log import EventLog
from ..config.logs import MIN_LETTERS, begins_so, completed, is_inside, short, with_log
from .formatting import first_words, for_how_long, until
from .output import visible_line
from .run_list import unfinished

_MAX_NAMED = 10
#: A question that was answered is looked for in so many runs.
_MAX_RUNS = 1_000
QUESTION_PREFIX = "act_"


class Found(msgspec.Struct, frozen=True):
    action: ActionEntry
    #: The run that asks.
    ledger: Ledger

    @property
    def question(self) -> Question:
        return self.action.question


async def open_questions(log: EventLog, run_id: str = "") -> list[Found]:
    """Oldest first; with `run_id` those of that run and of the runs inside of it."""
    wanted = [each for each in await unfinished(log) if not run_id or each == run_id or is_inside(each, run_id)]
    found = [
        Found(action, ledger)
        async for ledger in _ledgers(log, wanted)
        if not ledger.is_over
        for action in ledger.actions.values()
        if action.is_open and _is_its_own(action, ledger)
    ]
    return sorted(found, key=lambda each: (each.question.asked_at, each.action.asked_seq))


def complete_question(incomplete: str) -> list[str]:
    """For a shell: open ones."""

    async def names(log: EventLog) -> list[str]:
        return [found.question.action_id for found in await open_questions(log)]

    return completed(incomplete, QUESTION_PREFIX, names)


async def find_question(log: EventLog, wanted: str) -> Found:
    """An open one where there is one; else one that was answered. `ConfigurationError` in words when there is none."""
    there = await open_questions(log)
    if wanted == "last" and there:
        return there[-1]
    meant = [each for each in there if _is_meant(each.question.action_id, wanted)]
    if not meant and wanted != "last":
        meant = await _answered(log, wanted)
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ConfigurationError(
            f"{wanted} may be any of {len(meant):,} questions: {_listed(meant)}. Write more of it."
        )
    if wanted == "last":
        raise ConfigurationError("No question is open.")
    said = f"Open are: {_listed(there)}." if there else "No question is open."
    if len(wanted.removeprefix(QUESTION_PREFIX)) < MIN_LETTERS:
        said = f"At least {MIN_LETTERS} letters of its id name one. {said}"
    raise ConfigurationError(f"There is no question {wanted[:80]!r}. {said} `interlock approvals list` shows them.")


async def _answered(log: EventLog, wanted: str) -> list[Found]:
    newest = (await log.run_ids())[: -_MAX_RUNS - 1 : -1]
    return [
        Found(action, ledger)
        async for ledger in _ledgers(log, newest)
        for action_id, action in ledger.actions.items()
        if _is_meant(action_id, wanted) and _is_its_own(action, ledger)
    ]


async def _ledgers(log: EventLog, run_ids: Iterable[str]) -> AsyncGenerator[Ledger, None]:
    """A run that cannot be read has no questions that could be answered."""
    for run_id in run_ids:
        try:
            yield (await load(log, run_id)).ledger
        except (LogCorruptError, IllegalTransitionError):
            continue


def _is_its_own(action: ActionEntry, ledger: Ledger) -> bool:
    """A fork retells the questions of another run; they stay those of the other one."""
    return action.question.run_id == ledger.run_id


def _is_meant(action_id: str, wanted: str) -> bool:
    return begins_so(action_id, wanted, QUESTION_PREFIX)


def _listed(found: Sequence[Found]) -> str:
    """The newest first."""
    names = ", ".join(short(each.question.action_id) for each in list(reversed(found))[:_MAX_NAMED])
    return names if len(found) <= _MAX_NAMED else f"{names} and {len(found) - _MAX_NAMED:,} more"


_STYLES: Mapping[Style, str] = {
    "title": "bold",
    "label": "bold",
    "risk": "yellow",
    "warning": "yellow",
    "loud": "bold reverse",
    "hash": "cyan",
    "hint": "dim",
}
_MAX_TOOL_CHARS, _MAX_RISK_CHARS = 16, 12


def row(question: Question, now: int) -> tuple[str | Text, ...]:
    risk = Text("high", "bold red") if high_risk(question) else first_words(_first(question.risk), _MAX_RISK_CHARS)
    return (
        short(question.action_id),
        short(question.run_id),
        first_words(question.tool_name, _MAX_TOOL_CHARS),
        for_how_long(now - question.asked_at) if question.asked_at else "?",
        until(question.expires_at, now),
        risk,
        first_words(question.capability or question.prompt),
    )


def say_question(found: Found, now: int, log: Path | None) -> None:
    """All of it: what a person at the run's own terminal would see, and what was said about it since."""
    console = Console(highlight=False, markup=False, emoji=False)
    width = min(console.width, MAX_WIDTH) if console.is_terminal else MAX_WIDTH
    for line in (*render(found.question, width).lines, *_around(found, now, width - 1, log)):
        console.print(Text(line.text, _STYLES.get(line.style, "")), soft_wrap=True)


def plain_question(found: Found) -> dict[str, Any]:
    """For programs."""
    action = found.action
    return {
        **msgspec.to_builtins(action.question, str_keys=True),
        "state": state_of(found),
        "answer": action.answer,
        "high_risk": high_risk(action.question),
        "changed_since": changed_since(found),
    }


def state_of(found: Found) -> str:
    """A question of a run that is over is open no more, whatever is written about itself."""
    over = found.action.is_open and found.ledger.is_over
    return "over" if over else "open" if found.action.is_open else found.action.state.value


def changed_since(found: Found) -> list[str]:
    """Files that the approval is bound to and that are different now: the call would be asked about again."""
    around = found.question.bound.surroundings
    if state_of(found) != "open":
        return []
    asked = {file.path: file for file in around.files if not file.unbound}
    now = bind_files(asked, around.cwd)
    return [f"{file.path}: was {asked[file.path].state}, now {file.state}" for file in now if file != asked[file.path]]


def _around(found: Found, now: int, width: int, log: Path | None) -> Iterator[Line]:
    question, answer, state = found.question, found.action.answer, state_of(found)
    yield from fact("id", question.action_id, width)
    agent = f", agent {found.ledger.agent}" if found.ledger.agent else ""
    yield from fact("run", f"{question.run_id}{agent}, call {question.call_id}", width)
    if question.asked_at:
        yield from fact("asked", f"{for_how_long(now - question.asked_at)} ago", width)
    if question.replaces:
        yield from fact("instead of", question.replaces, width)
    yield from facts("CHANGED since it was asked, so it will be asked again", changed_since(found), width, "warning")
    if answer is not None:
        said = f": {answer.reason}" if answer.reason else ""
        yield from fact("answer", f"{state}, by {answer.by or 'somebody'}{said}", width, "label")
    elif state != "open":
        yield from fact("state", f"{state}: it needs no answer any more", width, "label")
    else:
        # Not wrapped: they are to be copied.
        yield from (Line(visible_line(with_log(command, log)), "hint") for command in _answers(question))


def _answers(question: Question) -> list[str]:
    name = short(question.action_id)
    start = question.payload_hash.rpartition(":")[2][:8]
    if question.kind == "consent":
        return []
    if question.kind == "input":
        return [f"interlock approvals answer {name} VALUE", f"interlock approvals reject {name} --reason WHY"]
    sure = f" --hash {start}" if high_risk(question) else ""
    return [f"interlock approvals approve {name}{sure}", f"interlock approvals reject {name} --reason WHY"]


def _first(risk: tuple[str, ...]) -> str:
    return risk[0] if risk else ""
