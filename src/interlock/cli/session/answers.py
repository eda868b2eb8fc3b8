"""Answers a question from the command line: builds the answer, delivers it, and reports the result.

Arguments and values that a person writes instead are parsed here, too.
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
from ...interaction.terminal_dialog import CONFIRMING_CHARS, find_high_risk
from ...policy.files.saved_rules import find_rule_problem
from ...rendering.text import pluralize, to_compact_json
from ..config.logs import add_log_option, is_in_database, list_ancestors, open_log, shorten_id
from ..display.output import echo, echo_error, echo_json, make_visible, truncate_text
from ..display.questions import (
    QUESTION_PREFIX,
    FoundQuestion,
    answer_to_json,
    echo_question,
    find_question,
    list_open_questions,
)
from ..display.run_list import list_agents
from ..exit_codes import ExitCode
from .delivery import AnswerDelivery, deliver_answer, get_person_name, open_inbox

MAX_EDITED_BYTES = 1 << 20
_MAX_AGENTS = 10
#: How the log has arguments that hold a secret.
_REDACTED_KEYS = {"redacted"}


def edit_arguments(asked: JsonObject, edit: Path | None, changes: Sequence[str]) -> JsonObject | None:
    """Return the edited arguments; None: unchanged."""
    if changes and edit is None and asked.keys() == _REDACTED_KEYS:
        raise ConfigurationError(
            "The arguments hold a secret, which the log does not have: --set cannot change a part of them. Write all "
            "of them with --edit. Nothing was answered."
        )
    arguments = asked if edit is None else _read_arguments(edit)
    for change in changes:
        name, is_change, value = change.partition("=")
        if not name or not is_change:
            raise ConfigurationError(f"--set takes NAME=VALUE, not {change[:80]!r}. Nothing was answered.")
        arguments = {**arguments, name: read_value(value)}
    return None if json.encode_sorted(arguments) == json.encode_sorted(asked) else arguments


def read_value(text: str) -> Any:
    """Parse a value: text, or JSON after an equals sign, as at a terminal."""
    if not text.startswith("="):
        if not text:
            raise ConfigurationError("An empty text is no value. Nothing was answered.")
        return text
    return _parse_json(text[1:], "The value")


def _read_arguments(path: Path) -> JsonObject:
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
    found = _parse_json(text, str(path))
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} holds no JSON object, which arguments are. Nothing was answered.")
    return cast(JsonObject, found)


def _parse_json(text: str | bytes, source: str) -> Any:
    try:
        value = json.parse(text)
        json.check_value(value)
    except json.InvalidJsonError as error:
        raise ConfigurationError(f"{source} is not JSON: {error}. Nothing was answered.") from None
    return value


class AnswerOptions(TypedDict):
    """The options that all answers have."""

    reason: str
    by: str
    resume: bool
    log: Path | None
    as_json: bool


class _AnswerOutcome(msgspec.Struct, frozen=True, kw_only=True):
    answered: AnswerDelivery
    #: The run to resume: the one that asks, or the one around it.
    run_id: str
    #: Open in the same run, and inside of it.
    open_question_ids: tuple[str, ...]
    #: With a rule: the other agents that have runs in this log.
    other_agents: tuple[str, ...] = ()

    @property
    def question(self) -> Question:
        return self.answered.action.question

    @property
    def replacement_id(self) -> str:
        """The question that took its place, because something changed."""
        actions = self.answered.ledger.actions
        return next(
            (each for each, action in actions.items() if action.question.replaces == self.question.action_id), ""
        )


def answer_question(
    command: str, question_ref: str, values: Mapping[str, Any], **options: Unpack[AnswerOptions]
) -> None:
    """Answer an open question, print the outcome and resume the run if requested."""
    try:
        outcome = asyncio.run(_answer_question(command, question_ref, values, options))
    except (DecisionConflictError, RunEndedError) as error:
        echo_error(error)
        raise typer.Exit(ExitCode.FAILED) from None
    will_resume = options["resume"] and outcome.answered.status == "recorded"
    if not options["as_json"]:
        for line in _format_outcome(outcome, options["log"], will_resume):
            echo(line)
    elif not will_resume:
        echo_json(_outcome_to_json(outcome))
    if will_resume:
        resuming = import_module(".resume", __package__)
        given = resuming.ResumeOptions(log=options["log"], as_json=options["as_json"])
        raise typer.Exit(resuming.resume_run(outcome.run_id, given))
    if outcome.answered.status == "queued" or outcome.answered.action.state is ActionState.VOID:
        raise typer.Exit(ExitCode.WAITING)


async def _answer_question(
    command: str, question_ref: str, values: Mapping[str, Any], options: AnswerOptions
) -> _AnswerOutcome:
    async with open_log(options["log"]) as log, open_inbox(log) as inbox:
        found = await find_question(log, question_ref)
        question = found.question
        answer = _ANSWER_BUILDERS[command](found, values)
        _confirm_question(found, question_ref, values["shown_hash"], options)
        signed_answer = msgspec.structs.replace(answer, by=get_person_name(options["by"]), reason=options["reason"])
        answered = await deliver_answer(log, inbox, question, signed_answer)
        run_id = (*list_ancestors(question.run_id), question.run_id)[0]
        more = [each.question.action_id for each in await list_open_questions(log, run_id)]
        return _AnswerOutcome(
            answered=answered,
            run_id=run_id,
            open_question_ids=tuple(each for each in more if each != question.action_id),
            other_agents=tuple(sorted(await list_agents(log) - {"", found.ledger.agent})) if answer.rule else (),
        )


def _confirm_question(found: FoundQuestion, question_ref: str, shown_hash: str, options: AnswerOptions) -> None:
    """Ask for confirmation: `last`, or the start of an id, may mean a later question than the person saw."""
    question, name = found.question, shorten_id(found.question.action_id)
    letters = question_ref.removeprefix(QUESTION_PREFIX)
    if shown_hash or (question_ref != "last" and len(letters) >= len(name.removeprefix(QUESTION_PREFIX))):
        return
    if options["as_json"] or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError(
            f"{question_ref!r} may be another question than the one you saw. Look at it with `interlock approvals show "
            f"{question_ref}`, then type its id, or add --hash with the first {CONFIRMING_CHARS} or more characters of "
            "its hash. Nothing was answered."
        )
    echo_question(found, time.time_ns(), options["log"])
    if not typer.confirm(f"Answer this question ({name}, {question.payload_hash[:19]})?"):
        raise ConfigurationError("Nothing was answered.")


def _build_approval(found: FoundQuestion, values: Mapping[str, Any]) -> Answer:
    question = found.question
    _reject_consent(question)
    if question.kind == "input":
        name = shorten_id(question.action_id)
        raise ConfigurationError(f"{name} asks for a value: `interlock approvals answer {name} VALUE`.")
    _check_hash(question, values["shown_hash"])
    arguments = edit_arguments(question.arguments, values["edit"], values["changes"])
    return Answer(
        approved=True, scope=values["scope"], rule=_choose_rule(found, values), arguments=arguments, channel="cli"
    )


def _choose_rule(found: FoundQuestion, values: Mapping[str, Any]) -> str:
    """Return the rule to save; empty for an answer without one."""
    question, rule = found.question, values["rule"] or found.question.suggested_rule
    if values["scope"] != "rule":
        if values["rule"]:
            raise ConfigurationError("--rule needs --scope rule. Nothing was answered.")
        return ""
    if found.ledger.created_by:
        raise ConfigurationError(
            f"Run {shorten_id(question.run_id)} was made on a server, which knows who may keep rules: keep it there, "
            "in the console or over REST, or approve without --scope rule. Nothing was answered."
        )
    if problem := find_rule_problem(rule, question.suggested_rule):
        raise ConfigurationError(f"{problem} Nothing was answered.")
    return rule


def _reject_consent(question: Question) -> None:
    if question.kind == "consent":
        raise ConfigurationError(
            f"{shorten_id(question.action_id)} waits for the consent of a user at {question.provider}, who gives or "
            "refuses it in the server's console. Nothing was answered. To end it: `interlock runs cancel`."
        )


def _build_value(found: FoundQuestion, values: Mapping[str, Any]) -> Answer:
    question = found.question
    if question.kind != "input":
        name = shorten_id(question.action_id)
        raise ConfigurationError(f"{name} asks for no value: `interlock approvals approve {name}`, or `reject`.")
    _check_hash(question, values["shown_hash"])
    return Answer(approved=True, value=read_value(values["value"]), channel="cli")


def _build_rejection(found: FoundQuestion, values: Mapping[str, Any]) -> Answer:
    _reject_consent(found.question)
    if values["shown_hash"]:
        _check_hash(found.question, values["shown_hash"])
    return Answer(approved=False, channel="cli")


_ANSWER_BUILDERS: Mapping[str, Callable[[FoundQuestion, Mapping[str, Any]], Answer]] = {
    "approve": _build_approval,
    "answer": _build_value,
    "reject": _build_rejection,
}


def _check_hash(question: Question, shown_hash: str) -> None:
    """Check that the hash is that of the question; where the risk is high, it must be given."""
    name, risk = shorten_id(question.action_id), find_high_risk(question)
    start, digest = shown_hash.strip().lower().rpartition(":")[2], question.payload_hash.rpartition(":")[2].lower()
    if shown_hash and (len(start) < CONFIRMING_CHARS or not digest.startswith(start)):
        raise DecisionConflictError(
            f"{name} is about {question.payload_hash}, which does not begin with {shown_hash[:80]!r}."
            " Nothing was answered."
        )
    if risk and not shown_hash and question.kind == "approval":
        raise ConfigurationError(
            f"The risk is high ({risk}): say what you looked at with --hash and the first {CONFIRMING_CHARS} or more "
            f"characters of its hash. `interlock approvals show {name}` shows it. Nothing was answered."
        )


def _outcome_to_json(outcome: _AnswerOutcome) -> dict[str, Any]:
    action = outcome.answered.action
    return {
        "action_id": outcome.question.action_id,
        "run_id": outcome.question.run_id,
        "how": outcome.answered.status,
        "state": action.state.value,
        "answer": answer_to_json(action.answer),
        "payload_hash": outcome.question.payload_hash,
        "asked_again": outcome.replacement_id,
        "resume": outcome.run_id,
        "more_questions": outcome.open_question_ids,
        "other_agents": outcome.other_agents,
    }


def _format_outcome(outcome: _AnswerOutcome, log: Path | None, will_resume: bool) -> list[str]:
    answered, question = outcome.answered, outcome.question
    run, name = shorten_id(outcome.run_id), shorten_id(question.action_id)
    if answered.status == "queued":
        return [
            f"{name}: the answer is left for the process that has run {run}, which did not read it yet. It is "
            "applied when that process reads it, or when the run is resumed.",
        ]
    action = answered.action
    state = _STATE_LABELS.get(action.state, action.state.value)
    lines = [f"{name} is {state}: {_describe_subject(action)}"]
    if action.answer is not None and action.answer.rule:
        lines.append(f"Its rule is kept when the call starts, in the policy file of that run: {action.answer.rule}")
        lines.append(_format_rule_scope(outcome.other_agents))
    if outcome.replacement_id:
        again = add_log_option(f"interlock approvals show {shorten_id(outcome.replacement_id)}", log)
        lines.append(f"Something that it is bound to changed, so it is asked again: {again}")
    if outcome.open_question_ids:
        names = ", ".join(map(shorten_id, outcome.open_question_ids[:5]))
        lines.append(f"{pluralize(len(outcome.open_question_ids), 'more question')} open in run {run}: {names}")
    if answered.status == "recorded" and answered.ledger.created_by:
        lines.append(f"Run {run} was started on a server, which resumes it.")
    elif answered.status == "recorded" and answered.ledger.is_session:
        client = make_visible(answered.ledger.agent) or "the client"
        lines.append(f"Run {run} is a session of {client}: the call continues when that makes it again.")
    elif answered.status == "recorded" and answered.ledger.framework:
        framework = make_visible(answered.ledger.framework)
        lines.append(f"Run {run} continues in the program that made it, with {framework}, when that resumes it.")
    elif answered.status == "recorded" and is_in_database(log):
        lines.append(f"A worker continues run {run}, unless more questions are open.")
    elif answered.status == "recorded" and not will_resume:
        command = add_log_option(f"interlock runs resume {run}", log)
        lines.append(f"No process has run {run}. To resume it: {command}")
    return lines


def _format_rule_scope(agents: tuple[str, ...]) -> str:
    names = ", ".join(agents[:_MAX_AGENTS]) + (f" and {len(agents) - _MAX_AGENTS} more" if agents[_MAX_AGENTS:] else "")
    others = f"Other agents in this log: {make_visible(names)}" if agents else "No other agent has runs in this log."
    return f"It holds for every agent that uses that file. {others}"


def _describe_subject(action: ActionEntry) -> str:
    """Describe what the answer is about, with the arguments that the person changed."""
    question, answer = action.question, action.answer
    if answer is None or answer.arguments is None:
        return make_visible(question.headline)
    arguments = truncate_text(to_compact_json(answer.arguments))
    return f"{question.tool_name} with other arguments than were asked: {arguments}"


_STATE_LABELS = {ActionState.EXECUTED: "approved, and the call was started", ActionState.PENDING: "open"}
