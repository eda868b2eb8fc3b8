"""Evaluate a call again when its approval is void, and recheck everything right before the start."""

import msgspec

from ...domain.call import AcceptedCall, PermittedCall, Question, ValidCall, WaitingCall
from ...domain.decision import QUESTION_VERDICTS, RECOVERY_LAYER, Decision, Verdict
from ...domain.effect import Effect
from ...domain.json import encode
from ...domain.outcome import Failure
from ...domain.payload import BindingChange
from ...domain.tool import ToolContext
from ..budgets import release_budgets, reserve_budgets
from ..context import RunContext
from ..effects import claim_effect
from ..events import resume_if_unblocked, void_event
from ..lookup import lookup
from ..permit import judge, permit, run_guardrails
from ..refusals import guardrail_failure, unknown_outcome
from ..validate import check_state, validate
from .binding import detect_drift
from .consent import use_consent
from .question import repeat_decision
from .trial import find_trial_drift


async def recheck_before_start(
    permitted: PermittedCall, context: ToolContext, run: RunContext
) -> PermittedCall | WaitingCall | Failure:
    """Check right before the start whether anything changed since the call was permitted."""
    valid = permitted.valid
    if permitted.action_id:
        if valid.tool.toolbox is not None:
            await valid.tool.toolbox.refresh(valid.tool.name)
        question = run.ledger.actions[permitted.action_id].question
        bound = msgspec.structs.replace(question, bound=permitted.bound)
        changes_since = await find_changes(valid, permitted.decision, bound, run)
        if changes_since:
            return await ask_again(valid, question, changes_since, run)
        failure = await check_state(valid, context, run.parts)
        if failure is not None:
            return failure
        context.bound = permitted.bound.surroundings
    if valid.tool.input_guardrails:
        reason = await run_guardrails(valid.tool.input_guardrails, valid.copy_arguments(), context, run)
        if reason is not None:
            return guardrail_failure(valid, reason)
    if valid.tool.consent is not None:
        outcome = await use_consent(permitted, context, run)
        if outcome is not permitted:
            return outcome
    effect = permitted.decision.effect
    return permitted if effect is None or not effect.digest else await _claim(permitted, effect, run)


async def find_changes(
    valid: ValidCall, decision: Decision, question: Question, run: RunContext
) -> tuple[BindingChange, ...]:
    """Return what the question is bound to and differs now. A policy that differs by a rule that was saved with another
    answer of this run, and asks about this call the same as before, is none.
    """
    changes = detect_drift(question, run)
    named = {change.what for change in changes}
    changes += tuple(change for change in await find_trial_drift(question, valid) if change.what not in named)
    is_kept_rule = len(changes) == 1 and changes[0].what == "policy"
    if not is_kept_rule or (changes[0].was, changes[0].now) not in run.executions.kept_rules:
        return changes
    again = await judge(valid, run)
    again = msgspec.structs.replace(again, policy_digest=decision.policy_digest, budgets=decision.budgets)
    return () if again == decision else changes


async def reserve_before_start(permitted: PermittedCall, run: RunContext) -> PermittedCall | WaitingCall | Failure:
    """Reserve the budgets of the call, when nothing else can refuse it. What does not fit any more is judged again."""
    valid = permitted.valid
    charges = await reserve_budgets(permitted, run)
    if isinstance(charges, Failure):
        return charges
    if charges is None:
        if not permitted.action_id:
            outcome = permit(valid, await judge(valid, run), run)
            is_edited = permitted.edited_by and isinstance(outcome, PermittedCall)
            return msgspec.structs.replace(outcome, edited_by=permitted.edited_by) if is_edited else outcome
        question = run.ledger.actions[permitted.action_id].question
        used = BindingChange("budget", "enough left", "not enough left for this call")
        return await ask_again(valid, question, (used,), run, permitted.edited_by)
    cancelled = run.cancellation.failure_of(valid.call_id)
    if cancelled is not None and charges:
        await release_budgets(charges, run)
    return cancelled or permitted


async def _claim(permitted: PermittedCall, effect: Effect, run: RunContext) -> PermittedCall | WaitingCall | Failure:
    """Claim the effect of the call, as the last check. When another call claimed it meanwhile, judge this one again."""
    valid = permitted.valid
    while not await claim_effect(permitted, effect, run):
        decision = await judge(valid, run)
        if not permitted.action_id:
            return permit(valid, decision, run)
        question = run.ledger.actions[permitted.action_id].question
        again = decision.effect
        if again is None or again.earlier != effect.earlier:
            claimed = BindingChange("effect", effect.key, "claimed by another call since the question")
            return await ask_again(valid, question, (claimed,), run, question.edited_by)
        effect = again
    return permitted


async def ask_again(
    valid: ValidCall, question: Question, changes: tuple[BindingChange, ...], run: RunContext, edited_by: str = ""
) -> PermittedCall | WaitingCall | Failure:
    """Void the question; look up, validate and evaluate the call again, with the model's arguments or with edited ones
    that others have to approve.
    """
    editor = edited_by or question.edited_by
    cause = run.recorder.add(void_event(question, changes, run, edited_by), valid.call_id)
    arguments_json = encode(valid.arguments) if editor else valid.known.accepted.arguments_json
    again = revalidate(valid.known.accepted, run, arguments_json)
    if isinstance(again, Failure):
        resume_if_unblocked(cause, run)
        return again
    is_repeat = question.layer == RECOVERY_LAYER
    decision = await judge(again, run)
    if is_repeat:
        if decision.verdict not in (Verdict.ALLOW, Verdict.ASK):
            resume_if_unblocked(cause, run)
            return unknown_outcome(again.tool.name, "and policy does not let it run again")
        decision = repeat_decision(again.tool.name, decision)
    outcome = permit(again, decision, run)
    if decision.verdict not in QUESTION_VERDICTS:
        resume_if_unblocked(run.ledger.next_seq - 1, run)
    if isinstance(outcome, PermittedCall):
        return msgspec.structs.replace(outcome, edited_by=editor) if editor else outcome
    if isinstance(outcome, Failure) or outcome.question is None:
        return outcome
    asked_again = msgspec.structs.replace(
        outcome.question, changes=changes, replaces=question.action_id, edited_by=editor
    )
    if editor:
        asked_again = msgspec.structs.replace(asked_again, approver="person")
    return msgspec.structs.replace(outcome, question=asked_again)


def revalidate(
    accepted: AcceptedCall | Failure, run: RunContext, arguments_json: bytes | None = None
) -> ValidCall | Failure:
    """Look up and validate a call again, as the tools are now: with the model's arguments, or with others."""
    if isinstance(accepted, Failure):
        return accepted
    known = lookup(accepted, run.parts.registry, run.situation)
    if isinstance(known, Failure):
        return known
    return validate(known, accepted.arguments_json if arguments_json is None else arguments_json)
