"""The state of one run: a fold of its events. Only `apply` changes it, live and on replay alike.

It holds what the next step needs and nothing that grows with output: a call keeps the `seq` of its observation, not
the observation. It is plain data, so a snapshot is its encoding; a snapshot never beats the log.
"""

from collections.abc import Callable
from typing import Any, cast

import msgspec

from ...domain import event as facts
from ..call import Answer, Question
from ..decision import Verdict
from ..errors import CONTEXT_LENGTH_EXCEEDED, IllegalTransitionError
from ..event import Event
from ..observation import Observation
from .conversation import Dialogue
from .lifecycle import (
    ACTION_TRANSITIONS,
    CALL_TRANSITIONS,
    RUN_TRANSITIONS,
    ActionState,
    CallState,
    RunState,
    next_state,
)
from .verification import StartingCall, VerificationState, find_starting_call_id

#: Reserved state name of a tool that hands the run to another agent. No other tool can set it.
AGENT_STATE_KEY = "interlock:agent"


#: Key of a child run's usage in the facts of its observation.
USAGE_FACT_KEY = "interlock:usage"


#: Failures that leave open whether the handler did its work.
_UNKNOWN_OUTCOMES = frozenset({"outcome_unknown", "timed_out", "cancelled"})


class CallEntry(msgspec.Struct, gc=False, omit_defaults=True):
    """The state of one call."""

    tool: str
    digest: str
    state: CallState
    batch: int
    proposed_seq: int
    tool_version: str = ""
    #: The start that has no recorded end, or -1.
    started_seq: int = -1
    observed_seq: int = -1
    action_id: str = ""
    ok: bool = False
    latency_ms: float | None = None
    #: The child run that it waits for.
    child_run_id: str = ""

    @property
    def is_outcome_unknown(self) -> bool:
        """True when the call started and no end is recorded."""
        return self.started_seq >= 0


class ActionEntry(msgspec.Struct, omit_defaults=True):
    """One question and its answer. The stored answer is never evaluated again."""

    question: Question
    state: ActionState = ActionState.PENDING
    answer: Answer | None = None
    #: Hash of what the person wrote.
    written_hash: str = ""
    #: The events about it: asked, answered, started with it.
    asked_seq: int = -1
    answered_seq: int = -1
    #: When it was answered, in nanoseconds since 1970.
    answered_at: int = 0
    executed_seq: int = -1

    @property
    def is_open(self) -> bool:
        """True while the question has no answer."""
        return self.state is ActionState.PENDING


class Grant(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An approval that also covers the same call later."""

    action_id: str
    #: In nanoseconds since 1970; 0 is until the run ends.
    until: int = 0


class ToolSourceEntry(msgspec.Struct, omit_defaults=True):
    """An MCP server as the run last recorded it."""

    #: Empty: the connection was lost.
    connection: str = ""
    #: None: its tools were not recorded yet.
    versions: dict[str, str] | None = None
    quarantined: tuple[str, ...] = ()


class Ledger(msgspec.Struct, kw_only=True):
    """The folded state of one run."""

    run_id: str
    state: RunState = RunState.RUNNING
    #: The `seq` that the next event must have.
    next_seq: int = 0
    started: bool = False
    batch: int = -1
    menu_digest: str = ""
    #: By name of the server.
    tool_sources: dict[str, ToolSourceEntry] = {}
    calls: dict[str, CallEntry] = {}
    actions: dict[str, ActionEntry] = {}
    grants: dict[str, Grant] = {}
    artifact_ids: set[str] = set()
    #: State that tools share with later calls; the newest value by name.
    tool_state: dict[str, Any] = {}
    #: The last call with an unknown outcome, by the digest of its tool and arguments.
    unknown_calls: dict[str, str] = {}
    #: When it began, in nanoseconds since 1970, and for which agent.
    started_at: int = 0
    agent: str = ""
    #: The user that it acts for, and who created it.
    requester: str = ""
    created_by: str = ""
    #: The framework whose agent makes its calls, where that is not ours.
    framework: str = ""
    #: It is the session of a client, such as an MCP client or a coding agent, which makes its calls one by one.
    is_session: bool = False
    #: A final answer does not end it.
    is_chat: bool = False
    #: The `seq` of messages, by the key of their request.
    message_keys: dict[str, int] = {}
    #: The parent run.
    parent_run_id: str = ""
    #: The trace context (W3C) in which it paused last.
    paused_trace: str = ""
    #: The reason or the result of its end, and the code of a failure.
    message: str = ""
    code: str = ""
    checks: VerificationState = msgspec.field(default_factory=VerificationState)
    dialogue: Dialogue = msgspec.field(default_factory=Dialogue)

    def apply(self, event: Event) -> None:
        """Apply the next event. Raise `IllegalTransitionError` if it does not fit."""
        if event.seq != self.next_seq:
            raise IllegalTransitionError(f"event {event.seq} of {self.run_id} is not the next one, {self.next_seq}")
        fact = event.fact
        try:
            EVENT_HANDLERS[type(fact)](self, fact, event.seq)
        except KeyError as unknown:
            raise transition_error(event, unknown) from None
        self.next_seq = event.seq + 1
        if not event.seq:
            self.started_at = event.at
        if type(fact) in ANSWER_TRIGGERS:
            self.actions[cast(Any, fact).action_id].answered_at = event.at

    @property
    def active_agent(self) -> str:
        """The agent whose turn it is: the first agent of the run, or the one it was handed to."""
        return self.tool_state.get(AGENT_STATE_KEY, self.agent)

    @property
    def is_over(self) -> bool:
        """True when the run has ended."""
        return not RUN_TRANSITIONS[self.state]

    def open_questions(self) -> "list[Question]":
        """Return the open questions of a run, in the order in which they were asked. A run that has ended has none."""
        if self.is_over:
            return []
        return [action.question for action in self.actions.values() if action.is_open]

    def open_calls(self) -> list[str]:
        """Return the calls that have no observation yet, in model order."""
        return [call_id for call_id, call in self.calls.items() if call.state is not CallState.OBSERVED]


def transition_error(event: Event, unknown: KeyError) -> IllegalTransitionError:
    """Build the error for an event that refers to something unknown."""
    return IllegalTransitionError(
        f"event {event.seq} of {event.run_id}, {event.type}, does not fit what came before: no {unknown} here"
    )


def _ignore(ledger: Ledger, fact: Any, seq: int) -> None:
    """Ignore an event that is for readers of the log and changes no state."""


def _on_run_started(ledger: Ledger, fact: facts.RunStarted, seq: int) -> None:
    if ledger.started:
        raise IllegalTransitionError(f"{ledger.run_id} started twice")
    if fact.schema > facts.SCHEMA_VERSION:
        raise facts.version_error(ledger.run_id, fact.schema)
    ledger.started = True
    ledger.agent, ledger.parent_run_id = fact.agent, fact.parent_run_id
    ledger.requester, ledger.created_by = fact.requester, fact.created_by
    ledger.framework = fact.settings.get("framework", "")
    ledger.is_session, ledger.is_chat = fact.is_session, fact.is_chat
    ledger.checks.forked_at = fact.forked_at


def _on_run_paused(ledger: Ledger, fact: facts.RunPaused, seq: int) -> None:
    ledger.state = next_state(RUN_TRANSITIONS, ledger.state, f"paused for {fact.kind}")
    ledger.paused_trace = fact.traceparent


def _on_run_transition(ledger: Ledger, fact: Any, seq: int) -> None:
    ledger.state = next_state(RUN_TRANSITIONS, ledger.state, facts.event_type(fact))


def _on_run_ended(ledger: Ledger, fact: Any, seq: int) -> None:
    _on_run_transition(ledger, fact, seq)
    ledger.message = fact.message
    if isinstance(fact, facts.RunFailed):
        ledger.code = fact.code


def _on_server_connected(ledger: Ledger, fact: facts.McpServerConnected, seq: int) -> None:
    ledger.tool_sources.setdefault(fact.server, ToolSourceEntry()).connection = fact.connection


def _on_server_lost(ledger: Ledger, fact: facts.McpServerLost, seq: int) -> None:
    ledger.tool_sources.setdefault(fact.server, ToolSourceEntry()).connection = ""


def _on_source_listed(ledger: Ledger, fact: facts.McpToolsListed, seq: int) -> None:
    source = ledger.tool_sources.setdefault(fact.server, ToolSourceEntry())
    source.versions, source.quarantined = dict(fact.versions), fact.quarantined
    if fact.artifact_id:
        ledger.artifact_ids.add(fact.artifact_id)


def _on_source_changed(ledger: Ledger, fact: facts.McpToolsChanged, seq: int) -> None:
    source = ledger.tool_sources[fact.server]
    kept = {name: digest for name, digest in (source.versions or {}).items() if name not in fact.removed}
    source.versions, source.quarantined = {**kept, **fact.added, **fact.changed}, fact.quarantined
    if fact.artifact_id:
        ledger.artifact_ids.add(fact.artifact_id)


def _on_tools_offered(ledger: Ledger, fact: facts.ToolsOffered, seq: int) -> None:
    ledger.menu_digest = fact.digest
    ledger.artifact_ids.add(fact.artifact_id)


def _on_batch_started(ledger: Ledger, fact: facts.BatchStarted, seq: int) -> None:
    ledger.batch = seq


def _on_call_proposed(ledger: Ledger, fact: facts.CallProposed, seq: int) -> None:
    is_known = fact.call_id in ledger.calls
    if ledger.dialogue.open:
        ledger.dialogue.add_call(fact, ledger.calls[fact.call_id] if is_known else None, seq)
    if not is_known:
        ledger.calls[fact.call_id] = CallEntry(
            fact.tool, fact.digest, CallState.PROPOSED, ledger.batch, seq, fact.tool_version
        )


def _on_call_validated(ledger: Ledger, fact: facts.CallValidated, seq: int) -> None:
    call = ledger.calls[fact.call_id]
    if call.state is CallState.PROPOSED:
        call.state = CALL_TRANSITIONS[call.state]["validation passed" if fact.ok else "validation failed"]


_VERDICT_TRIGGERS = {
    Verdict.ALLOW: "allowed",
    Verdict.ASK: "asked",
    Verdict.REQUEST_INPUT: "asked",
    Verdict.DENY: "denied",
}


def _on_policy_evaluated(ledger: Ledger, fact: facts.PolicyEvaluated, seq: int) -> None:
    call = ledger.calls[fact.call_id]
    call.state = CALL_TRANSITIONS[call.state][_VERDICT_TRIGGERS[fact.decision.verdict]]
    call.action_id = ""  # a new evaluation: a question about an earlier one does not apply to it


def _on_question_asked(
    ledger: Ledger, fact: facts.ApprovalRequested | facts.InputRequested | facts.ConsentRequested, seq: int
) -> None:
    question, call = fact.question, ledger.calls[fact.call_id]
    if question.action_id in ledger.actions:
        raise IllegalTransitionError(f"{question.action_id} was asked twice")
    ledger.actions[question.action_id] = ActionEntry(question, asked_seq=seq)
    call.action_id = question.action_id


def _find_action(ledger: Ledger, action_id: str, call_id: str) -> ActionEntry:
    """Return the question about exactly this call: an answer to one call is never an answer to another."""
    action = ledger.actions[action_id]
    if action.question.call_id != call_id:
        raise IllegalTransitionError(f"{action_id} is about {action.question.call_id}, not {call_id}")
    return action


#: The result of an answer, for every kind of question.
ANSWER_TRIGGERS: dict[type, str] = {
    facts.ApprovalGranted: "granted",
    facts.InputProvided: "granted",
    facts.ConsentGranted: "granted",
    facts.ApprovalRejected: "rejected",
    facts.InputRefused: "rejected",
    facts.ConsentRefused: "rejected",
    facts.ApprovalExpired: "expired",
    facts.InputExpired: "expired",
    facts.ConsentExpired: "expired",
}


def _on_question_answered(ledger: Ledger, fact: Any, seq: int) -> None:
    trigger = ANSWER_TRIGGERS[type(fact)]
    action, call = _find_action(ledger, fact.action_id, fact.call_id), ledger.calls[fact.call_id]
    action_state = next_state(ACTION_TRANSITIONS, action.state, trigger)
    call.state = CALL_TRANSITIONS[call.state][trigger]
    action.state, action.answer, action.answered_seq = action_state, fact.answer, seq
    if isinstance(fact, facts.ApprovalGranted | facts.InputProvided):
        action.written_hash = fact.written_hash
    if isinstance(fact, facts.ApprovalGranted) and fact.grant_key:
        ledger.grants[fact.grant_key] = Grant(fact.action_id, fact.answer.until)


def _on_approval_voided(ledger: Ledger, fact: facts.ApprovalVoided, seq: int) -> None:
    action, call = _find_action(ledger, fact.action_id, fact.call_id), ledger.calls[fact.call_id]
    action.state = next_state(ACTION_TRANSITIONS, action.state, "voided")
    call.action_id = ""


def _on_invocation_started(ledger: Ledger, fact: facts.InvocationStarted, seq: int) -> None:
    call = ledger.calls[fact.call_id]
    state = CALL_TRANSITIONS[call.state]["tool.invocation.started"]
    if fact.action_id != call.action_id:
        raise IllegalTransitionError(f"{fact.call_id} starts with {fact.action_id!r}, not {call.action_id!r}")
    if fact.action_id:
        action = _find_action(ledger, fact.action_id, fact.call_id)
        action.state = next_state(ACTION_TRANSITIONS, action.state, "tool.invocation.started")
        action.executed_seq = seq
    call.state, call.started_seq = state, seq
    ledger.checks.running[fact.call_id] = seq


def _on_invocation_completed(ledger: Ledger, fact: facts.InvocationCompleted, seq: int) -> None:
    call = ledger.calls[fact.call_id]
    call.state = CALL_TRANSITIONS[call.state]["tool.invocation.completed"]
    call.started_seq = -1
    call.latency_ms = fact.duration_ms
    if fact.side_effects:
        ledger.checks.record_change(seq, fact.side_effects, fact.call_id, call.tool)


def _on_invocation_suspended(ledger: Ledger, fact: facts.InvocationSuspended, seq: int) -> None:
    call = ledger.calls[fact.call_id]
    call.state = CALL_TRANSITIONS[call.state]["tool.invocation.suspended"]
    call.started_seq, call.child_run_id = -1, fact.child_run_id
    call.action_id = ""  # its start consumed the approval


def _on_call_observed(ledger: Ledger, fact: facts.CallObserved, seq: int) -> None:
    observation = fact.observation
    call = ledger.calls[observation.call_id]
    call.state = CALL_TRANSITIONS[call.state]["tool.observation"]
    call.observed_seq, call.ok = seq, observation.ok
    failure = observation.failure
    if failure is not None and failure.code in _UNKNOWN_OUTCOMES and observation.side_effects == "unknown":
        ledger.unknown_calls[call.digest] = observation.call_id
    elif ledger.unknown_calls and call.latency_ms is not None:  # it ran, and its outcome is known
        ledger.unknown_calls.pop(call.digest, None)
    if observation.artifacts:
        ledger.artifact_ids.update(artifact.id for artifact in observation.artifacts)
    if observation.state:
        _update_tool_state(ledger.tool_state, observation.state)
    if observation.kind == "verification" or observation.side_effects:
        ledger.checks.record_observation(observation, seq, _find_starting_call(ledger, observation))
    elif observation.call_id in ledger.checks.running:
        del ledger.checks.running[observation.call_id]
    if USAGE_FACT_KEY in observation.facts:
        ledger.dialogue.add_usage(observation.facts[USAGE_FACT_KEY])
    if ledger.dialogue.open:
        ledger.dialogue.add_observation(observation, seq)


def _find_starting_call(ledger: Ledger, observation: Observation) -> StartingCall | None:
    """Return the call that started what this observation reports. An unknown one may have started at any time."""
    call_id = find_starting_call_id(observation)
    if not call_id:
        return None
    call = ledger.calls.get(call_id)
    return StartingCall(0, observation.tool) if call is None else StartingCall(max(call.observed_seq, 0), call.tool)


def _update_tool_state(tool_state: dict[str, Any], update: dict[str, Any]) -> None:
    tool_state.update(update)
    for name in [name for name, value in update.items() if value is None]:
        del tool_state[name]


def _on_user_message(ledger: Ledger, fact: facts.UserMessageReceived, seq: int) -> None:
    ledger.dialogue.add_user_message(fact.text, seq, fact.parts)
    if fact.key:
        ledger.message_keys[fact.key] = seq
    if fact.parts:
        ledger.artifact_ids.update(part.artifact_id for part in fact.parts)


def _on_model_requested(ledger: Ledger, fact: facts.ModelRequested, seq: int) -> None:
    ledger.dialogue.record_request(fact.active_ms, fact.estimated_tokens)
    if fact.instructions_artifact_id:
        ledger.artifact_ids.add(fact.instructions_artifact_id)


def _on_model_responded(ledger: Ledger, fact: facts.ModelResponded, seq: int) -> None:
    ledger.dialogue.record_response(fact, ledger.active_agent, seq)
    if fact.private_artifact_id:
        ledger.artifact_ids.add(fact.private_artifact_id)


def _on_model_failed(ledger: Ledger, fact: facts.ModelFailed, seq: int) -> None:
    if fact.code == CONTEXT_LENGTH_EXCEEDED:
        ledger.dialogue.record_overflow(fact.estimated_tokens)


def _on_context_trimmed(ledger: Ledger, fact: facts.ContextTrimmed, seq: int) -> None:
    ledger.dialogue.trim(fact, seq)
    ledger.artifact_ids.update(fact.outputs.values())


def _on_context_compacted(ledger: Ledger, fact: facts.ContextCompacted, seq: int) -> None:
    ledger.dialogue.compact(fact, seq)
    ledger.artifact_ids.add(fact.artifact_id)


def _on_final_answer_rejected(ledger: Ledger, fact: facts.FinalAnswerRejected, seq: int) -> None:
    ledger.dialogue.add_rejection(fact.message, seq)


def _on_claim_contradicted(ledger: Ledger, fact: facts.ClaimContradicted, seq: int) -> None:
    ledger.dialogue.add_conflict(fact.message, seq, told=fact.told)


_EventHandler = Callable[[Ledger, Any, int], None]

#: What each event changes. Each handler looks everything up before it writes, so an event that does not fit changes
#: nothing.
EVENT_HANDLERS = cast(
    dict[type, _EventHandler],
    {
        facts.RunStarted: _on_run_started,
        facts.RunPaused: _on_run_paused,
        facts.RunResumed: _on_run_transition,
        facts.RunCompleted: _on_run_ended,
        facts.RunDegraded: _on_run_ended,
        facts.RunFailed: _on_run_ended,
        facts.RunCancelled: _on_run_ended,
        facts.ToolsOffered: _on_tools_offered,
        facts.McpServerConnected: _on_server_connected,
        facts.McpToolsListed: _on_source_listed,
        facts.McpToolsChanged: _on_source_changed,
        facts.McpServerLost: _on_server_lost,
        facts.UserMessageReceived: _on_user_message,
        facts.ModelRequested: _on_model_requested,
        facts.ModelResponded: _on_model_responded,
        facts.ModelFailed: _on_model_failed,
        facts.ContextTrimmed: _on_context_trimmed,
        facts.ContextCompacted: _on_context_compacted,
        facts.FinalAnswerRejected: _on_final_answer_rejected,
        facts.ClaimContradicted: _on_claim_contradicted,
        facts.BatchStarted: _on_batch_started,
        facts.WarningRaised: _ignore,
        facts.CallProposed: _on_call_proposed,
        facts.CallValidated: _on_call_validated,
        facts.PolicyEvaluated: _on_policy_evaluated,
        facts.CallTried: _ignore,
        facts.ApprovalRequested: _on_question_asked,
        facts.InputRequested: _on_question_asked,
        facts.ApprovalGranted: _on_question_answered,
        facts.ApprovalRejected: _on_question_answered,
        facts.ApprovalExpired: _on_question_answered,
        facts.InputProvided: _on_question_answered,
        facts.InputRefused: _on_question_answered,
        facts.InputExpired: _on_question_answered,
        facts.ConsentRequested: _on_question_asked,
        facts.ConsentGranted: _on_question_answered,
        facts.ConsentRefused: _on_question_answered,
        facts.ConsentExpired: _on_question_answered,
        facts.ApprovalVoided: _on_approval_voided,
        facts.InvocationStarted: _on_invocation_started,
        facts.InvocationCompleted: _on_invocation_completed,
        facts.InvocationSuspended: _on_invocation_suspended,
        facts.CallObserved: _on_call_observed,
    },
)
