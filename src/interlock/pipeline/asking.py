"""permit, continued: what a person is asked, and what their answer means.

A question is bound to one payload: the arguments, and everything around them that the decision was about. What runs
after a yes is read back from the bytes that were hashed. When something that the question is bound to has changed by
the time of the answer, or by the time of the start, the question is void: the call is judged again, and whoever is
asked again sees what changed. A stored answer itself is never evaluated again.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from ..domain.call import AcceptedCall, Answer, KnownCall, PermittedCall, Question, ToolIntent, ValidCall, Waiting
from ..domain.decision import RECOVERY, Decision, Verdict, needs_second_person
from ..domain.errors import ConfigurationError
from ..domain.event import Warned
from ..domain.json import encode
from ..domain.outcome import Failure
from ..domain.payload import Change, definition_digest, hash_of_answer
from ..domain.redaction import redact_line
from ..domain.rendering import neutralize
from ..domain.state.lifecycle import ActionState
from ..domain.tool import ConsentBinding, JsonObject, ToolContext, agent_path
from ..rendering.sentences import error_text
from .approval.binding import apply_grants, bind_approval, canonicalize, detect_drift, payload_matches, require_approval
from .context import RunContext
from .events import permission_event, question_event, record_answer, resume_if_unblocked, void_event
from .lookup import lookup
from .parts import Parts, RuleChange
from .permit import (
    ask_provider,
    build_consent_question,
    consent_decision,
    consent_unavailable,
    denied_by_policy,
    evaluate,
    find_answer_problem,
    guardrail_failure,
    payload_changed,
    permit,
    rejection_failure,
    repeat_decision,
    run_guardrails,
    too_many_questions,
    unknown_outcome,
)
from .validate import check_state, validate

#: How often one call is asked about anew because something changed while the person thought.
_MAX_ASKED = 5


async def wait_for_answer(waiting: Waiting, question: Question, run: RunContext) -> PermittedCall | Waiting | Failure:
    """A person answers, or the question stays open."""
    for _ in range(_MAX_ASKED):
        outcome = await _ask(waiting, question, run)
        if not isinstance(outcome, Waiting) or outcome.question is None or outcome.question is question:
            return outcome
        waiting, question = outcome, outcome.question
    return payload_changed(question, "something that keeps changing")


async def apply_answer(
    waiting: Waiting, question: Question, answer: Answer, cause: int | None, run: RunContext
) -> PermittedCall | Waiting | Failure:
    """What the stored answer means. It is never evaluated again; what a person wrote themselves is new, so it must fit
    and no rule may forbid it."""
    if not answer.approved:
        return rejection_failure(question, answer)
    if question.kind == "consent":
        return await _after_consent(waiting.valid, run)
    return await _apply_approval(waiting, question, answer, cause, run)


async def _apply_approval(
    waiting: Waiting, question: Question, answer: Answer, cause: int | None, run: RunContext
) -> PermittedCall | Waiting | Failure:
    changes_since = detect_drift(question, run)
    if changes_since:
        return await ask_again(waiting.valid, question, changes_since, run)
    exact = canonicalize(waiting.valid, question)
    if isinstance(exact, Failure):
        return exact
    valid, payload_hash = exact
    if payload_hash != question.payload_hash or not payload_matches(question):
        return payload_changed(question, payload_hash)
    if not _is_recorded_answer(question, answer, run):
        lost = Change("your answer", "as you wrote it", "not in the log as you wrote it")
        return await ask_again(valid, question, (lost,), run)
    granted = PermittedCall(
        valid,
        waiting.decision,
        cause,
        question.action_id,
        payload_hash=payload_hash,
        bound=question.bound,
        edited_by=question.edited_by,
        keep=answer.rule if answer.scope == "rule" else "",
    )
    own = _written_arguments(question, answer, valid)
    return granted if own is None else await _apply_written_arguments(granted, own, question, answer, run)


async def recheck_before_start(
    permitted: PermittedCall, context: ToolContext, run: RunContext
) -> PermittedCall | Waiting | Failure:
    """Right before the start: what may have changed since the call was permitted."""
    valid, seconds = permitted.valid, run.parts.limits.check_seconds
    if permitted.action_id:
        question = run.ledger.actions[permitted.action_id].question
        changes_since = detect_drift(msgspec.structs.replace(question, bound=permitted.bound), run)
        if changes_since:
            return await ask_again(valid, question, changes_since, run)
        failure = await check_state(valid, context, seconds)
        if failure is not None:
            return failure
        context.bound = permitted.bound.surroundings
    if valid.tool.input_guardrails:
        reason = await run_guardrails(valid.tool.input_guardrails, valid.copy(), context, seconds)
        if reason is not None:
            return guardrail_failure(valid, reason)
    return permitted if valid.tool.consent is None else await use_consent(permitted, context, run)


async def _ask(waiting: Waiting, question: Question, run: RunContext) -> PermittedCall | Waiting | Failure:
    parts, valid = run.parts, waiting.valid
    if question.expires_at and parts.clock.now() >= question.expires_at:
        return _expired(question, run)
    was_asked = question.action_id in run.ledger.actions
    changes_since = detect_drift(question, run) if was_asked and question.kind != "consent" else ()
    if changes_since:
        return await ask_again(valid, question, changes_since, run)
    objection = await _find_objection(valid, was_asked, run)
    if objection is not None:
        return objection
    if not was_asked:
        run.recorder.add(question_event(question, run), question.call_id)
    if question.kind == "consent":  # the user answers at the provider
        return waiting
    if parts.interaction.interactive or run.recorder.many:  # somebody may see it while others run
        await run.recorder.commit()
    began = parts.clock.elapsed()
    try:
        answer = await ask_provider(question, parts.interaction, parts.clock.now)
    finally:
        run.waited_ns += parts.clock.elapsed() - began
    if answer is None:
        return waiting
    if problem := _rule_problem(question, answer, parts):
        answer = Answer(approved=False, reason=problem, by=answer.by)
    return await apply_answer(waiting, question, answer, record_answer(question, answer, run), run)


async def _find_objection(valid: ValidCall, was_asked: bool, run: RunContext) -> Failure | None:
    """What refuses the call before anybody is asked about it."""
    limits, guardrails = run.parts.limits, valid.tool.input_guardrails
    if not was_asked and _has_too_many_questions(run):
        return too_many_questions(valid.tool.name, limits.max_open_questions)
    if not (limits.guardrails_before_approval and guardrails):
        return None
    context = run.context(valid.known.accepted.intent)
    reason = await run_guardrails(guardrails, valid.copy(), context, limits.check_seconds)
    return None if reason is None else guardrail_failure(valid, reason)


def _has_too_many_questions(run: RunContext) -> bool:
    most = run.parts.limits.max_open_questions
    if most is None:
        return False
    return sum(action.state is ActionState.PENDING for action in run.ledger.actions.values()) >= most


async def require_consent(valid: ValidCall, decision: Decision, run: RunContext) -> Waiting | Failure | None:
    """A tool that acts for a user elsewhere waits until that user let it. None: they did, or nothing would come of
    it."""
    if decision.verdict is Verdict.DENY:
        return None
    token = await _token(valid, run)
    if isinstance(token, str):
        return None
    return token if isinstance(token, Failure) else _wait_for_consent(valid, decision, run)


async def use_consent(
    permitted: PermittedCall, context: ToolContext, run: RunContext
) -> PermittedCall | Waiting | Failure:
    """Right before the start: what lets the tool act for the user, which they may have taken back meanwhile."""
    valid, token = permitted.valid, await _token(permitted.valid, run)
    match token:
        case str():
            context.access_token = token
            return permitted
        case Failure():
            return token
        case None:
            if permitted.action_id:
                taken_back = Change("consent", "given", "not there any more")
                question = run.ledger.actions[permitted.action_id].question
                run.recorder.add(void_event(question, (taken_back,), run), valid.call_id)
            return _wait_for_consent(valid, permitted.decision, run)


async def _token(valid: ValidCall, run: RunContext) -> str | Failure | None:
    consent, tool, consents = valid.tool.consent, valid.tool.name, run.parts.consents
    if consent is None or not consents.asks:
        return consent_unavailable(tool, "nobody can be asked for one here.")
    if not run.situation.requester:
        return consent_unavailable(tool, "the run acts for nobody.")
    try:
        return await asyncio.wait_for(consents.token(_binding(valid, run), consent), run.parts.limits.check_seconds)
    except Exception as error:  # also of whoever keeps the tokens: the run goes on, and this call is refused
        return consent_unavailable(tool, f"{consent.provider} could not be asked: {error_text(error)}.")


def _binding(valid: ValidCall, run: RunContext) -> ConsentBinding:
    """Return what a consent to this call is given for: this definition of the tool, of the agent that acts now, in the
    run of the agent that it began with, inside the agents around it."""
    situation = run.situation
    began = run.ledger.agent or situation.agent
    acting = () if situation.agent == began else (situation.agent,)
    return ConsentBinding(
        user=situation.requester,
        agent=agent_path((*situation.parent_agents, began, *acting)),
        tool=valid.tool.name,
        definition=definition_digest(valid.tool),
    )


def _wait_for_consent(valid: ValidCall, decision: Decision, run: RunContext) -> Waiting:
    parts = run.parts
    question = build_consent_question(
        valid, _binding(valid, run), run.situation, parts.clock.now(), parts.limits.consent_seconds
    )
    waits = consent_decision(decision, question)
    run.recorder.add(permission_event(valid.call_id, valid.tool, waits, run), valid.call_id)
    return Waiting(valid, waits, question)


async def _after_consent(valid: ValidCall, run: RunContext) -> PermittedCall | Waiting | Failure:
    """Consent is one thing and permission another: what policy says counts as if nobody had been asked yet."""
    decision = apply_grants(
        valid, await evaluate(valid, run.parts.policy, run.situation, run.parts.limits.check_seconds), run
    )
    cause = run.recorder.add(permission_event(valid.call_id, valid.tool, decision, run), valid.call_id)
    permitted = permit(valid, decision, cause)
    return permitted if permitted is not None else require_approval(valid, decision, run)


async def ask_again(
    valid: ValidCall, question: Question, changes: tuple[Change, ...], run: RunContext, edited_by: str = ""
) -> PermittedCall | Waiting | Failure:
    """Void the question, and look up, validate and judge the call as it is now: with the model's arguments, or with
    those of a person who edited them for others to approve."""
    editor = edited_by or question.edited_by
    cause = run.recorder.add(void_event(question, changes, run, edited_by), valid.call_id)
    known = lookup(valid.known.accepted, run.parts.registry, run.situation)
    arguments_json = encode(valid.arguments) if editor else valid.known.accepted.arguments_json
    again = known if isinstance(known, Failure) else validate(known, arguments_json)
    if isinstance(again, Failure):
        resume_if_unblocked(cause, run)
        return again
    decision = await evaluate(again, run.parts.policy, run.situation, run.parts.limits.check_seconds)
    if question.layer != RECOVERY:
        decision = apply_grants(again, decision, run)
    elif decision.verdict in (Verdict.ALLOW, Verdict.ASK):
        decision = repeat_decision(again.tool.name, decision)
    else:
        resume_if_unblocked(cause, run)
        return unknown_outcome(again.tool.name, "and policy does not let it run again")
    cause = run.recorder.add(permission_event(valid.call_id, again.tool, decision, run), valid.call_id)
    permitted = permit(again, decision, cause)
    if permitted is not None:
        resume_if_unblocked(cause, run)
        is_edited = editor and isinstance(permitted, PermittedCall)
        return msgspec.structs.replace(permitted, edited_by=editor) if is_edited else permitted
    held = require_approval(again, decision, run)
    if isinstance(held, Failure) or held.question is None:
        return held
    asked_again = msgspec.structs.replace(held.question, changes=changes, replaces=question.action_id, edited_by=editor)
    return msgspec.structs.replace(held, question=asked_again)


def _is_recorded_answer(question: Question, answer: Answer, run: RunContext) -> bool:
    written = run.ledger.actions[question.action_id].written_hash
    return hash_of_answer(question.payload_hash, answer.arguments, answer.value) == written


def _written_arguments(question: Question, answer: Answer, valid: ValidCall) -> JsonObject | None:
    """What the person wrote: a value that was asked for, or arguments that they edited."""
    if question.kind == "input":
        return {**valid.arguments, question.target_arg: answer.value}
    return answer.arguments


async def _apply_written_arguments(
    granted: PermittedCall, arguments: JsonObject, question: Question, answer: Answer, run: RunContext
) -> PermittedCall | Waiting | Failure:
    """Validated, judged, bound and hashed anew, as if the model had sent it."""
    valid = validate(granted.valid.known, encode(arguments))
    if isinstance(valid, Failure) and question.kind == "approval":
        return await ask_again(granted.valid, question, (Change("your arguments", "edited", valid.message),), run)
    if isinstance(valid, Failure):
        return valid
    decision = await evaluate(valid, run.parts.policy, run.situation, run.parts.limits.check_seconds)
    # A value that a rule wants is what the person just gave; edited arguments do not stand for one.
    if decision.verdict is Verdict.DENY or (decision.verdict is Verdict.REQUEST_INPUT and question.kind == "approval"):
        return denied_by_policy(valid, decision)
    if answer.arguments is not None and _needs_second_person(valid, decision, question, run):
        editor = answer.by or "a person"
        edited = Change("arguments", "as the model wrote them", f"edited by {editor}")
        return await ask_again(valid, question, (edited,), run, editor)
    now_bound = bind_approval(valid, decision, run)
    exact = canonicalize(valid, msgspec.structs.replace(question, bound=now_bound))
    if isinstance(exact, Failure):
        return exact
    return msgspec.structs.replace(
        granted,
        valid=exact[0],
        payload_hash=exact[1],
        bound=now_bound,
        edited_by=(answer.by or "a person") if answer.arguments is not None else "",
    )


def _needs_second_person(valid: ValidCall, decision: Decision, question: Question, run: RunContext) -> bool:
    """Return whether whoever edited the call may not be the one who approves it."""
    if decision.verdict is not Verdict.ASK and question.layer != RECOVERY:
        return False
    held = require_approval(valid, decision, run)
    if isinstance(held, Failure) or held.question is None:
        return False
    return needs_second_person(held.question.risk, question.layer, run.parts.limits.four_eyes)


def _expired(question: Question, run: RunContext) -> Failure:
    answer = Answer(approved=False, reason="Nobody answered in time.", expired=True, by="clock")
    record_answer(question, answer, run)
    return rejection_failure(question, answer)


def _rule_problem(question: Question, answer: Answer, parts: Parts) -> str:
    """Return why the rule of this answer may not be kept; empty when it may, or when there is none."""
    if not answer.approved or answer.scope != "rule":
        return ""
    return parts.find_rule_problem(answer.rule, question.suggested_rule)


def validate_answer(question: Question, answer: Answer, parts: Parts) -> str:
    """Why this cannot be the answer, said to the person while the question is still open; empty when it can."""
    if question.kind == "consent":
        return find_answer_problem(question, answer)
    if not payload_matches(question):
        return "The question in the log is not what its payload hash is of, so nobody can say yes to it."
    fault = find_answer_problem(question, answer) or _rule_problem(question, answer, parts)
    tool = parts.registry.find(question.tool_name)
    written = _arguments_to_check(question, answer)
    if fault or written is None or tool is None:
        return fault
    intent = ToolIntent(call_id=question.call_id, tool_name=question.tool_name, arguments=None)
    arguments_json = encode(written)
    checked = validate(KnownCall(AcceptedCall(intent, written, arguments_json), tool), arguments_json)
    return neutralize(checked.message) if isinstance(checked, Failure) else ""


def _arguments_to_check(question: Question, answer: Answer) -> JsonObject | None:
    """The arguments as they would be with what the person wrote; None: they wrote nothing, or they are not known."""
    if question.kind != "input":
        return answer.arguments
    if not answer.approved or question.arguments.keys() == {"redacted"}:
        return None
    return {**question.arguments, question.target_arg: answer.value}


async def keep_rule(permitted: PermittedCall, run: RunContext) -> None:
    """Keep the rule that a person wanted with their approval. All ways to answer come through here.

    It holds from the next call on; this one started with the approval itself. It is recorded before it is kept. When
    it cannot be recorded or kept, the log says so, and the call goes on: it was approved.
    """
    parts, policy, call_id = run.parts, run.parts.policy, permitted.valid.call_id
    action = run.ledger.actions[permitted.action_id]
    change = RuleChange(
        run_id=run.ledger.run_id,
        agent=run.situation.agent,
        action_id=permitted.action_id,
        by=action.answer.by if action.answer is not None else "",
        rule=permitted.keep,
        before=str(getattr(policy, "digest", "")),
    )
    recorded = False
    try:
        problem = parts.find_rule_problem(change.rule, action.question.suggested_rule)
        keep = getattr(policy, "keep", None)
        if problem or keep is None:
            raise ConfigurationError(problem or "this policy keeps no rules")
        preview = getattr(policy, "preview_keep", None)
        if preview is not None:
            change = msgspec.structs.replace(change, after=await _run_policy_work(preview, change.rule, run))
        await parts.record_rule(change)
        recorded = True
        await _run_policy_work(keep, change.rule, run)
    except Exception as error:
        problem = redact_line(error_text(error), parts.redactor.redact)
        message = f"The call was approved once, but its rule was not kept: {problem}."
        run.recorder.add(Warned(message=message, call_id=call_id), call_id)
        if recorded:
            with suppress(Exception):  # it was said in the run's log
                await parts.record_rule(msgspec.structs.replace(change, problem=problem))


async def _run_policy_work(work: Callable[[str], Any], rule: str, run: RunContext) -> Any:
    """Files are read and written: in a thread, and not for ever."""
    return await asyncio.wait_for(run.parts.sandbox.call(partial(work, rule)), run.parts.limits.check_seconds)
