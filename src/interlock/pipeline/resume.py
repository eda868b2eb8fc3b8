"""Resumption of calls that are already in the log.

An answered question is not asked again, a finished call is not run again, and a call that started and has no recorded
end is never run again silently: only when the tool says that it is idempotent, or its `reconcile` says that nothing
happened.
"""

import asyncio

import msgspec

from ..domain.call import PermittedCall, ToolIntent, ValidCall, WaitingCall
from ..domain.decision import Decision, Verdict
from ..domain.errors import ArtifactError
from ..domain.event import CallProposed, InvocationCompleted, InvocationStarted, InvocationSuspended, decode_event
from ..domain.ids import child_run_id
from ..domain.json import InvalidJsonError, encode, parse
from ..domain.observation import Observation
from ..domain.outcome import UNKNOWN_SIDE_EFFECTS, Failure, SideEffects
from ..domain.state.ledger import ActionEntry, CallEntry
from ..domain.state.lifecycle import ActionState, CallState
from .accept import Received
from .approval.answer import apply_answer
from .approval.question import repeat_decision
from .approval.recheck import revalidate
from .artifacts import use_store
from .call import prepare_call
from .context import RunContext
from .effects import reconcile
from .events import record_observation, record_repeat
from .permit import judge, permission_event, permit
from .refusals import denied_before, rejection_failure, unknown_outcome
from .validate import validate

#: How many events after a proposal are searched for the decision about it.
_MAX_EVENTS_READ = 1_000


async def resume_call(
    received: Received, entry: CallEntry, run: RunContext
) -> PermittedCall | WaitingCall | Failure | Observation:
    """Continue a recorded call: replay its observation, apply the answer, or ask again."""
    if entry.state is CallState.OBSERVED:
        record_repeat(received, run)
        observation = await run.read_observation(entry.observed_seq)
        _count_replay(observation, entry, run)
        return observation
    action = run.ledger.actions.get(entry.action_id)
    if action is not None and action.state in _ANSWERED:
        return await _resume_asked(received, action, run)
    return await _resume_unanswered(received, entry, run)


async def _resume_unanswered(
    received: Received, entry: CallEntry, run: RunContext
) -> PermittedCall | WaitingCall | Failure | Observation:
    """Resume from the recorded state. A call that started and has no recorded end may have happened, so it is never
    treated as a new one.
    """
    if entry.is_outcome_unknown:
        return await _recover(received, run)
    match entry.state:
        case CallState.SUSPENDED:
            return _resume_child(received, entry, run)
        case CallState.ENDED:
            return await _report_end(received.intent.call_id, entry, run)
        case CallState.PERMITTED:
            return await _resume_permitted(received, entry, run)
        case CallState.REFUSED:
            valid = revalidate(received.outcome, run)
            return valid if isinstance(valid, Failure) else denied_before(entry.tool)
        case _:
            return await prepare_call(received, run)


async def _report_end(call_id: str, entry: CallEntry, run: RunContext) -> Failure | Observation:
    """Report a call whose end is recorded and whose observation is not: its process died between the two."""
    for logged in await run.log.read(run.ledger.run_id, entry.proposed_seq, _MAX_EVENTS_READ):
        fact = decode_event(logged).fact
        if isinstance(fact, InvocationCompleted) and fact.call_id == call_id and fact.exit == "ok":
            return record_observation(_done_before(call_id, entry.tool, fact.side_effects), run)
    message = f"{entry.tool} ended, and the run stopped before its result was recorded. It is not run again."
    return Failure.from_code("outcome_unknown", message)


def _done_before(call_id: str, tool_name: str, side_effects: SideEffects) -> Observation:
    summary = f"{tool_name} had been done before the run stopped; its output was not recorded."
    return Observation(call_id=call_id, tool=tool_name, ok=True, summary=summary, side_effects=side_effects)


async def _resume_permitted(
    received: Received, entry: CallEntry, run: RunContext
) -> PermittedCall | WaitingCall | Failure | Observation:
    """Resume a call that was allowed and waited behind another one: a decision that is still the same is not recorded
    again.
    """
    valid = revalidate(received.outcome, run)
    if isinstance(valid, Failure) or valid.tool.check is not None:
        return await prepare_call(received, run)
    decision = await judge(valid, run)
    event = permission_event(valid.call_id, valid.tool, decision, run)
    for logged in await run.log.read(run.ledger.run_id, entry.proposed_seq, _MAX_EVENTS_READ):
        if (known := decode_event(logged)).fact == event and decision.verdict is Verdict.ALLOW:
            record_repeat(received, run)
            return PermittedCall(valid, decision, known.seq)
    return await prepare_call(received, run)


def arguments_lost(entry: CallEntry, run: RunContext) -> Failure:
    """Return the failure of a call whose recorded arguments differ from the model's: they held a secret, or were
    changed.
    """
    action = run.ledger.actions.get(entry.action_id)
    if action is not None and action.answer is not None and not action.answer.approved:
        return rejection_failure(action.question, action.answer)
    if entry.is_outcome_unknown or entry.state in (CallState.ENDED, CallState.SUSPENDED):
        return unknown_outcome(entry.tool, "and its arguments are not in the log as the model wrote them")
    message = (
        f"The arguments of {entry.tool} are not in the log as the model wrote them: what looks like a secret is not "
        "written down, so the call cannot be resumed. Nothing was executed. Propose it again, without the secret."
    )
    return Failure.from_code("payload_changed", message)


async def open_intents(run: RunContext) -> list[ToolIntent]:
    """Return the intents of the calls that have no observation yet, in model order, as the log has them."""
    return [await _recorded_intent(call_id, run) for call_id in run.ledger.open_calls()]


_ANSWERED = frozenset({ActionState.PENDING, ActionState.APPROVED, ActionState.REJECTED, ActionState.EXPIRED})


async def _resume_asked(
    received: Received, action: ActionEntry, run: RunContext
) -> PermittedCall | WaitingCall | Failure:
    """Resume a call that was asked about: the stored answer applies, whatever the policy would say now."""
    question, answer = action.question, action.answer
    if answer is not None and not answer.approved:
        return rejection_failure(question, answer)
    valid = revalidate(received.outcome, run)
    if question.edited_by and not isinstance(valid, Failure):
        valid = validate(valid.known, encode(question.arguments))
    if isinstance(valid, Failure):
        return valid
    reason = f"Asked as {question.action_id}."
    decision = Decision(verdict=Verdict.ASK, reason=reason, rule_ids=question.rule_ids, risk=question.risk)
    decision = msgspec.structs.replace(decision, effect=question.effect)
    waiting = WaitingCall(valid, decision, question)
    return waiting if answer is None else await apply_answer(waiting, question, answer, None, run)


def _resume_child(received: Received, entry: CallEntry, run: RunContext) -> PermittedCall | Failure:
    """Resume a permitted and started call: its child run continues where it stopped."""
    valid = revalidate(received.outcome, run)
    if isinstance(valid, Failure):
        child = entry.child_run_id
        message = f"{entry.tool} started, and {child} inside it cannot go on: {valid.code}. What it did stays done."
        return Failure.from_code("outcome_unknown", message)
    reason = f"It was permitted before, and continues with {entry.child_run_id}."
    return PermittedCall(valid, Decision(verdict=Verdict.ALLOW, reason=reason))


def _resume_started_child(received: Received, run: RunContext) -> PermittedCall | Failure:
    """Resume a call whose process died during its child run: the child's log says how far it came."""
    call_id = received.intent.call_id
    child = child_run_id(run.ledger.run_id, call_id)
    run.recorder.add(InvocationSuspended(invocation_id="", call_id=call_id, child_run_id=child), call_id)
    return _resume_child(received, run.ledger.calls[call_id], run)


async def _recover(received: Received, run: RunContext) -> PermittedCall | WaitingCall | Failure | Observation:
    """Recover a call that started and whose process is gone."""
    valid = revalidate(received.outcome, run)
    if isinstance(valid, Failure):
        return unknown_outcome(received.intent.tool_name, "and the tool is not available now to say more")
    if valid.tool.resumes:
        return _resume_started_child(received, run)
    if valid.tool.read_only:
        return await prepare_call(received, run)
    if _ran_with_edited_arguments(valid.call_id, run):
        return unknown_outcome(valid.tool.name, "with arguments that a person had written")
    return await _repeat(received, valid, run)


async def _repeat(
    received: Received, valid: ValidCall, run: RunContext
) -> PermittedCall | WaitingCall | Failure | Observation:
    """Run the call again where that is safe; else act on what is found out about it."""
    happened = False if valid.tool.idempotent else await _find_applied_trial(valid, run)
    if happened is None:
        happened = await reconcile(valid, run)
    if happened is None:
        return await _ask_or_report(valid, run)
    if happened is False:
        return await prepare_call(received, run)
    return record_observation(_done_before(valid.call_id, valid.tool.name, UNKNOWN_SIDE_EFFECTS), run)


async def _find_applied_trial(valid: ValidCall, run: RunContext) -> bool | None:
    """Return whether the tried effect that the call was to apply was applied; None when it was not tried."""
    runner = valid.tool.trial
    entries = await run.log.read(run.ledger.run_id, run.ledger.calls[valid.call_id].started_seq - 1, 1)
    started = decode_event(entries[0]).fact
    if runner is None or not isinstance(started, InvocationStarted) or not started.trial:
        return None
    try:
        return await asyncio.to_thread(runner.was_applied, started.trial)
    except Exception:
        return None  # then it is an unknown outcome, like any other


def _ran_with_edited_arguments(call_id: str, run: RunContext) -> bool:
    """Return True if a person edited the arguments, so the model's say nothing about what happened."""
    actions = run.ledger.actions.values()
    return any(action.written_hash and action.question.call_id == call_id for action in actions)


async def _ask_or_report(valid: ValidCall, run: RunContext) -> PermittedCall | WaitingCall | Failure:
    """Handle an unknown outcome: report it, or ask a person whether the call may run again."""
    if run.parts.fail_safe.unknown_outcome_policy == "ask":
        decision = await judge(valid, run)
        if decision.verdict in (Verdict.ALLOW, Verdict.ASK):
            asking = repeat_decision(valid.tool.name, decision)
            return permit(valid, asking, run)
    return unknown_outcome(valid.tool.name, "so whether it happened is not known")


def _count_replay(observation: Observation, entry: CallEntry, run: RunContext) -> None:
    if entry.latency_ms is not None:
        result = "success" if observation.ok else "error"
        run.parts.telemetry.call_finished(entry.tool, result, "replay", entry.latency_ms)


async def _recorded_intent(call_id: str, run: RunContext) -> ToolIntent:
    """Return the recorded intent. Arguments that could not be stored come back in redacted form, so their digest
    differs and the call is refused.
    """
    entry = run.ledger.calls[call_id]
    entries = await run.log.read(run.ledger.run_id, entry.proposed_seq - 1, 1)
    fact = decode_event(entries[0]).fact
    assert isinstance(fact, CallProposed)  # noqa: S101 - the ledger took the seq from this very event
    arguments, artifacts = fact.raw_input, run.parts.artifacts
    if fact.raw_artifact_id:
        try:
            arguments = parse(await use_store(artifacts, artifacts.read, fact.raw_artifact_id))
        except (ArtifactError, InvalidJsonError):
            arguments = ""
    return ToolIntent(call_id=call_id, tool_name=fact.tool, arguments=arguments, reason=fact.reason)
