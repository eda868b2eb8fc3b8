"""The way of a call: accept, lookup, validate, permit; then schedule, execute, normalize, observe; recorded throughout.

`plan` goes as far as a call can go without touching the world; a batch plans all its calls before the first one
starts. `carry_out` does the rest for one call. Every stage's outcome is a value: the next stage's type, a `Failure`,
or `Waiting`.
"""

import asyncio
from collections.abc import Callable

import msgspec

from ..domain.call import (
    AcceptedCall,
    Invocation,
    KnownCall,
    PermittedCall,
    Suspended,
    ValidCall,
    Waiting,
)
from ..domain.decision import Decision, Verdict
from ..domain.errors import LogError
from ..domain.event import (
    CallObserved,
    CallValidated,
)
from ..domain.json import BadJson, check, encode
from ..domain.observation import NormalizedResult, Observation, RawResult
from ..domain.outcome import Failure
from ..domain.tool import JsonObject, ToolContext
from ..rendering.sentences import sentence
from .accept import Received
from .asking import hold_for_consent, keep_rule, last_look
from .binding import covered, hold
from .execute import Execution, execute, outcome_of_stop
from .facts import (
    completed,
    edited_summary,
    judged,
    proposed,
    record_cancelled,
    record_observation,
    record_warnings,
    started,
    suspend,
)
from .live import Run
from .lookup import lookup
from .normalize import normalize
from .observe import observe, observe_failure, with_kept, withheld
from .permit import decide, guard, permit, unknown_outcome
from .schedule import schedule
from .validate import check_state, validate

_NOT_RUN = "Nothing was executed."


async def plan(received: Received, run: Run) -> PermittedCall | Waiting | Failure:
    """accept, lookup, validate, permit: everything that can be known before anything happens."""
    parts, recorder, call_id = run.parts, run.recorder, received.intent.call_id
    match received.outcome:
        case AcceptedCall() as accepted:
            known = lookup(accepted, parts.registry, run.situation)
        case Failure() as failure:
            known = failure
    match known:
        case KnownCall():
            intent_seq = recorder.add(proposed(received, known.tool, run), call_id)
        case Failure():
            recorder.add(proposed(received, parts.registry.find(received.intent.tool_name), run), call_id)
            return known

    valid = validate(known, known.accepted.arguments_json)
    if known.tool.check is not None and not isinstance(valid, Failure):
        context = run.context(received.intent)
        valid = await check_state(valid, context, parts.limits.check_seconds) or valid
    match valid:
        case ValidCall():
            validated = recorder.add(CallValidated(call_id=call_id, ok=True), call_id, intent_seq)
        case Failure():
            errors = tuple(map(parts.redactor.redact, valid.details.get("errors", ()))) or (
                parts.redactor.redact(valid.message),
            )
            recorder.add(CallValidated(call_id=call_id, ok=False, errors=errors), call_id, intent_seq)
            return valid

    decision = await decide(valid, parts.policy, run.situation, parts.limits.check_seconds)
    if run.ledger.grants:
        decision = covered(valid, decision, run)
    if known.tool.consent is not None and (held := await hold_for_consent(valid, decision, run)) is not None:
        return held
    cause = recorder.add(judged(call_id, known.tool, decision, run), call_id, validated)
    permitted = permit(valid, decision, cause)
    return permitted if permitted is not None else hold(valid, decision, run)


async def carry_out(
    permitted: PermittedCall,
    run: Run,
    task: "asyncio.Task[None]",
    abandoned: Callable[[Observation | BaseException], None],
) -> Observation | PermittedCall | Waiting:
    """schedule, execute, normalize, observe: the call has its turn. When the last look found that what was approved is
    no longer what would run, it comes back permitted anew, or waiting for a new answer. `abandoned` is told when a
    handler does not end when it must, and what came of it; this coroutine then ends whenever it does, and to no
    effect."""
    valid = permitted.valid
    context = ToolContext(run.situation, valid.call_id, valid.tool.spec.name, run.progress, run.artifacts)
    context.state, context.judged = run.ledger.tool_state, permitted.judged
    if permitted.action_id or valid.tool.input_guardrails or valid.tool.consent is not None:
        looked = await last_look(permitted, context, run)
        if looked is not permitted:
            return looked if not isinstance(looked, Failure) else conclude(valid.call_id, valid.tool.name, looked, run)
    if run.stopping or run.cancelled:
        failure = run.stopped(valid.call_id)
        if failure is not None:
            return conclude(valid.call_id, valid.tool.name, failure, run)
    execution = _begin(permitted, context, run, task, abandoned)
    try:
        if permitted.keep:
            await keep_rule(permitted, run)
        result = await _execute(execution, run)
        match result:
            case Suspended():
                return suspend(execution, result, run)
            case _:
                return _observe(execution, result, run)
    except asyncio.CancelledError:
        if not execution.abandoned:
            record_cancelled(execution, run)
        raise
    finally:
        if context.access_token:
            run.parts.redactor.forget(context.access_token)


def _begin(
    permitted: PermittedCall,
    context: ToolContext,
    run: Run,
    task: "asyncio.Task[None]",
    abandoned: Callable[[Observation | BaseException], None],
) -> Execution:
    """schedule and record the start. From here on, whatever happens, the start gets its end."""

    def abandon(execution: Execution) -> None:
        run.executions.remove(execution)
        try:
            if execution.stop != "run":
                abandoned(_observe(execution, outcome_of_stop(execution), run))
                return
            record_cancelled(execution, run)
        except LogError as broken:
            abandoned(broken)
        else:
            abandoned(asyncio.CancelledError())

    async def recheck(valid: ValidCall, arguments: JsonObject) -> tuple[ValidCall, Decision] | Failure:
        return await _recheck(valid, arguments, run)

    if context.access_token:
        run.parts.redactor.learn(context.access_token)
    invocation = schedule(permitted, context, run.parts.sandbox, f"inv_{run.ledger.next_seq}")
    fact = started(invocation, permitted.waited_for, run)
    started_seq = run.recorder.add(fact, permitted.valid.call_id, permitted.cause)
    return Execution(invocation, started_seq, task, recheck, abandon, run.parts.limits.drain_seconds)


def conclude(call_id: str, tool_name: str, failure: Failure, run: Run) -> Observation:
    """observe and record a call that stopped before it started, or before it started again."""
    entry, tool = run.ledger.calls.get(call_id), run.parts.registry.find(tool_name)
    read_only = tool is not None and tool.read_only
    if entry is not None and entry.may_have_happened and not read_only and failure.code != "outcome_unknown":
        failure = unknown_outcome(tool_name, f"and it cannot run again now: {failure.code}")
    return record_observation(observe_failure(call_id, tool_name, failure, run.parts.redactor), run)


async def _execute(execution: Execution, run: Run) -> NormalizedResult | Suspended | Failure:
    """The start is durable before an effectful handler runs; then the way goes on to the normalized result."""
    parts, invocation = run.parts, execution.invocation
    if not invocation.tool.read_only:
        await run.recorder.commit()
    if (run.stopping or run.cancelled) and run.stopped(invocation.valid.call_id) is not None:
        return Failure.of("cancelled", "The call was cancelled before its handler ran.", side_effects=())
    if not parts.telemetry.traces:
        return await _handle(execution, run)
    with parts.telemetry.call_span(invocation.tool.name, invocation.valid.call_id, run.ledger.run_id) as span:
        result = await _handle(execution, run)
        match result:
            case Failure():
                span.fail(result.code)
            case NormalizedResult():
                if not result.ok:
                    span.fail(result.code)
            case Suspended():
                pass
    return result


async def _handle(execution: Execution, run: Run) -> NormalizedResult | Suspended | Failure:
    run.executions.add(execution)
    try:
        raw = await execute(execution, run.parts.sandbox, run.parts.clock)
    finally:
        run.executions.remove(execution)
    match raw:
        case RawResult():
            result = normalize(raw)
            if execution.invocation.tool.output_guardrails:
                return await _guard_output(result, execution.invocation, run)
            return result
        case Failure() | Suspended():
            return raw


def _observe(execution: Execution, result: NormalizedResult | Failure, run: Run) -> Observation:
    parts, invocation = run.parts, execution.invocation
    call_id, tool, milliseconds = invocation.valid.call_id, invocation.tool, execution.duration_ms
    match result:
        case NormalizedResult():
            observation = observe(call_id, tool, result, parts.artifacts, parts.redactor)
        case Failure():
            observation = observe_failure(call_id, tool.spec.name, result, parts.redactor, milliseconds)
    if invocation.context.kept:
        observation = with_kept(observation, invocation.context)
    if execution.error is not None:
        run.errors[call_id] = execution.error
    if invocation.permitted.edited_by:
        observation = msgspec.structs.replace(observation, summary=edited_summary(observation, invocation, run))
    if observation.failure is not None or invocation.context.warnings:
        record_warnings(execution, observation, run)
    ended = run.recorder.add(completed(execution, observation, run), call_id, execution.started_seq)
    observed = CallObserved(
        observation_id="obs_" + call_id,
        observation=observation,
        invocation_id=invocation.invocation_id,
    )
    run.recorder.add(observed, call_id, ended)
    parts.telemetry.call_finished(tool.spec.name, "success" if observation.ok else "error", "execute", milliseconds)
    return observation


async def _guard_output(
    result: NormalizedResult | Failure, invocation: Invocation, run: Run
) -> NormalizedResult | Failure:
    if isinstance(result, Failure):
        return result
    guardrails, seconds = invocation.tool.output_guardrails, run.parts.limits.check_seconds
    reason = await guard(guardrails, result.model_text, invocation.context, seconds)
    return result if reason is None else withheld(result, reason)


async def _recheck(valid: ValidCall, arguments: JsonObject, run: Run) -> tuple[ValidCall, Decision] | Failure:
    """A hook changed the arguments: they must fit, and policy must allow exactly them."""
    try:
        check(arguments)
    except BadJson as error:
        return Failure.of("hook_failed", f"A hook changed the arguments to what is not JSON: {error}. {_NOT_RUN}")
    again = validate(valid.known, encode(arguments))
    if isinstance(again, Failure):
        return Failure.of("hook_failed", f"A hook changed the arguments: {again.message}")
    decision = await decide(again, run.parts.policy, run.situation, run.parts.limits.check_seconds)
    if decision.verdict is not Verdict.ALLOW:
        message = f"A hook changed the arguments to something that policy does not allow: {sentence(decision.reason)}"
        return Failure.of("payload_changed", f"{message} {_NOT_RUN}")
    return again, decision
