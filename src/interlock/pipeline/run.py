"""The way of a call: accept, lookup, validate, permit; then schedule, execute, normalize, observe; recorded throughout.

`plan` goes as far as a call can go without touching the world; a batch plans all its calls before the first one
starts. `carry_out` does the rest for one call. Every stage's outcome is a value: the next stage's type, a `Failure`,
or `Waiting`.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ..domain.call import (
    AcceptedCall,
    Answer,
    Invocation,
    KnownCall,
    PermittedCall,
    Question,
    ValidCall,
    Waiting,
)
from ..domain.decision import Verdict
from ..domain.event import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    CallJudged,
    CallObserved,
    CallProposed,
    CallValidated,
    Fact,
    InputProvided,
    InputRefused,
    InputRequested,
    InvocationCompleted,
    InvocationStarted,
    RunResumed,
    Warned,
)
from ..domain.failure import Failure
from ..domain.json import encode
from ..domain.lifecycle import RunState
from ..domain.observation import Observation
from ..domain.result import Exit, NormalizedResult, RawResult
from ..domain.tool import JsonObject, ToolContext, ToolDefinition
from .accept import Received
from .execute import Execution, execute, outcome_of_stop
from .live import Run
from .lookup import lookup
from .normalize import normalize
from .observe import observe, observe_failure, withheld
from .permit import ask, decide, guard, guarded, payload_changed, permit, refused
from .schedule import schedule
from .validate import check_state, validate

_EXITS: dict[str, Exit] = {"cancelled": "cancelled", "timed_out": "timeout"}


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
            proposed = recorder.add(_proposed(received, known.tool, run), call_id)
        case Failure():
            recorder.add(_proposed(received, parts.registry.find(received.intent.tool_name), run), call_id)
            return known

    valid = validate(known, known.accepted.arguments_json)
    if known.tool.check is not None and not isinstance(valid, Failure):
        context = run.context(received.intent)
        valid = await check_state(valid, context, parts.limits.check_seconds) or valid
    match valid:
        case ValidCall():
            validated = recorder.add(CallValidated(call_id=call_id, ok=True), call_id, proposed)
        case Failure():
            errors = tuple(valid.details.get("errors", ())) or (valid.message,)
            recorder.add(CallValidated(call_id=call_id, ok=False, errors=errors), call_id, proposed)
            return valid

    decision = await decide(valid, parts.policy, run.situation, parts.limits.check_seconds)
    judged = CallJudged(call_id=call_id, tool=known.tool.spec.name, decision=decision)
    cause = recorder.add(judged, call_id, validated)
    return permit(valid, decision, recorder.run_id, cause, parts.clock.now)


async def settle(waiting: Waiting, question: Question, run: Run) -> PermittedCall | Waiting | Failure:
    """permit, continued: a person answers, or the question stays open."""
    parts, valid = run.parts, waiting.valid
    if parts.limits.guardrails_before_approval and valid.tool.input_guardrails:
        reason = await _guard_input(valid, run.context(valid.known.accepted.intent), run)
        if reason is not None:
            return guarded(valid, reason)
    if question.action_id not in run.ledger.actions:
        run.recorder.add(_asked(question), question.call_id)
    await run.recorder.commit()
    answer = await ask(question, parts.interaction)
    if answer is None:
        return waiting
    return resolve(waiting, question, answer, record_answer(question, answer, run))


def resolve(waiting: Waiting, question: Question, answer: Answer, cause: int | None = None) -> PermittedCall | Failure:
    """permit, continued: what the stored answer means. It is never evaluated again."""
    if not answer.approved:
        return refused(question, answer)
    valid = waiting.valid
    if question.kind == "input":
        again = validate(valid.known, encode({**valid.arguments, question.target_arg: answer.value}))
        if isinstance(again, Failure):
            return again
        valid = again
    elif (changed := payload_changed(question, valid)) is not None:
        return changed
    return PermittedCall(valid, waiting.decision, cause, question.action_id)


async def carry_out(
    permitted: PermittedCall, run: Run, task: "asyncio.Task[None]", abandoned: Callable[[Observation], None]
) -> Observation:
    """schedule, execute, normalize, observe: the call has its turn. `abandoned` gets the observation of a handler that
    does not end when it must; this coroutine then ends whenever it does, and to no effect."""
    valid = permitted.valid
    parts, recorder = run.parts, run.recorder
    context = ToolContext(run.situation, valid.call_id, valid.tool.spec.name, parts.on_progress, run.artifacts)
    if permitted.action_id or valid.tool.input_guardrails:
        failure = await _last_look(permitted, context, run)
        if failure is not None:
            return conclude(valid.call_id, valid.tool.name, failure, run)
    invocation = schedule(permitted, context, parts.sandbox, f"inv_{run.ledger.next_seq}")
    started = recorder.add(_started(invocation, run), valid.call_id, permitted.cause)
    if not valid.tool.read_only:
        await recorder.commit()

    def abandon(execution: Execution) -> None:
        run.executions.remove(execution)
        if execution.stop == "run":
            _record_cancelled(execution, run)
        else:
            abandoned(_observe(execution, outcome_of_stop(execution), run))

    async def recheck(valid: ValidCall, arguments: JsonObject) -> ValidCall | Failure:
        return await _recheck(valid, arguments, run)

    execution = Execution(invocation, started, task, recheck, abandon, parts.limits.drain_seconds)
    span = parts.telemetry.call_span(valid.tool.spec.name, valid.call_id, recorder.run_id)
    if span is None:
        return await _execute(execution, run)
    with span:
        observation = await _execute(execution, run)
        if observation.failure is not None:
            span.fail(observation.failure.code)
    return observation


def conclude(call_id: str, tool_name: str, failure: Failure, run: Run) -> Observation:
    """observe and record a call that stopped before it started."""
    observation = observe_failure(call_id, tool_name, failure, run.parts.redactor)
    run.recorder.add(CallObserved(observation_id="obs_" + call_id, observation=observation), call_id)
    return observation


async def _execute(execution: Execution, run: Run) -> Observation:
    parts, invocation = run.parts, execution.invocation
    run.executions.add(execution)
    try:
        result = await execute(execution, parts.sandbox, parts.clock)
    except asyncio.CancelledError:
        if not execution.abandoned:
            _record_cancelled(execution, run)
        raise
    finally:
        run.executions.remove(execution)
    match result:
        case RawResult():
            normalized = normalize(result)
            if invocation.tool.output_guardrails:
                normalized = await _guard_output(normalized, invocation, run)
            return _observe(execution, normalized, run)
        case Failure():
            return _observe(execution, result, run)


def _observe(execution: Execution, result: NormalizedResult | Failure, run: Run) -> Observation:
    parts, invocation = run.parts, execution.invocation
    call_id, tool, milliseconds = invocation.valid.call_id, invocation.tool, execution.duration_ms
    match result:
        case NormalizedResult():
            observation = observe(call_id, tool, result, parts.artifacts, parts.redactor)
        case Failure():
            observation = observe_failure(call_id, tool.spec.name, result, parts.redactor, milliseconds)
    code = observation.failure.code if observation.failure is not None else "ok"
    completed = InvocationCompleted(
        invocation_id=invocation.invocation_id,
        call_id=call_id,
        exit="ok" if observation.ok else _EXITS.get(code, "error"),
        duration_ms=milliseconds,
        code=code,
        side_effects=observation.side_effects,
    )
    for message in invocation.context.warnings:
        run.recorder.add(Warned(message=parts.redactor.redact(message), call_id=call_id), call_id)
    ended = run.recorder.add(completed, call_id, execution.started_seq)
    observed = CallObserved(
        observation_id="obs_" + call_id,
        observation=observation,
        invocation_id=invocation.invocation_id,
    )
    run.recorder.add(observed, call_id, ended)
    parts.telemetry.call_finished(tool.spec.name, "success" if observation.ok else "error", "execute", milliseconds)
    return observation


async def _last_look(permitted: PermittedCall, context: ToolContext, run: Run) -> Failure | None:
    """Right before the start: what may have changed since the call was planned."""
    valid = permitted.valid
    if permitted.action_id:
        failure = await check_state(valid, context, run.parts.limits.check_seconds)
        if failure is not None:
            return failure
    if valid.tool.input_guardrails:
        reason = await _guard_input(valid, context, run)
        if reason is not None:
            return guarded(valid, reason)
    return None


def _guard_input(valid: ValidCall, context: ToolContext, run: Run) -> Awaitable[str | None]:
    return guard(valid.tool.input_guardrails, valid.arguments, context, run.parts.limits.check_seconds)


async def _guard_output(
    result: NormalizedResult | Failure, invocation: Invocation, run: Run
) -> NormalizedResult | Failure:
    if isinstance(result, Failure):
        return result
    guardrails, seconds = invocation.tool.output_guardrails, run.parts.limits.check_seconds
    reason = await guard(guardrails, result.model_text, invocation.context, seconds)
    return result if reason is None else withheld(result, reason)


async def _recheck(valid: ValidCall, arguments: JsonObject, run: Run) -> ValidCall | Failure:
    """A hook changed the arguments: they must fit, and policy must allow exactly them."""
    again = validate(valid.known, encode(arguments))
    if isinstance(again, Failure):
        return Failure.of("hook_failed", f"A hook changed the arguments: {again.message}")
    decision = await decide(again, run.parts.policy, run.situation, run.parts.limits.check_seconds)
    if decision.verdict is not Verdict.ALLOW:
        message = f"A hook changed the arguments to something that policy does not allow ({decision.reason})."
        return Failure.of("payload_changed", f"{message} Nothing was executed.")
    return again


def _record_cancelled(execution: Execution, run: Run) -> None:
    """The run was cancelled around this call. That is a fact about it, and no output for the model."""
    invocation = execution.invocation
    fact = InvocationCompleted(
        invocation_id=invocation.invocation_id,
        call_id=invocation.valid.call_id,
        exit="cancelled",
        duration_ms=execution.duration_ms,
        code="cancelled",
        side_effects=() if invocation.tool.read_only else "unknown",
    )
    run.recorder.add(fact, invocation.valid.call_id, execution.started_seq)


def record_repeat(received: Received, run: Run) -> None:
    """The model proposed a call again that is not planned again."""
    intent = received.intent
    fact = CallProposed(call_id=intent.call_id, tool=intent.tool_name, digest=received.digest, duplicate=True)
    run.recorder.add(fact, intent.call_id)


def record_answer(question: Question, answer: Answer, run: Run) -> int:
    """A person spoke: a run that was paused for it goes on."""
    if run.ledger.state is not RunState.RUNNING:
        run.recorder.add(RunResumed())
    return run.recorder.add(_answered(question, answer), question.call_id)


def _proposed(received: Received, tool: ToolDefinition | None, run: Run) -> CallProposed:
    intent, parts, size_bytes = received.intent, run.parts, len(received.raw)
    text = received.raw.decode()
    redacted = parts.redactor.redact(text)
    raw_input: object = redacted
    artifact_id = ""
    match received.outcome:
        case AcceptedCall() as accepted:
            if size_bytes > parts.limits.max_event_input_bytes:
                raw_input, artifact_id = None, parts.artifacts.keep(redacted.encode())
            elif redacted == text:
                raw_input = accepted.arguments
        case Failure():
            raw_input = redacted[: parts.limits.max_event_input_bytes]
    return CallProposed(
        call_id=intent.call_id,
        tool=intent.tool_name,
        raw_input=raw_input,
        raw_artifact_id=artifact_id,
        raw_bytes=size_bytes,
        digest=received.digest,
        tool_version=tool.version if tool is not None else "",
        reason=parts.redactor.redact(intent.reason) if intent.reason else "",
        duplicate=intent.call_id in run.ledger.calls,
    )


def _started(invocation: Invocation, run: Run) -> InvocationStarted:
    valid, tool = invocation.valid, invocation.tool
    changed = valid.arguments != valid.known.accepted.arguments
    return InvocationStarted(
        invocation_id=invocation.invocation_id,
        call_id=valid.call_id,
        tool=tool.spec.name,
        executor=invocation.executor,
        tool_version=tool.version,
        timeout_seconds=invocation.timeout_seconds,
        sandbox=invocation.sandbox,
        action_id=invocation.permitted.action_id,
        arguments=_storable(valid.arguments, run) if changed else None,
    )


def _storable(arguments: JsonObject, run: Run) -> object:
    text = encode(arguments).decode()
    redacted = run.parts.redactor.redact(text)
    return arguments if redacted == text else redacted


def _asked(question: Question) -> Fact:
    fact = ApprovalRequested if question.kind == "approval" else InputRequested
    return fact(call_id=question.call_id, question=question)


def _answered(question: Question, answer: Answer) -> Fact:
    if answer.approved:
        fact = ApprovalGranted if question.kind == "approval" else InputProvided
    elif answer.expired:
        fact = ApprovalExpired
    else:
        fact = ApprovalRejected if question.kind == "approval" else InputRefused
    return fact(call_id=question.call_id, action_id=question.action_id, answer=answer)
