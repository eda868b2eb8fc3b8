"""Questions of runs: resolve one, list them, show one in full, and JSON output.

A question is named by its id, by the first letters of it, or as `last`.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from ...domain.call import Answer, Question
from ...domain.errors import ConfigurationError, IllegalTransitionError, LogUnreadableError
from ...domain.state.ledger import ActionEntry, Ledger
from ...domain.suggestions import suggest_id
from ...history.fold import load_run
from ...interaction.terminal_dialog import find_high_risk
from ...rendering.events import describe_answerer
from ...rendering.question import MAX_WIDTH, DisplayLine, LineStyle, render_fact, render_facts, render_question
from ...rendering.text import shorten_line
from ...rendering.times import format_duration, format_expiry
from ...sandbox.workspace.file_operands import bind_files
from ...storage.event_log import EventLog
from ...storage.question_search import parse_search
from ..config.logs import MIN_ID_CHARS, add_log_option, complete_id, is_nested_in, matches_id, shorten_id
from .output import make_visible
from .run_list import list_unfinished

_MAX_LISTED = 10
#: A question that was answered is looked for in so many runs.
_MAX_RUNS = 1_000
QUESTION_PREFIX = "act_"


class FoundQuestion(msgspec.Struct, frozen=True):
    """A question and its run."""

    action: ActionEntry
    #: The run that asks.
    ledger: Ledger

    @property
    def question(self) -> Question:
        """The question of the action."""
        return self.action.question


async def list_open_questions(log: EventLog, run_id: str = "") -> list[FoundQuestion]:
    """Return open questions, oldest first; with `run_id` those of that run and its child runs."""
    run_ids = [
        each for each in await list_unfinished(log) if not run_id or each == run_id or is_nested_in(each, run_id)
    ]
    found = [
        FoundQuestion(action, ledger)
        async for ledger in _load_ledgers(log, run_ids)
        if not ledger.is_over
        for action in _list_own_questions(ledger)
        if action.is_open
    ]
    return sorted(found, key=lambda each: (each.question.asked_at, each.action.asked_seq))


class QuestionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of open questions. Empty: any."""

    #: Words, and bounds of numbers such as `amount>=500`.
    search: str = ""
    agent: str = ""
    requester: str = ""
    tool: str = ""
    risk: str = ""
    rule: str = ""
    #: Asked at this time or earlier; 0: at any time.
    asked_before: int = 0

    def matches(self, found: FoundQuestion) -> bool:
        """Return True if a question passes the filter."""
        question, ledger = found.question, found.ledger
        return (
            self.agent in ("", ledger.agent)
            and self.requester in ("", ledger.requester)
            and self.tool in ("", question.tool_name)
            and (not self.risk or self.risk in question.risk)
            and (not self.rule or self.rule in question.rule_ids)
            and (not self.asked_before or question.asked_at <= self.asked_before)
            and parse_search(self.search).matches(question)
        )


def sort_questions(found: list[FoundQuestion], order: str) -> list[FoundQuestion]:
    """Return questions that are sorted oldest first in another order: `newest`, or `deadline`."""
    if order == "newest":
        return found[::-1]
    if order == "deadline":
        return sorted(found, key=lambda each: (not each.question.expires_at, each.question.expires_at))
    return found


def complete_question(incomplete: str) -> list[str]:
    """Return completions of open questions for a shell."""

    async def names(log: EventLog) -> list[str]:
        return [found.question.action_id for found in await list_open_questions(log)]

    return complete_id(incomplete, QUESTION_PREFIX, names)


async def find_question(log: EventLog, question_ref: str) -> FoundQuestion:
    """Return an open question if there is one, else an answered one. Raise `ConfigurationError` when there is none."""
    open_questions = await list_open_questions(log)
    if question_ref == "last" and open_questions:
        return open_questions[-1]
    matches = [each for each in open_questions if matches_id(each.question.action_id, question_ref, QUESTION_PREFIX)]
    if not matches and question_ref != "last":
        matches = await _find_answered(log, question_ref)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ConfigurationError(
            f"{question_ref} may be any of {len(matches):,} questions: {_format_question_ids(matches)}."
            " Write more of it."
        )
    if question_ref == "last":
        raise ConfigurationError("No question is open.")
    hint = suggest_id(question_ref, (each.question.action_id for each in open_questions))
    if not hint:
        hint = f"Open are: {_format_question_ids(open_questions)}." if open_questions else "No question is open."
    if len(question_ref.removeprefix(QUESTION_PREFIX)) < MIN_ID_CHARS:
        hint = f"At least {MIN_ID_CHARS} letters of its id name one. {hint}"
    raise ConfigurationError(f"Unknown question `{question_ref[:80]}`. {hint} `interlock approvals list` shows them.")


async def _find_answered(log: EventLog, question_ref: str) -> list[FoundQuestion]:
    newest = (await log.run_ids())[: -_MAX_RUNS - 1 : -1]
    return [
        FoundQuestion(action, ledger)
        async for ledger in _load_ledgers(log, newest)
        for action in _list_own_questions(ledger)
        if matches_id(action.question.action_id, question_ref, QUESTION_PREFIX)
    ]


def _list_own_questions(ledger: Ledger) -> list[ActionEntry]:
    """List the questions asked in this run. Those copied into a fork belong to its source."""
    return [action for action in ledger.actions.values() if action.question.run_id == ledger.run_id]


async def _load_ledgers(log: EventLog, run_ids: Iterable[str]) -> AsyncGenerator[Ledger, None]:
    """Load the ledgers of runs. Skip runs that cannot be read: their questions cannot be answered."""
    for run_id in run_ids:
        try:
            yield (await load_run(log, run_id)).ledger
        except (LogUnreadableError, IllegalTransitionError):
            continue


def _format_question_ids(found: Sequence[FoundQuestion]) -> str:
    """List the ids of questions, the newest first."""
    names = ", ".join(shorten_id(each.question.action_id) for each in list(reversed(found))[:_MAX_LISTED])
    return names if len(found) <= _MAX_LISTED else f"{names} and {len(found) - _MAX_LISTED:,} more"


_STYLES: Mapping[LineStyle, str] = {
    **dict.fromkeys(("title", "label"), "bold"),
    **dict.fromkeys(("risk", "warning"), "yellow"),
    "loud": "bold reverse",
    "hash": "cyan",
    "hint": "dim",
    "added": "green",
    "removed": "red",
}
_MAX_TOOL_CHARS, _MAX_RISK_CHARS = 16, 12


def format_question_row(question: Question, now: int) -> tuple[str | Text, ...]:
    """Return the cells of a question in the list of approvals."""
    first = question.risk[0] if question.risk else ""
    risk = Text("high", "bold red") if find_high_risk(question) else shorten_line(first, _MAX_RISK_CHARS)
    return (
        shorten_id(question.action_id),
        shorten_id(question.run_id),
        shorten_line(question.tool_name, _MAX_TOOL_CHARS),
        format_duration(now - question.asked_at) if question.asked_at else "?",
        format_expiry(question.expires_at, now),
        risk,
        shorten_line(question.headline),
    )


def echo_question(found: FoundQuestion, now: int, log: Path | None) -> None:
    """Print a question in full, with its answer."""
    console = Console(highlight=False, markup=False, emoji=False)
    width = min(console.width, MAX_WIDTH) if console.is_terminal else MAX_WIDTH
    for line in (*render_question(found.question, width).lines, *_context_lines(found, now, width - 1, log)):
        console.print(Text(line.text, _STYLES.get(line.style, "")), soft_wrap=True)


def question_to_json(found: FoundQuestion) -> dict[str, Any]:
    """Return a question for JSON output."""
    action = found.action
    return {
        **msgspec.to_builtins(action.question, str_keys=True),
        "state": get_question_state(found),
        "answer": answer_to_json(action.answer),
        "high_risk": find_high_risk(action.question),
        "changed_since": find_changed_files(found),
    }


def get_question_state(found: FoundQuestion) -> str:
    """Return the state of a question. In a run that is over, it is no longer open."""
    over = found.action.is_open and found.ledger.is_over
    return "over" if over else "open" if found.action.is_open else found.action.state.value


def find_changed_files(found: FoundQuestion) -> list[str]:
    """Return files of the approval binding that differ now: the call would be asked about again."""
    environment = found.question.bound.surroundings
    if get_question_state(found) != "open":
        return []
    asked = {file.path: file for file in environment.files if not file.unbound}
    now = bind_files(asked, environment.cwd)
    return [f"{file.path}: was {asked[file.path].state}, now {file.state}" for file in now if file != asked[file.path]]


def _context_lines(found: FoundQuestion, now: int, width: int, log: Path | None) -> Iterator[DisplayLine]:
    question, answer, state = found.question, found.action.answer, get_question_state(found)
    yield from render_fact("id", question.action_id, width)
    agent = f", agent {found.ledger.agent}" if found.ledger.agent else ""
    yield from render_fact("run", f"{question.run_id}{agent}, call {question.call_id}", width)
    if question.asked_at:
        yield from render_fact("asked", f"{format_duration(now - question.asked_at)} ago", width)
    if question.replaces:
        yield from render_fact("instead of", question.replaces, width)
    title = "CHANGED since it was asked, so it will be asked again"
    yield from render_facts(title, find_changed_files(found), width, "warning")
    if answer is not None:
        reason = f": {answer.reason}" if answer.reason else ""
        who = describe_answerer(answer) or "by a person"
        yield from render_fact("answer", f"{state}, {who}{reason}", width, "label")
    elif state != "open":
        yield from render_fact("state", f"{state}: it needs no answer any more", width, "label")
    else:
        # Not wrapped: they are to be copied.
        for command in _answer_commands(question):
            yield DisplayLine(make_visible(add_log_option(f"interlock approvals {command}", log)), "hint")


def answer_to_json(answer: Answer | None) -> dict[str, Any] | None:
    """Return an answer for JSON output, with its assurance where its channel is known."""
    if answer is None:
        return None
    return {**msgspec.to_builtins(answer), **({"assurance": answer.assurance} if answer.is_qualified else {})}


def _answer_commands(question: Question) -> list[str]:
    if question.kind == "consent":
        return []
    name, start = shorten_id(question.action_id), question.payload_hash.rpartition(":")[2][:8]
    sure = f" --hash {start}" if find_high_risk(question) else ""
    accept = f"answer {name} VALUE" if question.kind == "input" else f"approve {name}{sure}"
    return [accept, f"reject {name} --reason WHY"]
