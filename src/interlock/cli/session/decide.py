"""Answer a question from the command line: make the answer, bring it to the run, say what became of it.

Arguments and values that a person writes in place of what was asked are read here, too.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

import msgspec
import typer

from ...domain import json
from ...domain.call import Answer, Question
from ...domain.errors import ConfigurationError, DecisionConflictError, RunEndedError
from ...domain.state.ledger import ActionEntry
from ...domain.state.lifecycle import ActionState
from ...domain.tool import JsonObject
from ...interaction.terminal_dialog import CONFIRMING_CHARS
from ...interaction.terminal_keys import high_risk
from ...policy.files.kept import find_rule_problem
from ...storage.event_log import EventLog
from ..config.logs import around, opened, short, with_log
from ..display.output import compact, count, cut, say, say_json, say_wrong, visible_line
from ..display.questions import QUESTION_PREFIX, Found, find_question, open_questions, say_question
from ..display.run_list import agents_in
from ..exit_codes import ExitCode
from .deliver import Answered, at_desk, give_answer, name_of_person

MAX_EDITED_BYTES = 1 << 20
_MAX_AGENTS = 10
#: How the log has arguments that hold a secret.
_HIDDEN = {"redacted"}


def edited_arguments(asked: JsonObject, edit: Path | None, changes: Sequence[str]) -> JsonObject | None:
    """None: as they were asked."""
    if changes and edit is None and asked.keys() == _HIDDEN:
        raise ConfigurationError(
            "The arguments hold a secret, which the log does not have: --set cannot change a part of them. Write all "
            "of them with --edit. Nothing was answered."
        )
    arguments = asked if edit is None else _from_file(edit)
    for change in changes:
        name, is_change, value = change.partition("=")
        if not name or not is_change:
            raise ConfigurationError(f"--set takes NAME=VALUE, not {change[:80]!r}. Nothing was answered.")
        arguments = {**arguments, name: read_value(value)}
    return None if json.encode_sorted(arguments) == json.encode_sorted(asked) else arguments


def read_value(text: str) -> Any:
    """Text as it is, or JSON after an equals sign, as at a terminal."""
    if not text.startswith("="):
        if not text:
            raise ConfigurationError("An empty text is no value. Nothing was answered.")
        return text
    return _parsed(text[1:], "The value")


def _from_file(path: Path) -> JsonObject:
    try:
        if str(path) == "-":
            text = sys.stdin.buffer.read(MAX_EDITED_BYTES + 1)
        else:
            with open(path, "rb") as file:
                text = file.read(MAX_EDITED_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}. Nothing was answered.") from None
    if len(text) > MAX_EDITED_BYTES:
        raise ConfigurationError(f"{path} is larger than {MAX_EDITED_BYTES:,} bytes. Nothing was answered.")
    found = _parsed(text, str(path))
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} holds no JSON object, which arguments are. Nothing was answered.")
    return cast(JsonObject, found)


def _parsed(text: str | bytes, what: str) -> Any:
    try:
        value = json.parse(text)
        json.check(value)
    except json.BadJson as error:
        raise ConfigurationError(f"{what} is not JSON: {error}. Nothing was answered.") from None
    return value


class Around(TypedDict):
    """The options that all answers have."""

    reason: str
    by: str
    resume: bool
    log: Path | None
    as_json: bool


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    answered: Answered
    #: The run to resume: the one that asks, or the one around it.
    run_id: str
    #: Open in the same run, and inside of it.
    more: tuple[str, ...]
    #: With a rule: the other agents that have runs in this log.
    other_agents: tuple[str, ...] = ()

    @property
    def question(self) -> Question:
        return self.answered.action.question

    @property
    def served(self) -> bool:
        """Was the run made on a server?"""
        return bool(self.answered.ledger.created_by)

    @property
    def asked_again(self) -> str:
        """The question that took its place, because something changed."""
        actions = self.answered.ledger.actions
        return next(
            (each for each, action in actions.items() if action.question.replaces == self.question.action_id), ""
        )


def decide(how: str, wanted: str, given: Mapping[str, Any], **options: Unpack[Around]) -> None:
    try:
        outcome = asyncio.run(_decided(how, wanted, given, options))
    except (DecisionConflictError, RunEndedError) as error:
        say_wrong(error)
        raise typer.Exit(ExitCode.FAILED) from None
    goes_on = options["resume"] and outcome.answered.how == "recorded"
    if not options["as_json"]:
        for line in _lines(outcome, options["log"], goes_on):
            say(line)
    elif not goes_on:
        say_json(_plain(outcome))
    if goes_on:
        resuming = import_module(".resume", __package__)
        raise typer.Exit(
            resuming.resume(outcome.run_id, resuming.Options(log=options["log"], as_json=options["as_json"]))
        )
    if outcome.answered.how == "left" or outcome.answered.action.state is ActionState.VOID:
        raise typer.Exit(ExitCode.WAITING)


async def _decided(how: str, wanted: str, given: Mapping[str, Any], options: Around) -> _Outcome:
    async with opened(options["log"]) as log, at_desk(log) as desk:
        found = await find_question(log, wanted)
        question = found.question
        answer = _ANSWERS[how](found, given)
        _check_named(found, wanted, given["shown_hash"], options)
        said = msgspec.structs.replace(answer, by=name_of_person(options["by"]), reason=options["reason"])
        answered = await give_answer(log, desk, question, said)
        run_id = (*around(question.run_id), question.run_id)[0]
        more = [each.question.action_id for each in await open_questions(log, run_id)]
        return _Outcome(
            answered=answered,
            run_id=run_id,
            more=tuple(each for each in more if each != question.action_id),
            other_agents=await _other_agents(log, found.ledger.agent) if answer.rule else (),
        )


async def _other_agents(log: EventLog, agent: str) -> tuple[str, ...]:
    return tuple(sorted({name for name in await agents_in(log) if name and name != agent}))


def _check_named(found: Found, wanted: str, said: str, options: Around) -> None:
    """`last`, or a few letters of an id, may mean a later question than the one that was looked at."""
    question, name = found.question, short(found.question.action_id)
    letters = wanted.removeprefix(QUESTION_PREFIX)
    if said or (wanted != "last" and len(letters) >= len(name.removeprefix(QUESTION_PREFIX))):
        return
    if options["as_json"] or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError(
            f"{wanted!r} may be another question than the one you saw. Look at it with `interlock approvals show "
            f"{wanted}`, then type its id, or add --hash with the first {CONFIRMING_CHARS} or more characters of its "
            "hash. Nothing was answered."
        )
    say_question(found, time.time_ns(), options["log"])
    if not typer.confirm(f"Answer this question ({name}, {question.payload_hash[:19]})?"):
        raise ConfigurationError("Nothing was answered.")


def _approval(found: Found, given: Mapping[str, Any]) -> Answer:
    question = found.question
    _check_not_consent(question)
    if question.kind == "input":
        name = short(question.action_id)
        raise ConfigurationError(f"{name} asks for a value: `interlock approvals answer {name} VALUE`.")
    _check_hash(question, given["shown_hash"])
    arguments = edited_arguments(question.arguments, given["edit"], given["changes"])
    return Answer(approved=True, scope=given["scope"], rule=_rule(found, given), arguments=arguments)


def _rule(found: Found, given: Mapping[str, Any]) -> str:
    """Return the rule to keep; empty for an answer without one."""
    question, rule = found.question, given["rule"] or found.question.suggested_rule
    if given["scope"] != "rule":
        if given["rule"]:
            raise ConfigurationError("--rule needs --scope rule. Nothing was answered.")
        return ""
    if found.ledger.created_by:
        raise ConfigurationError(
            f"Run {short(question.run_id)} was made on a server, which knows who may keep rules: keep it there, in "
            "the console or over REST, or approve without --scope rule. Nothing was answered."
        )
    if problem := find_rule_problem(rule, question.suggested_rule):
        raise ConfigurationError(f"{problem} Nothing was answered.")
    return rule


def _check_not_consent(question: Question) -> None:
    if question.kind == "consent":
        raise ConfigurationError(
            f"{short(question.action_id)} waits for the consent of a user at {question.provider}, who gives or refuses "
            "it in the server's console. Nothing was answered. To end it: `interlock runs cancel`."
        )


def _value(found: Found, given: Mapping[str, Any]) -> Answer:
    question = found.question
    if question.kind != "input":
        name = short(question.action_id)
        raise ConfigurationError(f"{name} asks for no value: `interlock approvals approve {name}`, or `reject`.")
    _check_hash(question, given["shown_hash"])
    return Answer(approved=True, value=read_value(given["value"]))


def _rejection(found: Found, given: Mapping[str, Any]) -> Answer:
    _check_not_consent(found.question)
    if given["shown_hash"]:
        _check_hash(found.question, given["shown_hash"])
    return Answer(approved=False)


_ANSWERS: Mapping[str, Callable[[Found, Mapping[str, Any]], Answer]] = {
    "approve": _approval,
    "answer": _value,
    "reject": _rejection,
}


def _check_hash(question: Question, said: str) -> None:
    """What a person looked at is what they answer to; where the risk is high, they have to have looked."""
    name, told = short(question.action_id), high_risk(question)
    start, digest = said.strip().lower().rpartition(":")[2], question.payload_hash.rpartition(":")[2].lower()
    if said and (len(start) < CONFIRMING_CHARS or not digest.startswith(start)):
        raise DecisionConflictError(
            f"{name} is about {question.payload_hash}, which does not begin with {said[:80]!r}. Nothing was answered."
        )
    if told and not said and question.kind == "approval":
        raise ConfigurationError(
            f"The risk is high ({told}): say what you looked at with --hash and the first {CONFIRMING_CHARS} or more "
            f"characters of its hash. `interlock approvals show {name}` shows it. Nothing was answered."
        )


def _plain(outcome: _Outcome) -> dict[str, Any]:
    action = outcome.answered.action
    return {
        "action_id": outcome.question.action_id,
        "run_id": outcome.question.run_id,
        "how": outcome.answered.how,
        "state": action.state.value,
        "answer": action.answer,
        "payload_hash": outcome.question.payload_hash,
        "asked_again": outcome.asked_again,
        "resume": outcome.run_id,
        "more_questions": outcome.more,
        "other_agents": outcome.other_agents,
    }


def _lines(outcome: _Outcome, log: Path | None, goes_on: bool) -> list[str]:
    answered, question = outcome.answered, outcome.question
    run, name = short(outcome.run_id), short(question.action_id)
    if answered.how == "left":
        return [
            f"{name}: the answer is left for the process that has run {run}, which did not take it yet. It counts as "
            "soon as that process looks, or whoever resumes the run.",
        ]
    action = answered.action
    said = [f"{name} is {_MEANINGS[action.state]}: {_what(action)}"]
    if action.answer is not None and action.answer.rule:
        said.append(f"Its rule is kept when the call starts, in the policy file of that run: {action.answer.rule}")
        said.append(_shared_with(outcome.other_agents))
    if outcome.asked_again:
        again = with_log(f"interlock approvals show {short(outcome.asked_again)}", log)
        said.append(f"Something that it is bound to changed, so it is asked again: {again}")
    if outcome.more:
        names = ", ".join(map(short, outcome.more[:5]))
        said.append(f"{count(len(outcome.more), 'more question')} open in run {run}: {names}")
    if answered.how == "recorded" and outcome.served:
        said.append(f"Run {run} was made on a server, which goes on with it.")
    elif answered.how == "recorded" and not goes_on:
        said.append(f"No process has run {run}. To go on with it: {with_log(f'interlock runs resume {run}', log)}")
    return said


def _shared_with(agents: tuple[str, ...]) -> str:
    if not agents:
        return "It holds for every agent that uses that file. No other agent has runs in this log."
    names = ", ".join(agents[:_MAX_AGENTS]) + (f" and {len(agents) - _MAX_AGENTS} more" if agents[_MAX_AGENTS:] else "")
    return f"It holds for every agent that uses that file. Other agents in this log: {visible_line(names)}"


def _what(action: ActionEntry) -> str:
    """What the answer is about. Arguments that a person wrote stand in the place of those that were asked."""
    question, answer = action.question, action.answer
    if answer is None or answer.arguments is None:
        return question.capability or question.tool_name
    return f"{question.tool_name} with other arguments than were asked: {cut(compact(answer.arguments))}"


_MEANINGS: Mapping[ActionState, str] = {
    ActionState.APPROVED: "approved",
    ActionState.EXECUTED: "approved, and the call was started",
    ActionState.REJECTED: "rejected",
    ActionState.EXPIRED: "expired",
    ActionState.VOID: "void",
    ActionState.PENDING: "open",
}
