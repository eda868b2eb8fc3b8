"""All calls of one model turn: planned before anything is executed, then executed concurrently, in model order.

Plan. Every call is accepted, looked up, validated and evaluated first. The same call twice is one call; one id with
different content is refused. A refusal that ends the run skips everything else, before any side effect.

Execute. Permitted and waiting calls are queued in model order (`batch_execution.py`).

End. The outcomes are in model order, one per intent, and durable. Cancelling the batch from outside cancels what runs
at once and shows the model nothing; how the handlers end is noticed in the background.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..domain.call import PermittedCall, QuestionKind, ToolIntent, WaitingCall
from ..domain.errors import RunPausedError, ToolError
from ..domain.event import (
    SCHEMA_VERSION,
    BatchStarted,
    RunDegraded,
    RunFailed,
    RunPaused,
    RunResumed,
    RunStarted,
    ToolsOffered,
    WarningRaised,
)
from ..domain.json import encode
from ..domain.observation import Observation
from ..domain.outcome import Failure
from ..domain.redaction import encode_redacted, redact_leaves
from ..domain.state.lifecycle import CallState, RunState
from ..domain.tool import ToolCatalog
from ..redaction.interface import MAX_PLAIN_NAMES
from .accept import Received, accept
from .artifacts import use_store
from .batch_execution import BatchExecution, Ending, Outcome
from .call import prepare_call, record_failure
from .context import RunContext
from .events import record_repeat, void_question
from .observe import observe_failure
from .resume import arguments_lost, resume_call

#: The pause kind of a run with several open questions: the first of these.
_PAUSES: tuple[tuple[QuestionKind, RunState], ...] = (
    ("approval", RunState.PAUSED_APPROVAL),
    ("input", RunState.PAUSED_INPUT),
    ("consent", RunState.PAUSED_CONSENT),
)


class BatchOutcome(msgspec.Struct, frozen=True):
    """The observations of a batch, one per intent in model order, and the reason the run ended, if it did."""

    outcomes: list[Outcome]
    waiting: tuple[WaitingCall, ...] = ()
    ending: Ending = ""
    message: str = ""
    error: ToolError | None = None


async def run_batch(  # noqa: PLR0913 - what makes a batch different from the usual one
    intents: Sequence[ToolIntent],
    run: RunContext,
    *,
    resumed: bool = False,
    refusal: str = "",
    joins: bool = False,
    plan_only: bool = False,
) -> BatchOutcome:
    """Execute the calls of one model turn.

    Args:
        intents: The calls, in model order.
        run: Their run.
        resumed: The intents are from the log.
        refusal: Why none of them may start.
        joins: Other calls of the run may be under way, or wait for a person: the caller orders them.
        plan_only: Decide, and ask where a person has to be asked. What is permitted does not start.
    """
    elapsed = run.parts.clock.elapsed
    began = elapsed()
    received = [accept(intent, run.parts.limits, run.parts.redactor) for intent in intents]
    count = len(received)
    if not run.ledger.started:
        start_run(run)
    is_new = _is_new(received, run, joins=joins)
    menu = run.parts.registry.catalog(run.situation)
    if menu.digest != run.ledger.menu_digest or run.parts.tool_sources:
        menu = await record_catalog(run)
    if is_new:
        situation = run.situation
        run.recorder.add(
            BatchStarted(
                call_count=count,
                menu_digest=menu.digest,
                mode=situation.mode,
                interactive=situation.interactive,
            )
        )
    batch = BatchExecution(run, plan_only)
    run.cancellation.listeners[batch.wake] = None
    refused = _find_refused(received, refusal, run) if refusal or count > 1 else {}
    permitted = await _prepare_calls(received, refused, resumed, batch, run)
    await batch.run(permitted)
    if batch.ending or batch.waiting:
        batch.conclude(item.intent.call_id for item in received)
        _close(batch, run)
    if not run.recorder.commits_later and not (run.recorder.is_immediate and run.recorder.write()):
        await run.recorder.commit()
    if run.executions.errors or run.cancellation.calls:
        batch.forget_cancelled()
    run.parts.telemetry.batch_finished(count, batch.failure_count, (elapsed() - began) / 1e6)
    return BatchOutcome(
        [batch.outcomes[item.intent.call_id] for item in received],
        tuple(batch.waiting.values()) if batch.waiting else (),
        batch.ending,
        batch.reason,
        _first_error(received, batch) if batch.errors else None,
    )


def _is_new(received: list[Received], run: RunContext, *, joins: bool) -> bool:
    """Return True if the batch has a call that the run has not. Refuse one while the run waits, unless it joins."""
    ledger = run.ledger
    for item in received:
        if item.intent.call_id not in ledger.calls:
            break
    else:
        return False
    if ledger.state is not RunState.RUNNING and not joins:
        waiting = ", ".join(ledger.open_calls())
        raise RunPausedError(f"{ledger.run_id} waits for an answer ({waiting}). Nothing was executed.")
    return True


def start_run(run: RunContext, settings: Mapping[str, str] | None = None) -> None:
    """Record the start of a run. Settings that hold a secret are left out."""
    situation, redact = run.situation, run.parts.redactor.redact
    begun = RunStarted(
        schema=SCHEMA_VERSION,
        agent=situation.agent,
        workspace=situation.workspace,
        requester=situation.requester,
        mode=situation.mode,
        created_by=situation.created_by,
        parent_run_id=situation.parent_run_id,
        parent_call_id=situation.parent_call_id,
        settings={name: value for name, value in (settings or {}).items() if value == redact(value)},
    )
    run.recorder.add(begun)


async def record_catalog(run: RunContext) -> ToolCatalog:
    """Record the tools that a model is offered from now on, and what is new of those that bring them. Return them."""
    if run.parts.tool_sources:
        await _record_tool_sources(run)
    menu = run.parts.registry.catalog(run.situation)
    if menu.digest != run.ledger.menu_digest:
        await _record_tools_offered(menu, run)
    return menu


async def _record_tool_sources(run: RunContext) -> None:
    """Record what is new of the servers that bring tools: their connections and their definitions."""
    now = tuple(source.sync() for source in run.parts.tool_sources)
    if now == run.executions.recorded_sources:
        return
    run.executions.recorded_sources, redact = now, run.parts.redactor.redact
    for source in run.parts.tool_sources:
        for fact, content in source.list_facts(run.ledger.tool_sources):
            clean = redact_leaves(msgspec.to_builtins(fact), redact)
            recorded: Any = msgspec.convert(clean, type(fact))
            if content:
                artifact_id = await use_store(
                    run.parts.artifacts, run.parts.artifacts.keep, redact(content.decode()).encode()
                )
                recorded = msgspec.structs.replace(recorded, artifact_id=artifact_id)
            run.recorder.add(recorded)


async def _record_tools_offered(menu: ToolCatalog, run: RunContext) -> None:
    """Record a catalog. Its schemas are stored once by a process."""
    redactor, artifacts, known = run.parts.redactor, run.parts.artifacts, run.parts.known_artifacts

    def keep() -> str:
        content = encode(menu.tools)
        if menu.digest not in redactor.plain_names:
            redacted = encode_redacted(menu.tools, redactor.redact)
            if redacted == content and len(redactor.plain_names) < MAX_PLAIN_NAMES:
                redactor.plain_names.add(menu.digest)
            content = redacted
        return artifacts.keep(content)

    artifact_id = known.find(menu.digest)
    if not artifact_id:
        artifact_id = await use_store(artifacts, keep)
        known.add(menu.digest, artifact_id)
    run.recorder.add(ToolsOffered(digest=menu.digest, versions=dict(menu.versions), artifact_id=artifact_id))


async def _prepare_calls(
    received: list[Received], refused: dict[str, Failure], resumed: bool, batch: BatchExecution, run: RunContext
) -> dict[str, PermittedCall | WaitingCall]:
    """Return the calls that may be executed, by id, in model order. Refused ones are concluded here, before anything is
    executed.
    """
    permitted: dict[str, PermittedCall | WaitingCall] = {}
    for item in received:
        call_id = item.intent.call_id
        if call_id in permitted or call_id in batch.outcomes:
            record_repeat(item, run)
            continue
        if call_id in refused and call_id not in run.ledger.calls:
            item = msgspec.structs.replace(item, outcome=refused[call_id])  # noqa: PLW2901 - the same call, refused
        if call_id not in run.ledger.calls:
            planned = await prepare_call(item, run)
        else:
            planned = await _prepare_again(item, call_id in refused, resumed, run)
        match planned:
            case PermittedCall() | WaitingCall():
                permitted[call_id] = planned
            case Failure():
                if call_id in run.ledger.calls:
                    void_question(call_id, planned.message, run, fails=batch.ending == "fail")
                batch.outcomes[call_id] = observation = record_failure(call_id, item.intent.tool_name, planned, run)
                batch.apply_fail_safe(observation, observation.failure or planned)
            case Observation():
                batch.outcomes[call_id] = planned
    return permitted


async def _prepare_again(
    item: Received, refused: bool, resumed: bool, run: RunContext
) -> PermittedCall | WaitingCall | Failure | Observation:
    entry = run.ledger.calls[item.intent.call_id]
    if entry.digest == item.digest and not refused:
        return await resume_call(item, entry, run)
    return arguments_lost(entry, run) if resumed else _refuse_reused_id(item, run)


def _first_error(received: list[Received], batch: BatchExecution) -> ToolError | None:
    """Return the exception to raise. When several calls raise, the first in model order wins."""
    raised = (batch.errors.get(item.intent.call_id) for item in received)
    return next((error for error in raised if error is not None), None)


def _close(batch: BatchExecution, run: RunContext) -> None:
    if run.ledger.is_over:
        return
    if batch.ending == "fail":
        run.recorder.add(RunFailed(message=batch.reason, code=batch.code))
    elif batch.ending == "degrade":
        run.recorder.add(RunDegraded(message=batch.reason))
    elif batch.waiting and _is_waiting(batch, run):
        _pause(batch, run)


def _pause(batch: BatchExecution, run: RunContext) -> None:
    """Record a pause for the questions that are open now, which need not be the earlier ones."""
    open_kinds = {question.kind for question in run.ledger.open_questions()}
    kind, state = next((pause for pause in _PAUSES if pause[0] in open_kinds), _PAUSES[0])
    if run.ledger.state not in (RunState.RUNNING, state):
        run.recorder.add(RunResumed())
    if run.ledger.state is RunState.RUNNING:
        telemetry = run.parts.telemetry
        traceparent = telemetry.get_traceparent() if telemetry.traces else ""
        run.recorder.add(RunPaused(kind=kind, waiting=tuple(batch.waiting), traceparent=traceparent))


def _is_waiting(batch: BatchExecution, run: RunContext) -> bool:
    """Return True if the batch still waits. A question may have been answered elsewhere while other calls ran."""
    calls, actions = run.ledger.calls, run.ledger.actions
    for call_id in batch.waiting:
        action = actions.get(calls[call_id].action_id)
        if calls[call_id].state is CallState.SUSPENDED or (action and action.is_open):
            return True
    return False


def _find_refused(received: list[Received], refusal: str, run: RunContext) -> dict[str, Failure]:
    """Return the calls that cannot be accepted together: too many, or one id for different calls."""
    if refusal:
        return {
            item.intent.call_id: Failure.from_code("skipped", f"{refusal} Nothing was executed.") for item in received
        }
    limit = run.parts.limits.max_calls_per_batch
    if len(received) > limit:
        message = f"{len(received)} calls in one response; the limit is {limit}. Nothing was executed."
        return {item.intent.call_id: Failure.from_code("batch_too_large", message) for item in received}
    first: dict[str, str] = {}
    refused: dict[str, Failure] = {}
    for item in received:
        call_id = item.intent.call_id
        if call_id not in first:
            first[call_id] = item.digest
        elif first[call_id] != item.digest:
            refused[call_id] = _id_conflict(call_id)
    return refused


def _id_conflict(call_id: str) -> Failure:
    message = f"The id {call_id!r} stands for different calls. Nothing was executed; use one id per call."
    return Failure.from_code("call_id_conflict", message)


def _refuse_reused_id(item: Received, run: RunContext) -> Observation:
    """Refuse a call whose id belongs to an earlier call, whose outcome is kept."""
    record_repeat(item, run)
    intent = item.intent
    failure = _id_conflict(intent.call_id)
    run.recorder.add(WarningRaised(message=failure.message, call_id=intent.call_id), intent.call_id)
    return observe_failure(intent.call_id, intent.tool_name, failure, run.parts.redactor)
