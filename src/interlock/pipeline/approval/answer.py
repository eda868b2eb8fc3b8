"""Ask a person about a call, and apply their answer.

A question is bound to one payload: the arguments, and everything around them that the decision was about. What runs
after an approval is read back from the bytes that were hashed. When something that the question is bound to changed
before the answer or before the start, the question is void: the call is evaluated again, and the next question shows
what changed. A stored answer itself is never evaluated again.
"""

import asyncio
from collections.abc import Callable

import msgspec

from ...domain.call import AcceptedCall, Answer, KnownCall, PermittedCall, Question, ToolIntent, ValidCall, WaitingCall
from ...domain.decision import (
    APPROVAL_SCOPES,
    QUESTION_VERDICTS,
    RECOVERY_LAYER,
    Decision,
    FourEyes,
    Verdict,
    needs_second_person,
)
from ...domain.event import WarningRaised
from ...domain.json import InvalidJsonError, check_value, encode
from ...domain.outcome import Failure
from ...domain.payload import (
    BindingChange,
    hash_answer,
)
from ...domain.rendering import neutralize
from ...domain.tool import (
    JsonObject,
)
from ...interaction.interface import InteractionProvider
from ...rendering.text import describe_error
from ..context import RunContext
from ..events import question_event, record_answer
from ..parts import Parts
from ..permit import judge, permit, run_guardrails
from ..refusals import denied_by_policy, guardrail_failure, payload_changed, rejection_failure, too_many_questions
from ..validate import validate
from .binding import bind_approval, canonicalize, payload_matches
from .question import require_approval, requires_person
from .recheck import ask_again, find_changes
from .trial import discard_trial

#: How often one call is asked about again because its binding changed before the answer.
_MAX_ASKED = 5


async def wait_for_answer(
    waiting: WaitingCall, question: Question, run: RunContext
) -> PermittedCall | WaitingCall | Failure:
    """Wait until a person answers, or return the waiting call when the question stays open."""
    for _ in range(_MAX_ASKED):
        outcome = await _ask(waiting, question, run)
        if not isinstance(outcome, WaitingCall) or outcome.question is None or outcome.question is question:
            return outcome
        if outcome.is_to_try:
            return outcome
        waiting, question = outcome, outcome.question
    return payload_changed(question, "something that keeps changing")


async def apply_answer(
    waiting: WaitingCall, question: Question, answer: Answer, cause: int | None, run: RunContext
) -> PermittedCall | WaitingCall | Failure:
    """Apply a stored answer. The answer itself is never evaluated again; what a person wrote is new input, so it must
    be valid and no rule may deny it.
    """
    if not answer.approved:
        await discard_trial(question, waiting.valid)
        return rejection_failure(question, answer)
    if question.kind == "consent":
        return await _after_consent(waiting.valid, run)
    return await _apply_approval(waiting, question, answer, cause, run)


async def _apply_approval(
    waiting: WaitingCall, question: Question, answer: Answer, cause: int | None, run: RunContext
) -> PermittedCall | WaitingCall | Failure:
    changes_since = await find_changes(waiting.valid, waiting.decision, question, run)
    if changes_since:
        return await ask_again(waiting.valid, question, changes_since, run)
    exact = canonicalize(waiting.valid, question)
    if isinstance(exact, Failure):
        return exact
    valid, payload_hash = exact
    if payload_hash != question.payload_hash or not payload_matches(question):
        return payload_changed(question, payload_hash)
    if not _is_recorded_answer(question, answer, run):
        lost = BindingChange("your answer", "as you wrote it", "not in the log as you wrote it")
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


async def _after_consent(valid: ValidCall, run: RunContext) -> PermittedCall | WaitingCall | Failure:
    """Apply policy after a consent. Consent does not imply permission: the policy decision counts as before."""
    return permit(valid, await judge(valid, run), run)


async def _ask(waiting: WaitingCall, question: Question, run: RunContext) -> PermittedCall | WaitingCall | Failure:
    parts, valid = run.parts, waiting.valid
    if question.expires_at and parts.clock.now() >= question.expires_at:
        return await _expired(waiting, question, run)
    was_asked = question.action_id in run.ledger.actions
    is_bound = was_asked and question.kind != "consent"
    if is_bound and (changes_since := await find_changes(valid, waiting.decision, question, run)):
        return await ask_again(valid, question, changes_since, run)
    objection = await _find_objection(valid, was_asked, run)
    if objection is not None:
        return objection
    if not was_asked:
        run.recorder.add(question_event(question, run), question.call_id)
    if question.kind == "consent":  # the user answers at the provider
        return waiting
    if parts.interaction.interactive or run.recorder.calls_under_way > 1:  # it can be answered while other calls run
        if run.hold is not None:
            await run.hold()
        await run.recorder.commit()
    began = parts.clock.elapsed()
    try:
        answer = await ask_provider(question, parts.interaction, parts.clock.now)
    finally:
        run.executions.waited_ns += parts.clock.elapsed() - began
    answer = answer and _filter_answer(question, answer, run)
    if answer is None or not await _claim(question, answer, run):
        return waiting
    return await apply_answer(waiting, question, answer, record_answer(question, answer, run), run)


def _filter_answer(question: Question, answer: Answer, run: RunContext) -> Answer | None:
    """Return the answer of a provider, or a rejection when its rule may not be saved. None: the question stays open,
    because only a client answered.
    """
    if problem := find_claim_problem(question, answer, run.parts.limits.four_eyes):
        warning = WarningRaised(message=f"An answer was not taken: {problem}", call_id=question.call_id)
        run.recorder.add(warning, question.call_id)
        return None
    problem = _rule_problem(question, answer, run.parts)
    return _reject_instead(answer, problem) if problem else answer


async def _find_objection(valid: ValidCall, was_asked: bool, run: RunContext) -> Failure | None:
    """Return what refuses the call before a person is asked about it."""
    limits, guardrails = run.parts.limits, valid.tool.input_guardrails
    if not was_asked and _has_too_many_questions(run):
        return too_many_questions(valid.tool.name, limits.max_open_questions)
    if not (limits.guardrails_before_approval and guardrails):
        return None
    context = run.context(valid.known.accepted.intent)
    reason = await run_guardrails(guardrails, valid.copy_arguments(), context, run)
    return None if reason is None else guardrail_failure(valid, reason)


def _has_too_many_questions(run: RunContext) -> bool:
    most = run.parts.limits.max_open_questions
    if most is None:
        return False
    return len(run.ledger.open_questions()) >= most


async def ask_provider(asked: Question, provider: InteractionProvider, now: Callable[[], int]) -> Answer | None:
    """Return the person's answer; None leaves the question open. A failing provider never approves."""
    try:
        answer = await asyncio.wait_for(provider.ask(asked), _answer_timeout(asked, provider, now))
    except TimeoutError:
        return _timeout_answer(asked, provider, now())
    except Exception as error:
        return Answer(approved=False, reason=f"The question could not be asked: {describe_error(error)}.")
    if answer is None:
        return None
    if not isinstance(answer, Answer):  # pyright: ignore[reportUnnecessaryIsInstance] - a provider is not typed
        return Answer(approved=False, reason=f"The provider answered with {type(answer).__name__}.")
    if asked.needs_person and answer.approved and answer.by == "headless":
        return _reject_instead(answer, "Only a person can say that it may run again.")
    fault = find_answer_problem(asked, answer)
    return _reject_instead(answer, fault) if fault else answer


def _reject_instead(answer: Answer, reason: str) -> Answer:
    """Return the rejection that replaces an answer which does not fit."""
    return Answer(approved=False, reason=reason, by=answer.by, channel=answer.channel, assurance=answer.assurance)


def _answer_timeout(asked: Question, provider: InteractionProvider, now: Callable[[], int]) -> float | None:
    """Return how long to wait: the provider's timeout, or that of the question where it is earlier."""
    seconds = provider.approval_timeout_s
    if not asked.expires_at:
        return seconds
    left = (asked.expires_at - now()) / 1e9
    return left if seconds is None else min(seconds, left)


def _timeout_answer(asked: Question, provider: InteractionProvider, now: int) -> Answer | None:
    """Return the answer when the question times out. An approval cannot replace a value that was never given."""
    if provider.approval_fallback == "wait":
        return None
    is_open = not asked.expires_at or now < asked.expires_at
    may = asked.kind == "approval" and not asked.needs_person and is_open
    approved = provider.approval_fallback == "approve" and may
    return Answer(approved=approved, reason="Nobody answered in time.", expired=True, by="fallback")


def find_answer_problem(asked: Question, answer: Answer) -> str:
    """Return why this cannot be the answer to the question; empty when it can."""
    try:
        check_value(answer.value)
        check_value(answer.arguments)
    except InvalidJsonError as error:
        return f"The value is not JSON: {error}."
    if APPROVAL_SCOPES.index(answer.scope) > APPROVAL_SCOPES.index(asked.scope):
        return f"The widest scope of this question is {asked.scope!r}; the answer has {answer.scope!r}."
    if asked.kind == "consent" and (answer.arguments, answer.value) != (None, None):
        return "A consent is given or refused; it has no arguments and no value."
    if answer.arguments is not None and (asked.kind == "input" or answer.scope != "once"):
        return "Arguments that a person edited are approved once, where an approval was asked for."
    if (answer.scope == "window") != bool(answer.until) or (answer.scope == "rule") != bool(answer.rule):
        return "A window needs its end, and a rule to keep needs its text."
    return ""


def find_claim_problem(asked: Question, answer: Answer, four_eyes: FourEyes) -> str:
    """Return why what a client says does not answer the question; empty when it does, or when a person answered."""
    if not answer.is_from_client:
        return ""
    if requires_person(asked, four_eyes):
        return "Only a person can answer this question, in the console, over REST or with `interlock approvals`."
    if answer.assurance == "claimed" and asked.approver != "client":
        return (
            "A client claims this answer, and the rule that asked wants that of a person. "
            "Answer it in the console, over REST or with `interlock approvals`, or add `approver: client` to the rule."
        )
    if answer.scope != "once" or answer.arguments is not None:
        return "An answer that comes from a client counts once, for the call as it was asked."
    return ""


def validate_answer(question: Question, answer: Answer, parts: Parts) -> str:
    """Return why this cannot be the answer, while the question is still open; empty when it can."""
    if problem := find_claim_problem(question, answer, parts.limits.four_eyes):
        return problem
    if question.kind == "consent":
        return find_answer_problem(question, answer)
    if not payload_matches(question):
        return "The question in the log does not match its payload hash, so it cannot be approved."
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
    """Return the arguments with the person's edits; None: there are no edits, or the arguments are unknown."""
    if question.kind != "input":
        return answer.arguments
    if not answer.approved or question.arguments.keys() == {"redacted"}:
        return None
    return {**question.arguments, question.target_arg: answer.value}


def _is_recorded_answer(question: Question, answer: Answer, run: RunContext) -> bool:
    written = run.ledger.actions[question.action_id].written_hash
    return hash_answer(question.payload_hash, answer.arguments, answer.value) == written


def _written_arguments(question: Question, answer: Answer, valid: ValidCall) -> JsonObject | None:
    """Return what the person wrote: a requested value, or edited arguments."""
    if question.kind == "input":
        return {**valid.arguments, question.target_arg: answer.value}
    return answer.arguments


async def _apply_written_arguments(
    granted: PermittedCall, arguments: JsonObject, question: Question, answer: Answer, run: RunContext
) -> PermittedCall | WaitingCall | Failure:
    """Validate, evaluate, bind and hash the arguments again, as if the model had sent them."""
    valid = validate(granted.valid.known, encode(arguments))
    if isinstance(valid, Failure) and question.kind == "approval":
        return await ask_again(
            granted.valid, question, (BindingChange("your arguments", "edited", valid.message),), run
        )
    if isinstance(valid, Failure):
        return valid
    decision = await judge(valid, run)
    # A value that a rule wants is what the person just gave; edited arguments do not replace one.
    if decision.verdict is Verdict.DENY or (decision.verdict is Verdict.REQUEST_INPUT and question.kind == "approval"):
        return denied_by_policy(valid, decision)
    needs_other_person = (
        decision.verdict in QUESTION_VERDICTS and decision.approver == "person"
        if answer.is_from_client
        else answer.arguments is not None and _needs_second_person(valid, decision, question, run)
    )
    editor = answer.by or ("a client" if answer.is_from_client else "a person")
    if needs_other_person or not _is_earlier_call_shown(decision, question):
        edited = BindingChange("arguments", "as the model wrote them", f"edited by {editor}")
        return await ask_again(valid, question, (edited,), run, editor)
    now_bound = bind_approval(valid, decision, run)
    exact = canonicalize(valid, msgspec.structs.replace(question, bound=now_bound))
    if isinstance(exact, Failure):
        return exact
    return msgspec.structs.replace(
        granted,
        valid=exact[0],
        decision=msgspec.structs.replace(granted.decision, effect=decision.effect),
        payload_hash=exact[1],
        bound=now_bound,
        edited_by=editor if answer.arguments is not None else "",
    )


def _is_earlier_call_shown(decision: Decision, question: Question) -> bool:
    """Return True unless the written arguments have an effect of an earlier call that the question did not show."""
    effect, shown = decision.effect, question.effect
    if effect is None or not effect.earlier_call_id:
        return True
    return shown is not None and shown.earlier == effect.earlier


def _needs_second_person(valid: ValidCall, decision: Decision, question: Question, run: RunContext) -> bool:
    """Return whether the editor of the call may not be its approver."""
    if decision.verdict is not Verdict.ASK and question.layer != RECOVERY_LAYER:
        return False
    held = require_approval(valid, decision, run)
    if isinstance(held, Failure) or held.question is None:
        return False
    return needs_second_person(held.question.risk, question.layer, run.parts.limits.four_eyes)


async def _expired(waiting: WaitingCall, question: Question, run: RunContext) -> WaitingCall | Failure:
    answer = Answer(approved=False, reason="Nobody answered in time.", expired=True, by="clock")
    if not await _claim(question, answer, run):
        return waiting
    record_answer(question, answer, run)
    return rejection_failure(question, answer)


async def _claim(question: Question, answer: Answer, run: RunContext) -> bool:
    """Return False when an answer from elsewhere was first: it is applied when the log has it."""
    by = run.parts.redactor.redact(answer.by)
    return await run.recorder.claim_answer(question.action_id, approved=answer.approved, by=by)


def _rule_problem(question: Question, answer: Answer, parts: Parts) -> str:
    """Return why the rule of this answer may not be saved; empty when it may, or when there is none."""
    if not answer.approved or answer.scope != "rule":
        return ""
    return parts.find_rule_problem(answer.rule, question.suggested_rule)
