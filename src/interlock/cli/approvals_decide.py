"""Answer a question from the command line: make the answer, bring it to the run, say what became of it.

Arguments and values that a person writes in place of what was asked are read here, too.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

import msgspec
import typer

from ..approvals.terminal_dialog import CONFIRMING_CHARS
from ..approvals.terminal_words import high_risk
from ..domain import json
from ..domain.call import Answer, Question
from ..domain.errors import ConfigurationError, DecisionConflictError, RunEndedError
from ..domain.ledger import ActionEntry
from ..domain.lifecycle import ActionState
from ..domain.tool import JsonObject
from .approvals_answer import Answered, at_desk, give_answer, name_of_person
from .approvals_questions import find_question, open_questions
from .exit_codes import ExitCode
from .logs import around, opened, short, with_log
from .show import compact, count, cut, say, say_json, say_wrong

MAX_EDITED_BYTES = 1 << 20
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
        resuming = import_module(".runs_resume", __package__)
        raise typer.Exit(
            resuming.resume(outcome.run_id, resuming.Options(log=options["log"], as_json=options["as_json"]))
        )
    if outcome.answered.how == "left" or outcome.answered.action.state is ActionState.VOID:
        raise typer.Exit(ExitCode.WAITING)


async def _decided(how: str, wanted: str, given: Mapping[str, Any], options: Around) -> _Outcome:
    async with opened(options["log"]) as log, at_desk(log) as desk:
        question = (await find_question(log, wanted)).question
        answer = _ANSWERS[how](question, given)
        said = msgspec.structs.replace(answer, by=name_of_person(options["by"]), reason=options["reason"])
        answered = await give_answer(log, desk, question, said)
        run_id = (*around(question.run_id), question.run_id)[0]
        more = [each.question.action_id for each in await open_questions(log, run_id)]
        return _Outcome(
            answered=answered, run_id=run_id, more=tuple(each for each in more if each != question.action_id)
        )


def _approval(question: Question, given: Mapping[str, Any]) -> Answer:
    _check_not_consent(question)
    if question.kind == "input":
        name = short(question.action_id)
        raise ConfigurationError(f"{name} asks for a value: `interlock approvals answer {name} VALUE`.")
    _check_hash(question, given["shown_hash"])
    arguments = edited_arguments(question.arguments, given["edit"], given["changes"])
    return Answer(approved=True, scope=given["scope"], arguments=arguments)


def _check_not_consent(question: Question) -> None:
    if question.kind == "consent":
        raise ConfigurationError(
            f"{short(question.action_id)} waits for the consent of a user at {question.provider}, who gives or refuses "
            "it in the server's console. Nothing was answered. To end it: `interlock runs cancel`."
        )


def _value(question: Question, given: Mapping[str, Any]) -> Answer:
    if question.kind != "input":
        name = short(question.action_id)
        raise ConfigurationError(f"{name} asks for no value: `interlock approvals approve {name}`, or `reject`.")
    _check_hash(question, given["shown_hash"])
    return Answer(approved=True, value=read_value(given["value"]))


def _rejection(question: Question, given: Mapping[str, Any]) -> Answer:
    _check_not_consent(question)
    return Answer(approved=False)


_ANSWERS: Mapping[str, Callable[[Question, Mapping[str, Any]], Answer]] = {
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
    }


def _lines(outcome: _Outcome, log: Path | None, goes_on: bool) -> list[str]:
    answered, question = outcome.answered, outcome.question
    run, name = short(outcome.run_id), short(question.action_id)
    if answered.how == "left":
        return [
            f"{name}: the answer is left for the process that has run {run}, which did not take it yet. It counts as "
            "soon as that process looks, or whoever resumes the run.",
        ]
    said = [f"{name} is {_MEANINGS[answered.action.state]}: {_what(answered.action)}"]
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
