"""The way of a call: accept, lookup, validate, permit; then schedule, execute, normalize, observe; recorded throughout.

`plan` goes as far as a call can go without touching the world; a batch plans all its calls before the first one
starts. `carry_out` does the rest for one call. Every stage's outcome is a value: the next stage's type, a `Failure`,
or `Waiting`.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

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
from ..domain.decision import Decision, Verdict
from ..domain.errors import LogError
from ..domain.event import (
    ActionVoided,
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    CallJudged,
    CallObserved,
    CallProposed,
    CallValidated,
    Fact,
    InputExpired,
    InputProvided,
    InputRefused,
    InputRequested,
    InvocationCompleted,
    InvocationStarted,
    RunResumed,
    Warned,
)
from ..domain.failure import Failure
from ..domain.json import BadJson, check, encode
from ..domain.lifecycle import ActionState, RunState
from ..domain.observation import Observation
from ..domain.payload import payload_hash
from ..domain.result import Exit, NormalizedResult, RawResult
from ..domain.tool import JsonObject, ToolContext, ToolDefinition
from ..domain.words import sentence
from .accept import Received
from .execute import Execution, execute, outcome_of_stop
from .live import Run
from .lookup import lookup
from .normalize import normalize
from .observe import observe, observe_failure, withheld
from .permit import ask, decide, denied_by_policy, guard, guarded, payload_changed, permit, refused
from .schedule import schedule
from .validate import check_state, validate

_PAUSED = frozenset({RunState.PAUSED_APPROVAL, RunState.PAUSED_CONSENT, RunState.PAUSED_INPUT})
_NOT_RUN = "Nothing was executed."
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
            errors = tuple(map(parts.redactor.redact, valid.details.get("errors", ()))) or (
                parts.redactor.redact(valid.message),
            )
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
        run.recorder.add(_asked(question, run), question.call_id)
    await run.recorder.commit()
    answer = await ask(question, parts.interaction)
    if answer is None:
        return waiting
    return await resolve(waiting, question, answer, record_answer(question, answer, run), run)


async def resolve(
    waiting: Waiting, question: Question, answer: Answer, cause: int | None, run: Run
) -> PermittedCall | Failure:
    """permit, continued: what the stored answer means. It is never evaluated again; a value that a person gave is new,
    so it must fit and no rule may forbid it."""
    if not answer.approved:
        return refused(question, answer)
    valid = waiting.valid
    if question.kind == "input":
        again = validate(valid.known, encode({**valid.arguments, question.target_arg: answer.value}))
        if isinstance(again, Failure):
            return again
        decision = await decide(again, run.parts.policy, run.situation, run.parts.limits.check_seconds)
        if decision.verdict is Verdict.DENY:
            return denied_by_policy(again, decision)
        valid = again
    elif (changed := payload_changed(question, valid)) is not None:
        return changed
    return PermittedCall(valid, waiting.decision, cause, question.action_id)


async def carry_out(
    permitted: PermittedCall,
    run: Run,
    task: "asyncio.Task[None]",
    abandoned: Callable[[Observation | BaseException], None],
) -> Observation:
    """schedule, execute, normalize, observe: the call has its turn. `abandoned` is told when a handler does not end
    when it must, and what came of it; this coroutine then ends whenever it does, and to no effect."""
    valid = permitted.valid
    context = ToolContext(run.situation, valid.call_id, valid.tool.spec.name, run.progress, run.artifacts)
    failure = None
    if permitted.action_id or valid.tool.input_guardrails:
        failure = await _last_look(permitted, context, run)
    if run.stopping or run.cancelled:
        failure = run.stopped(valid.call_id) or failure
    if failure is not None:
        return conclude(valid.call_id, valid.tool.name, failure, run)
    execution = _begin(permitted, context, run, task, abandoned)
    try:
        result = await _execute(execution, run)
    except asyncio.CancelledError:
        if not execution.abandoned:
            _record_cancelled(execution, run)
        raise
    return _observe(execution, result, run)


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
            _record_cancelled(execution, run)
        except LogError as broken:
            abandoned(broken)
        else:
            abandoned(asyncio.CancelledError())

    async def recheck(valid: ValidCall, arguments: JsonObject) -> tuple[ValidCall, Decision] | Failure:
        return await _recheck(valid, arguments, run)

    invocation = schedule(permitted, context, run.parts.sandbox, f"inv_{run.ledger.next_seq}")
    started = run.recorder.add(_started(invocation, run), permitted.valid.call_id, permitted.cause)
    return Execution(invocation, started, task, recheck, abandon, run.parts.limits.drain_seconds)


def conclude(call_id: str, tool_name: str, failure: Failure, run: Run) -> Observation:
    """observe and record a call that stopped before it started."""
    return record_observation(observe_failure(call_id, tool_name, failure, run.parts.redactor), run)


def record_observation(observation: Observation, run: Run) -> Observation:
    """record what is known of a call that this process did not execute."""
    call_id = observation.call_id
    run.recorder.add(CallObserved(observation_id="obs_" + call_id, observation=observation), call_id)
    return observation


async def _execute(execution: Execution, run: Run) -> NormalizedResult | Failure:
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
    return result


async def _handle(execution: Execution, run: Run) -> NormalizedResult | Failure:
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
        case Failure():
            return raw


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
        arguments=_storable(execution.changed.arguments, run) if execution.changed is not None else None,
        decision=execution.decision,
    )
    if execution.error is not None:
        run.errors[call_id] = execution.error
    if invocation.context.warnings or code == "sandbox_denied":
        _warn(execution, observation, run)
    ended = run.recorder.add(completed, call_id, execution.started_seq)
    observed = CallObserved(
        observation_id="obs_" + call_id,
        observation=observation,
        invocation_id=invocation.invocation_id,
    )
    run.recorder.add(observed, call_id, ended)
    parts.telemetry.call_finished(tool.spec.name, "success" if observation.ok else "error", "execute", milliseconds)
    return observation


def _warn(execution: Execution, observation: Observation, run: Run) -> None:
    """What people should know although the run goes on."""
    call_id, parts = observation.call_id, run.parts
    messages = list(execution.invocation.context.warnings)
    if observation.code == "sandbox_denied" and parts.fail_safe.tool_failure_policy == "continue":
        messages.append(observation.summary)
    for message in messages:
        run.recorder.add(Warned(message=parts.redactor.redact(message), call_id=call_id), call_id)


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
    return guard(valid.tool.input_guardrails, valid.copy(), context, run.parts.limits.check_seconds)


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


def void(call_id: str, reason: str, run: Run) -> None:
    """A question that need not be answered any more."""
    action_id = run.ledger.calls[call_id].action_id
    action = run.ledger.actions.get(action_id)
    if action is not None and action.state is ActionState.PENDING:
        run.recorder.add(ActionVoided(call_id=call_id, action_id=action_id, reason=reason), call_id)


def record_answer(question: Question, answer: Answer, run: Run) -> int:
    """A person spoke. A run that was paused goes on when nobody else is waited for."""
    ledger = run.ledger
    answered = run.recorder.add(_answered(question, answer, run), question.call_id)
    waits = any(action.state is ActionState.PENDING for action in ledger.actions.values())
    if ledger.state in _PAUSED and not waits:
        run.recorder.add(RunResumed(), causation_id=answered)
    return answered


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
        reason=parts.redactor.redact(intent.reason) if type(intent.reason) is str and intent.reason else "",
        duplicate=intent.call_id in run.ledger.calls,
    )


def _started(invocation: Invocation, run: Run) -> InvocationStarted:
    valid, tool, action_id = invocation.valid, invocation.tool, invocation.permitted.action_id
    changed = valid.arguments != valid.known.accepted.arguments
    return InvocationStarted(
        invocation_id=invocation.invocation_id,
        call_id=valid.call_id,
        tool=tool.spec.name,
        executor=invocation.executor,
        tool_version=tool.version,
        timeout_seconds=invocation.timeout_seconds,
        sandbox=invocation.sandbox,
        action_id=action_id,
        payload_hash=payload_hash(run.ledger.run_id, valid.call_id, tool, valid.arguments) if action_id else "",
        arguments=_storable(valid.arguments, run) if changed else None,
    )


def _storable(arguments: JsonObject, run: Run) -> object:
    text = encode(arguments).decode()
    redacted = run.parts.redactor.redact(text)
    return arguments if redacted == text else redacted


def _asked(question: Question, run: Run) -> Fact:
    fact = ApprovalRequested if question.kind == "approval" else InputRequested
    arguments = _storable(question.arguments, run)
    if arguments is not question.arguments:
        question = msgspec.structs.replace(question, arguments={"redacted": arguments})
    return fact(call_id=question.call_id, question=question)


def _answered(question: Question, answer: Answer, run: Run) -> Fact:
    is_approval = question.kind == "approval"
    if answer.approved:
        fact = ApprovalGranted if is_approval else InputProvided
    elif answer.expired:
        fact = ApprovalExpired if is_approval else InputExpired
    else:
        fact = ApprovalRejected if is_approval else InputRefused
    answer = msgspec.structs.replace(answer, reason=run.parts.redactor.redact(answer.reason))
    return fact(call_id=question.call_id, action_id=question.action_id, answer=answer)
