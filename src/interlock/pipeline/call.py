"""The stages of a call: accept, lookup, validate, permit; then schedule, execute, normalize, observe; recorded
throughout.

`prepare_call` goes as far as possible without side effects; a batch prepares all its calls before the first one starts.
`run_call` does the rest for one call. The outcome of every stage is a value: the next stage's type, a `Failure`, or
`WaitingCall`.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import msgspec

from ..domain.call import AcceptedCall, Invocation, KnownCall, PermittedCall, SuspendedCall, ValidCall, WaitingCall
from ..domain.decision import Decision, Verdict
from ..domain.errors import LogError
from ..domain.event import CallObserved, CallValidated
from ..domain.json import InvalidJsonError, check_value, encode
from ..domain.observation import NormalizedResult, Observation, RawResult
from ..domain.outcome import Failure
from ..domain.state.lifecycle import CallState
from ..domain.tool import Diagnose, Diagnostics, JsonObject, ToolContext
from ..rendering.text import end_sentence
from .accept import Received, intent_event, keep_large_arguments
from .approval.consent import require_consent
from .approval.recheck import recheck_before_start, reserve_before_start
from .approval.rules import keep_rule
from .budgets import reserve_changed
from .context import RunContext
from .events import (
    as_recorded,
    end_event,
    record_cancelled,
    record_observation,
    record_warnings,
    summarize_edit,
    suspend_call,
    void_question,
)
from .execute import Execution, execute, outcome_of_stop
from .lookup import lookup
from .normalize import ask_tool, normalize
from .observe import StoreNeededError, add_diagnostics, observe, observe_failure, with_kept, withheld
from .permit import judge, permit, run_guardrails
from .refusals import unknown_outcome
from .schedule import schedule
from .validate import check_state, validate

_NOT_RUN = "Nothing was executed."
_NO_PATHS: frozenset[str] = frozenset()


async def prepare_call(received: Received, run: RunContext) -> PermittedCall | WaitingCall | Failure:
    """Run the stages accept, lookup, validate and permit: everything that can be decided before execution."""
    parts, recorder, call_id = run.parts, run.recorder, received.intent.call_id
    is_known = call_id in run.ledger.calls
    match received.outcome:
        case AcceptedCall() as accepted:
            known = lookup(accepted, parts.registry, run.situation)
        case Failure() as failure:
            known = failure
    match known:
        case KnownCall():
            kept = ""
            if received.size_bytes > parts.limits.max_event_input_bytes:
                kept = await keep_large_arguments(received, parts)
            intent_seq = recorder.add(intent_event(received, known.tool, parts, kept, is_known=is_known), call_id)
        case Failure():
            tool = parts.registry.find(received.intent.tool_name)
            kept = await keep_large_arguments(received, parts)
            recorder.add(intent_event(received, tool, parts, kept, is_known=is_known), call_id)
            return known

    valid = validate(known, known.accepted.arguments_json)
    if known.tool.check is not None and not isinstance(valid, Failure):
        context = run.context(received.intent)
        valid = await check_state(valid, context, run.parts) or valid
    match valid:
        case ValidCall():
            validated = recorder.add(CallValidated(call_id=call_id, ok=True), call_id, intent_seq)
        case Failure():
            errors = tuple(map(parts.redactor.redact, valid.details.get("errors", ()))) or (
                parts.redactor.redact(valid.message),
            )
            recorder.add(CallValidated(call_id=call_id, ok=False, errors=errors), call_id, intent_seq)
            return valid

    decision = await judge(valid, run)
    if known.tool.consent is not None and (waiting := await require_consent(valid, decision, run)) is not None:
        return waiting
    return permit(valid, decision, run, validated)


async def run_call(
    permitted: PermittedCall,
    run: RunContext,
    task: "asyncio.Task[None]",
    abandoned: Callable[[Observation | BaseException], None],
) -> Observation | PermittedCall | WaitingCall:
    """Run the stages schedule, execute, normalize and observe for a call that has its turn.

    When the last check finds that the approved payload is no longer what would run, the call is returned permitted
    again, or waiting for a new answer. `abandoned` is called when a handler does not end in time; this coroutine then
    ends whenever the handler does, without effect.
    """
    valid = permitted.valid
    context = ToolContext(run.situation, valid.call_id, valid.tool.spec.name, run.progress, run.artifacts)
    context.state = run.ledger.tool_state
    context.judged = permitted.evaluated_paths if permitted.action_id or permitted.decision.paths else _NO_PATHS
    context.trial = permitted.bound.trial
    tool, token, effect = valid.tool, run.cancellation, permitted.decision.effect
    rechecked = permitted.action_id or tool.input_guardrails or tool.consent is not None or effect is not None
    if rechecked or permitted.decision.budgets or token.reason or token.calls:
        outcome = await _check_before_start(permitted, context, run)
        if outcome is not permitted:
            return outcome
    invocation, fact = schedule(permitted, context, run.parts, f"inv_{run.ledger.next_seq}")
    started_seq = run.recorder.add(fact, valid.call_id, permitted.cause)  # from here on the start always gets its end
    recheck, abandon = partial(_recheck, run, permitted), partial(_abandon, run, abandoned)
    execution = Execution(invocation, started_seq, task, recheck, abandon, run.parts.limits.drain_seconds)
    try:
        if permitted.keep:
            await keep_rule(permitted, run)
        has_effects = not tool.read_only or effect is not None  # then its start is durable before its handler runs
        if has_effects and not (run.recorder.is_immediate and run.recorder.write()):
            await run.recorder.commit()
        if (token.reason or token.calls) and token.failure_of(valid.call_id) is not None:
            result = Failure.from_code("cancelled", "The call was cancelled before its handler ran.", side_effects=())
        else:
            result = await (_run_traced if run.parts.telemetry.traces else _run_handler)(execution, run)
        match result:
            case SuspendedCall():
                return suspend_call(execution, result, run)
            case _:
                diagnose = tool.diagnose
                return (
                    await _diagnose(diagnose, execution, result, run) if diagnose else _observe(execution, result, run)
                )
    except asyncio.CancelledError:
        if not execution.abandoned and execution.ended_seq < 0:
            record_cancelled(execution, run)
        raise
    finally:
        if context.access_token:
            run.parts.redactor.remove_secret(context.access_token)


async def _check_before_start(
    permitted: PermittedCall, context: ToolContext, run: RunContext
) -> Observation | PermittedCall | WaitingCall:
    """Return the call if it may start now, else what becomes of it: something changed, or it was cancelled."""
    valid = permitted.valid
    outcome: PermittedCall | WaitingCall | Failure = permitted
    rechecked = permitted.action_id or valid.tool.input_guardrails or valid.tool.consent is not None
    if rechecked or permitted.decision.effect is not None:
        outcome = await recheck_before_start(permitted, context, run)
    if outcome is permitted:
        outcome = run.cancellation.failure_of(valid.call_id) or permitted
    if outcome is permitted and (permitted.action_id or permitted.decision.budgets):
        outcome = await reserve_before_start(permitted, run)
    if isinstance(outcome, Failure):
        return record_failure(valid.call_id, valid.tool.name, outcome, run)
    if outcome is permitted and context.access_token:
        run.parts.redactor.add_secret(context.access_token)
    return outcome


def _abandon(run: RunContext, abandoned: Callable[[Observation | BaseException], None], execution: Execution) -> None:
    """Record the outcome of a call whose handler did not end in time, without it."""
    run.executions.running.pop(execution.invocation.valid.call_id, None)
    try:
        if execution.stop != "run":
            abandoned(_observe(execution, outcome_of_stop(execution), run))
            return
        record_cancelled(execution, run)
    except LogError as broken:
        abandoned(broken)
    else:
        abandoned(asyncio.CancelledError())


def record_failure(call_id: str, tool_name: str, failure: Failure, run: RunContext) -> Observation:
    """Observe and record a call that stopped before it started, or before it started again."""
    entry, tool = run.ledger.calls.get(call_id), run.parts.registry.find(tool_name)
    read_only = tool is not None and tool.read_only
    if entry is not None and entry.is_outcome_unknown and not read_only and failure.code != "outcome_unknown":
        failure = unknown_outcome(tool_name, f"and it cannot run again now: {failure.code}")
    return record_observation(observe_failure(call_id, tool_name, failure, run.parts.redactor), run)


def end_open_calls(message: str, run: RunContext) -> None:
    """End the calls that wait in a run that is about to be cancelled: their questions are void, and what did not start
    is observed as that. The calls of a batch that runs end themselves.
    """
    if run.cancellation.listeners:
        return
    for call_id in run.ledger.open_calls():
        void_question(call_id, message, run, fails=True)
        entry = run.ledger.calls[call_id]
        match entry.state:
            case CallState.ENDED:
                continue  # its end is recorded
            case CallState.SUSPENDED:
                failure = Failure.from_code("cancelled", f"{message} What {entry.child_run_id} did stays done.")
            case _:
                failure = Failure.from_code("cancelled_before_start", f"{message} Nothing was executed.")
        record_failure(call_id, entry.tool, failure, run)


_HandlerOutcome: TypeAlias = Observation | SuspendedCall | Failure


async def _run_traced(execution: Execution, run: RunContext) -> _HandlerOutcome:
    """Run the handler in a span."""
    invocation = execution.invocation
    with run.parts.telemetry.call_span(invocation.tool.name, invocation.valid.call_id, run.ledger.run_id) as span:
        result = await _run_handler(execution, run)
        if isinstance(result, Failure) or (isinstance(result, Observation) and not result.ok):
            span.fail(result.code)
    return result


async def _run_handler(execution: Execution, run: RunContext) -> _HandlerOutcome:
    """Execute the handler, normalize its result and observe it. What has to be stored is observed in a thread."""
    run.executions.add(execution)
    try:
        raw = await execute(execution, run.parts.sandbox, run.parts.clock)
    finally:
        running, call_id = run.executions.running, execution.invocation.valid.call_id
        if call_id in running:  # it was not abandoned
            del running[call_id]
    match raw:
        case RawResult():
            parts, invocation, tool = run.parts, execution.invocation, execution.invocation.tool
            said = None if tool.normalize is None else await ask_tool(tool.normalize, raw, parts)
            result = said if said is not None and isinstance(said, Failure) else normalize(raw, said)
            if tool.output_guardrails:
                result = await _guard_output(result, invocation, run)
            match result:
                case NormalizedResult():
                    pass
                case Failure():
                    return result
            if not result.binary and not result.attachments and not result.model_text[tool.max_output_chars :]:
                try:
                    return observe(call_id, tool, result, None, parts.redactor)
                except StoreNeededError:
                    pass
            return await asyncio.to_thread(observe, call_id, tool, result, parts.artifacts, parts.redactor)
        case Failure() | SuspendedCall():
            return raw


def _observe(execution: Execution, result: Observation | Failure, run: RunContext) -> Observation:
    parts, invocation = run.parts, execution.invocation
    call_id, tool, milliseconds = invocation.valid.call_id, invocation.tool, execution.duration_ms
    match result:
        case Observation():
            observation = result
        case Failure():
            observation = observe_failure(call_id, tool.spec.name, result, parts.redactor, milliseconds)
    if invocation.context.kept:
        observation = with_kept(observation, invocation.context)
    if execution.error is not None:
        run.executions.errors[call_id] = execution.error
    if invocation.permitted.edited_by:
        observation = msgspec.structs.replace(observation, summary=summarize_edit(observation, invocation, run))
    if observation.failure is not None or invocation.context.warnings:
        record_warnings(execution, observation, run)
    ended = execution.ended_seq
    if ended < 0:
        ended = run.recorder.add(end_event(execution, observation, run), call_id, execution.started_seq)
    observed = CallObserved(
        observation_id="obs_" + call_id,
        observation=observation,
        invocation_id=invocation.invocation_id,
    )
    run.recorder.add(observed, call_id, ended)
    if run.recorder.escaped is not None:
        observation = as_recorded(observation, run)
    parts.telemetry.call_finished(tool.spec.name, "success" if observation.ok else "error", "execute", milliseconds)
    return observation


async def _diagnose(
    diagnose: Diagnose, execution: Execution, result: Observation | Failure, run: RunContext
) -> Observation:
    """Record the end of a call, so that it is known if this process dies, then run its diagnostics and observe it. They
    cannot fail the call; whatever stops the call only stops them.
    """
    parts, invocation = run.parts, execution.invocation
    call_id, context = invocation.valid.call_id, invocation.context
    if isinstance(result, Failure) or not (result.ok and result.side_effects):
        return _observe(execution, result, run)
    if context.warnings:
        record_warnings(execution, result, run)
        context.warnings = []
    execution.ended_seq = run.recorder.add(end_event(execution, result, run), call_id, execution.started_seq)
    execution.diagnosis = asyncio.ensure_future(_run_diagnose(diagnose, result.facts, execution, run))
    run.executions.add(execution)
    try:
        await asyncio.wait([execution.diagnosis])
    except asyncio.CancelledError:
        _observe(execution, result, run)
        raise
    finally:
        run.executions.running.pop(call_id, None)
        if not execution.diagnosis.done():
            execution.diagnosis.cancel()
            await asyncio.wait([execution.diagnosis], timeout=parts.limits.drain_seconds)
    return _observe(execution, add_diagnostics(result, execution.diagnosis, parts.redactor), run)


async def _run_diagnose(
    diagnose: Diagnose, facts: JsonObject, execution: Execution, run: RunContext
) -> Diagnostics | None:
    invocation = execution.invocation
    arguments = (execution.changed or invocation.valid).copy_arguments()
    await run.recorder.commit()
    found = await run.parts.check(diagnose, arguments, facts, invocation.context)
    if found is not None and invocation.tool.output_guardrails:
        reason = await run_guardrails(invocation.tool.output_guardrails, found.text, invocation.context, run)
        return found if reason is None else Diagnostics(text=f"Diagnostics: withheld: {reason}")
    return found


async def _guard_output(
    result: NormalizedResult | Failure, invocation: Invocation, run: RunContext
) -> NormalizedResult | Failure:
    if isinstance(result, Failure):
        return result
    reason = await run_guardrails(invocation.tool.output_guardrails, result.model_text, invocation.context, run)
    return result if reason is None else withheld(result, reason)


def _digest_of(decision: Decision) -> str:
    return decision.effect.digest if decision.effect is not None else ""


async def _recheck(
    run: RunContext, permitted: PermittedCall, valid: ValidCall, arguments: JsonObject
) -> tuple[ValidCall, Decision] | Failure:
    """Validate and evaluate arguments that a hook changed: policy must allow exactly them, with the same effect."""
    try:
        check_value(arguments)
    except InvalidJsonError as error:
        return Failure.from_code(
            "hook_failed", f"A hook changed the arguments to what is not JSON: {error}. {_NOT_RUN}"
        )
    again = validate(valid.known, encode(arguments))
    if isinstance(again, Failure):
        return Failure.from_code("hook_failed", f"A hook changed the arguments: {again.message}")
    decision = await judge(again, run, is_started=True)
    if decision.verdict is not Verdict.ALLOW:
        message = (
            f"A hook changed the arguments to something that policy does not allow: {end_sentence(decision.reason)}"
        )
        return Failure.from_code("payload_changed", f"{message} {_NOT_RUN}")
    if _digest_of(decision) != _digest_of(permitted.decision):
        message = f"A hook changed the arguments, and with them the effect of the call. {_NOT_RUN}"
        return Failure.from_code("payload_changed", message)
    return await reserve_changed(permitted, again, run) or (again, decision)
