"""The events of questions, answers and ends, and what is redacted from them.

Arguments and reasons may hold secrets: they are stored unchanged only when nothing in them looks like one.
"""

from collections.abc import Callable

import msgspec

from ..domain.call import Answer, Invocation, Question, SuspendedCall, WaitingCall
from ..domain.decision import RECOVERY_LAYER, Decision
from ..domain.event import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    ApprovalVoided,
    CallObserved,
    CallProposed,
    CallTried,
    ConsentExpired,
    ConsentGranted,
    ConsentRefused,
    ConsentRequested,
    Fact,
    InputExpired,
    InputProvided,
    InputRefused,
    InputRequested,
    InvocationCompleted,
    InvocationSuspended,
    RunFailed,
    RunResumed,
    WarningRaised,
)
from ..domain.json import encode
from ..domain.observation import ExitStatus, Observation
from ..domain.payload import ApprovalBinding, BindingChange, compute_grant_key, hash_answer
from ..domain.redaction import redact_json, redact_json_text, redact_line
from ..domain.state.ledger import ActionEntry
from ..domain.state.lifecycle import ActionState, RunState
from ..domain.tool import JsonObject
from ..domain.trial import Trial, TriedChange
from ..redaction.interface import MAX_PLAIN_NAMES
from ..rendering.text import shorten
from .accept import Received
from .context import RunContext
from .execute import Execution
from .refusals import rejection_failure

_PAUSED = frozenset({RunState.PAUSED_APPROVAL, RunState.PAUSED_CONSENT, RunState.PAUSED_INPUT})
_MAX_EDITED_CHARS = 2_000
_ASKED = {"approval": ApprovalRequested, "input": InputRequested, "consent": ConsentRequested}
_REFUSED = {"approval": ApprovalRejected, "input": InputRefused, "consent": ConsentRefused}
_EXPIRED = {"approval": ApprovalExpired, "input": InputExpired, "consent": ConsentExpired}
#: The exit of a call by its code: the runtime's own, and that of a command that was ended at its own timeout.
_EXITS: dict[str, ExitStatus] = {"cancelled": "cancelled", "timed_out": "timeout", "command_timed_out": "timeout"}


def record_repeat(received: Received, run: RunContext) -> None:
    """Record that the model proposed a call again that is not planned again."""
    intent = received.intent
    fact = CallProposed(call_id=intent.call_id, tool=intent.tool_name, digest=received.digest, duplicate=True)
    run.recorder.add(fact, intent.call_id)


def storable_decision(decision: Decision, run: RunContext) -> Decision:
    """Redact texts of a decision that quote the call's arguments or a policy error."""
    redact, known = run.parts.redactor.redact, run.parts.redactor.plain_names
    clean = msgspec.structs.replace(
        decision,
        reason=redact(decision.reason),
        prompt=redact(decision.prompt) if decision.prompt else "",
        title=redact(decision.title) if decision.title else "",
        advice=redact(decision.advice) if decision.advice else "",
        risk=tuple(map(redact, decision.risk)),
        paths=tuple(map(redact, decision.paths)),
        suggested_rule=_storable_rule(decision.suggested_rule, run),
    )
    if clean.reason == decision.reason and len(known) < MAX_PLAIN_NAMES:
        known.add(decision.reason)
    return clean


def question_event(question: Question, run: RunContext) -> Fact:
    """Build the event of a question, redacted."""
    redact, fact = run.parts.redactor.redact, _ASKED[question.kind]
    question = msgspec.structs.replace(
        question,
        arguments=_storable_arguments(question.arguments, run),
        prompt=redact(question.prompt),
        reason=redact(question.reason),
        risk=tuple(map(redact, question.risk)),
        capability=redact(question.capability),
        suggested_rule=_storable_rule(question.suggested_rule, run),
        edited_by=run.parts.redactor.redact(question.edited_by),
        bound=_storable_bound(question.bound, run),
        changes=_storable_changes(question.changes, run),
        trial=question.trial and redact_trial(question.trial, run.parts.redactor.redact),
    )
    return fact(call_id=question.call_id, question=question)


def void_event(
    question: Question, changes: tuple[BindingChange, ...], run: RunContext, edited_by: str = ""
) -> ApprovalVoided:
    """Return the event that voids a question: its binding changed, or its arguments were edited and another person has
    to approve them.
    """
    storable = _storable_changes(changes, run)
    what = ", ".join(change.what for change in storable)
    return ApprovalVoided(
        call_id=question.call_id,
        action_id=question.action_id,
        reason=run.parts.redactor.redact(f"Its arguments were edited by {edited_by}: another person has to approve.")
        if edited_by
        else f"It was bound to something that changed: {what}.",
        changes=storable,
    )


def record_answer(question: Question, answer: Answer, run: RunContext) -> int:
    """Record a person's answer and return its `seq`. After an approval the run resumes first, then the approval is
    logged.
    """
    if answer.approved:
        resume_if_unblocked(run.ledger.actions[question.action_id].asked_seq, run, but=question.action_id)
    answered = run.recorder.add(_answer_event(question, answer, run), question.call_id)
    resume_if_unblocked(answered, run)
    return answered


def resume_if_unblocked(cause: int, run: RunContext, but: str = "") -> None:
    """Resume a paused run when no question is open, except `but`, which is being answered. A run that fails because of
    an answer is not resumed: it fails from the pause.
    """
    ledger = run.ledger
    if ledger.state not in _PAUSED:
        return
    actions = ledger.actions.items()
    if any(action.is_open for action_id, action in actions if action_id != but):
        return
    if run.parts.fail_safe.after_rejection != "fail" or not any(_ends_run(action, run) for _, action in actions):
        run.recorder.add(RunResumed(), causation_id=cause)


def _ends_run(action: ActionEntry, run: RunContext) -> bool:
    """Return True if the answer ends the run. Refusing a repeat leaves the outcome unknown and the run alive."""
    return _is_rejection(action) and run.ledger.calls[action.question.call_id].observed_seq < 0


def _is_rejection(action: ActionEntry) -> bool:
    return action.state in (ActionState.REJECTED, ActionState.EXPIRED) and action.question.layer != RECOVERY_LAYER


def missing_terminal_event(run: RunContext) -> RunFailed | None:
    """Return the end that an opened run should have, where its process died between a rejection and the end that
    follows from it. Events copied into a fork ended another run, not this one.
    """
    ledger = run.ledger
    if run.ledger.is_over or run.parts.fail_safe.after_rejection != "fail":
        return None
    for action in filter(_is_rejection, ledger.actions.values()):
        call = ledger.calls[action.question.call_id]
        is_of_now = call.observed_seq >= 0 and call.batch == ledger.batch
        if is_of_now and action.answer is not None and action.answered_seq > ledger.checks.forked_at:
            failure = rejection_failure(action.question, action.answer)
            message = f"The run ends because of an answer: {failure.message}"
            return RunFailed(message=run.parts.redactor.redact(message), code=failure.code)
    return None


def _answer_event(question: Question, answer: Answer, run: RunContext) -> Fact:
    call_id, action_id = question.call_id, question.action_id
    written = hash_answer(question.payload_hash, answer.arguments, answer.value)
    arguments = _storable_arguments(answer.arguments, run) if answer.arguments is not None else None
    redact = run.parts.redactor.redact
    answer = msgspec.structs.replace(
        answer,
        reason=redact(answer.reason),
        by=redact(answer.by),
        rule=_storable_rule(answer.rule, run),
        arguments=arguments,
    )
    if answer.approved and question.kind == "consent":
        return ConsentGranted(call_id=call_id, action_id=action_id, answer=answer)
    if answer.approved and question.kind == "approval":
        key = _grant_key(question) if answer.scope in ("run", "window") else ""
        return ApprovalGranted(call_id=call_id, action_id=action_id, answer=answer, grant_key=key, written_hash=written)
    if answer.approved:
        return InputProvided(call_id=call_id, action_id=action_id, answer=answer, written_hash=written)
    fact = (_EXPIRED if answer.expired else _REFUSED)[question.kind]
    return fact(call_id=call_id, action_id=action_id, answer=answer)


def _grant_key(question: Question) -> str:
    """Return the key that identifies the same call later. Arguments that are not in the log cannot be identified."""
    return compute_grant_key(question.tool_name, question.arguments, question.bound, question.rule_ids)


def void_question(call_id: str, reason: str, run: RunContext, *, fails: bool = False) -> None:
    """Void a question that needs no answer any more. `fails`: the run is about to fail and is not resumed before
    that.
    """
    action_id = run.ledger.calls[call_id].action_id
    action = run.ledger.actions.get(action_id)
    if action is not None and action.is_open:
        seq = run.recorder.add(ApprovalVoided(call_id=call_id, action_id=action_id, reason=reason), call_id)
        if not fails:
            resume_if_unblocked(seq, run)


def end_event(execution: Execution, observation: Observation, run: RunContext) -> InvocationCompleted:
    """Build the event that a call ended."""
    invocation = execution.invocation
    code = observation.failure.code if observation.failure is not None else "ok"
    return InvocationCompleted(
        invocation_id=invocation.invocation_id,
        call_id=observation.call_id,
        exit="ok" if observation.ok else _EXITS.get(code, "error"),
        duration_ms=execution.duration_ms,
        code=code,
        side_effects=observation.side_effects,
        arguments=_storable(execution.changed.arguments, run) if execution.changed is not None else None,
        decision=storable_decision(execution.decision, run) if execution.decision is not None else None,
    )


def suspend_call(execution: Execution, suspended: SuspendedCall, run: RunContext) -> WaitingCall:
    """Record that the call is suspended, and return it as waiting for its child run."""
    invocation = execution.invocation
    call_id, child = invocation.valid.call_id, suspended.child_run_id
    fact = InvocationSuspended(invocation_id=invocation.invocation_id, call_id=call_id, child_run_id=child)
    run.recorder.add(fact, call_id, execution.started_seq)
    return WaitingCall(invocation.valid, invocation.permitted.decision, None, child)


def summarize_edit(observation: Observation, invocation: Invocation, run: RunContext) -> str:
    """Return the note for the model that the executed arguments differ from the proposed ones."""
    arguments = invocation.valid.arguments
    ran = redact_json(arguments, run.parts.redactor.redact) or encode(arguments).decode()
    ran = shorten(ran, _MAX_EDITED_CHARS)
    told = f"A person ({invocation.permitted.edited_by}) changed the arguments before it ran: {ran}"
    return f"{told}. {observation.summary}" if observation.summary else f"{told}."


def record_cancelled(execution: Execution, run: RunContext) -> None:
    """Record that the run was cancelled around this call. It is a fact about the call, not output for the model."""
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


def record_warnings(execution: Execution, observation: Observation, run: RunContext) -> None:
    """Record the warnings of a call. The run continues."""
    call_id, parts = observation.call_id, run.parts
    messages = list(execution.invocation.context.warnings)
    if observation.code == "sandbox_denied" and parts.fail_safe.tool_failure_policy == "continue":
        messages.append(observation.summary)
    for message in messages:
        run.recorder.add(WarningRaised(message=redact_line(message, parts.redactor.redact), call_id=call_id), call_id)


def record_observation(observation: Observation, run: RunContext) -> Observation:
    """Record the observation of a call that this process did not execute."""
    call_id = observation.call_id
    run.recorder.add(CallObserved(observation_id="obs_" + call_id, observation=observation), call_id)
    return observation if run.recorder.escaped is None else as_recorded(observation, run)


def as_recorded(observation: Observation, run: RunContext) -> Observation:
    """Return the observation as the log has it, where characters of it had to be escaped: both say the same."""
    fact, run.recorder.escaped = run.recorder.escaped, None
    if isinstance(fact, CallObserved) and fact.observation.call_id == observation.call_id:
        return fact.observation
    return observation


def _storable_bound(bound: ApprovalBinding, run: RunContext) -> ApprovalBinding:
    """Redact a binding. Words of a command may be paths, and a word may be a secret."""
    redact, surroundings = run.parts.redactor.redact, bound.surroundings
    files = tuple(msgspec.structs.replace(file, path=redact(file.path)) for file in surroundings.files)
    environment = {name: redact(value) for name, value in surroundings.environment.items()}
    storable = msgspec.structs.replace(surroundings, files=files, environment=environment)
    return msgspec.structs.replace(bound, surroundings=storable)


def redact_trial(trial: Trial, redact: Callable[[str], str]) -> Trial:
    """Return the trial without secrets."""
    changes = (TriedChange(redact(change.path), change.kind, redact(change.detail)) for change in trial.changes)
    return msgspec.structs.replace(
        trial,
        changes=tuple(changes),
        diff=redact(trial.diff),
        output=redact(trial.output),
        hosts=tuple(map(redact, trial.hosts)),
    )


def trial_event(call_id: str, trial: Trial, duration_ms: float, run: RunContext) -> CallTried:
    """Build the event that a call was tried."""
    return CallTried(
        call_id=call_id,
        digest=trial.digest,
        outcome=run.parts.redactor.redact(trial.outcome),
        change_count=trial.change_count,
        hosts=tuple(map(run.parts.redactor.redact, trial.hosts)),
        duration_ms=duration_ms,
    )


def _storable_changes(changes: tuple[BindingChange, ...], run: RunContext) -> tuple[BindingChange, ...]:
    redact = run.parts.redactor.redact
    return tuple(BindingChange(redact(change.what), redact(change.was), redact(change.now)) for change in changes)


def _storable_rule(rule: str, run: RunContext) -> str:
    """Return the rule, or nothing when it holds a secret: half a rule is none. A rule is JSON, or reads like it."""
    return rule if redact_json_text(rule, run.parts.redactor.redact) == rule else ""


def _storable_arguments(arguments: JsonObject, run: RunContext) -> JsonObject:
    """Return the arguments for a question or an answer in the log."""
    storable = _storable(arguments, run)
    return arguments if storable is arguments else {"redacted": storable}


def _storable(arguments: JsonObject, run: RunContext) -> object:
    redacted = redact_json(arguments, run.parts.redactor.redact)
    return arguments if redacted is None else redacted
