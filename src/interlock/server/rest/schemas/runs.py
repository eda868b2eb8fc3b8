"""REST schemas of runs: their events, questions, state and calls. Field names are stable."""

from typing import Any, Literal

import msgspec
from msgspec import field

from ....domain.call import Channel, KeyFact
from ....domain.decision import ApprovalScope, Approver, Decision
from ....domain.event import InvocationCompleted, InvocationStarted
from ....domain.json import JsonObject
from ....domain.messages import Usage
from ....domain.observation import Observation
from ....domain.payload import ApprovalBinding, BindingChange
from ....domain.state.conversation import ContextChange
from ....domain.state.verification import Verification
from ....domain.trial import Trial
from ....history.call_view import ModelView
from ....history.run_view import RunEvent, RunEventType
from ....history.state_view import CallStateView
from ....rendering.run_states import DisplayState, RunKind
from ....runs.inbox import Delivery
from ...core.runs.kept_rules import RuleTarget
from ..responses import Merged, OptionalSeq, OptionalTime, ResponseModel, Time, format_time

RunStatus = Literal["RUNNING", "PAUSED_APPROVAL", "PAUSED_CONSENT", "COMPLETED", "FAILED"]
ApprovalKind = Literal["approval", "input", "consent"]
ActionStatus = Literal["PENDING", "APPROVED", "REJECTED", "EXPIRED", "EXECUTED", "VOID"]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class RunResponse(ResponseModel, frozen=True, kw_only=True):
    """A run."""

    run_id: str
    agent: str
    status: RunStatus
    #: Finer than the status. `idle`: a conversation that waits for the next message; lists show it as `running`.
    #: `stopped` is a state of runs outside of a server. A run that ended because a person rejected a call, or did not
    #: answer in time, is `rejected` or `expired`, and its status is FAILED.
    display_state: DisplayState = field(name="state")
    is_degraded: bool = field(name="degraded")
    is_cancelled: bool = field(name="cancelled")
    #: Its events are not what was written, so it cannot be resumed or answered, only cancelled. `message` says more.
    is_damaged: bool = field(name="damaged")
    #: The person it acts for, and who created it.
    requester: str
    created_by: str
    parent_run_id: str
    #: `session`: a client, such as an MCP client or a coding agent, makes its calls; `agent` is its name.
    kind: RunKind
    #: The framework whose agent makes its calls. Its own program continues the run. Empty: an agent of this server.
    framework: str
    #: The first words of the task, and of how it ended.
    task: str
    message: str
    #: Why it failed: `user_denied`, `model_failed`, ... Empty: it did not, or there is no code.
    code: str
    created_at: Time
    updated_at: Time
    last_seq: int
    open_questions: int = field(name="pending_approvals")
    #: What its models used, also those of child runs whose results it has.
    input_tokens: int
    output_tokens: int
    cost: float


class MessageResponse(ResponseModel, frozen=True, kw_only=True):
    """A message that was sent to a run."""

    run_id: str
    #: Its event.
    seq: int


class RunList(ResponseModel, frozen=True, kw_only=True):
    """Runs."""

    rows: list[RunResponse] = field(name="runs")
    #: Empty: there are no more.
    next_cursor: str


class AgentSwitchResponse(ResponseModel, frozen=True, kw_only=True):
    """Who switched an agent off, when, and why."""

    actor: str = field(name="by")
    reason: str
    at: Time
    #: Whether all agents were switched off at once.
    all_agents: bool

    @classmethod
    def view_row(cls, row: Any) -> Any:
        """Say whether the switch is that of all agents."""
        return Merged({"all_agents": not row.name}, row)


class AgentResponse(ResponseModel, frozen=True, kw_only=True):
    """An agent."""

    name: str
    description: str
    tools: list[str]
    #: The queue of its runs, where workers on many hosts continue them.
    queue: str
    #: Null: its runs start and continue.
    switched_off: AgentSwitchResponse | None


class AgentList(ResponseModel, frozen=True, kw_only=True):
    """Agents."""

    agents: list[AgentResponse]


class EventResponse(ResponseModel, frozen=True, kw_only=True):
    """An event as operators see it."""

    type: RunEventType
    run_id: str
    seq: int
    at: Time
    data: JsonObject


def to_event_response(run_id: str, event: RunEvent) -> EventResponse:
    """Return an event of a run as operators see it."""
    return EventResponse(type=event.type, run_id=run_id, seq=event.seq, at=format_time(event.at), data=event.data)


class OutputResponse(ResponseModel, frozen=True, kw_only=True):
    """What a run says between its events. It is transient: recorded nowhere, and not repeated, but for the text of an
    answer that a model is writing: a reader that comes gets it from its beginning.

    `model.delta` has `text`, its `offset` in the answer, and how often the model began that again (`restarts`);
    `model.restarted` the `reason` for which the text so far does not count; `tool.progress` a `message` of the call
    `call_id`.
    """

    type: Literal["model.delta", "model.restarted", "tool.progress"]
    run_id: str
    #: The last event that was recorded before.
    seq: int
    data: JsonObject
    transient: Literal[True] = True


class StoredEventResponse(ResponseModel, frozen=True, kw_only=True):
    """An event as the log has it; its own times are nanoseconds since 1970."""

    seq: int
    hash: str
    event: msgspec.Raw

    @classmethod
    def view_row(cls, row: Any) -> Any:
        """Return the event as stored, or its bytes if they are unreadable."""
        try:
            _decode(row.body)
            event = msgspec.Raw(row.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            event = msgspec.Raw(_encode({"unreadable": row.body.decode(errors="backslashreplace")}))
        return {"seq": row.seq, "hash": row.hash.hex(), "event": event}


class EventList(ResponseModel, frozen=True, kw_only=True):
    """Events as operators see them."""

    #: As operators see them.
    events: list[EventResponse]
    #: What to ask for next, as `after_seq`.
    next_after_seq: int
    last_seq: int


class StoredEventList(ResponseModel, frozen=True, kw_only=True):
    """Events as stored."""

    entries: list[StoredEventResponse] = field(name="events")
    next_after_seq: int
    last_seq: int


class ApprovalResponse(ResponseModel, frozen=True, kw_only=True):
    """An approval, input or consent that a run waits for."""

    action_id: str
    run_id: str
    agent: str
    requester: str
    created_by: str
    call_id: str
    tool: str
    #: The operation and the first thing that it acts on.
    capability: str
    #: What it is about, in one line, made from the arguments. Secrets and invisible characters are left out.
    title: str
    kind: ApprovalKind
    payload_hash: str
    status: ActionStatus
    risk: list[str]
    asked_at: Time = field(name="created_at")
    expires_at: OptionalTime
    asked_seq: int = field(name="created_seq")
    decided_at: OptionalTime
    decided_by: str
    #: The rules that ask.
    rules: list[str]
    #: The account that is to answer it; empty: none. Decisions do not return it.
    assignee: str


class ApprovalList(ResponseModel, frozen=True, kw_only=True):
    """Approvals."""

    rows: list[ApprovalResponse] = field(name="approvals")
    next_cursor: str


class AnswerResponse(ResponseModel, frozen=True, kw_only=True):
    """The answer to an approval."""

    approved: bool
    by: str
    reason: str
    #: Where it was given, and whether a person proved it or a client claims it. Empty: not known.
    channel: Channel
    assurance: Literal["", "proved", "claimed"]
    expired: bool
    scope: ApprovalScope
    until: OptionalTime
    rule: str
    #: What a person wrote instead, and the value that they gave.
    arguments: JsonObject | None
    value: Any

    @classmethod
    def view_row(cls, row: Any) -> Any:
        """Leave out the assurance where it is not known."""
        return Merged({"assurance": row.assurance if row.is_qualified else ""}, row)


class ApprovalDetailResponse(ResponseModel, frozen=True, kw_only=True):
    """An approval with everything that the answer is bound to."""

    action_id: str
    run_id: str
    agent: str
    call_id: str
    tool_name: str = field(name="tool")
    capability: str
    headline: str = field(name="title")
    #: The values to look at first.
    key_facts: list[KeyFact]
    kind: ApprovalKind
    payload_hash: str
    status: ActionStatus
    risk: list[str]
    asked_at: Time = field(name="created_at")
    expires_at: OptionalTime
    prompt: str
    reason: str
    #: Who asks: `user rule`, `permission mode`, `default`, ...
    layer: str
    rule_ids: list[str]
    arguments: JsonObject
    bound: ApprovalBinding = field(name="binding")
    scope: ApprovalScope
    #: `client`: what a client claims its user answered counts, too.
    approver: Approver
    suggested_rule: str
    target_arg: str
    provider: str
    scopes: list[str]
    #: For a consent: where the user goes to give or refuse it, on this server. Empty: it is not waited for.
    authorize_url: str = ""
    #: What changed since it was asked before, and the question that this one replaces.
    changes: list[BindingChange]
    replaces: str
    #: Who edited the arguments, where another person has to approve the result.
    edited_by: str
    #: What the call did in its trial. An approval applies exactly that.
    trial: Trial | None
    answer: AnswerResponse | None
    asked_seq: int = field(name="created_seq")
    answered_seq: OptionalSeq
    executed_seq: OptionalSeq

    @classmethod
    def view_row(cls, row: Any) -> Any:
        """Merge the action with its question."""
        is_awaited = (row.question.kind, row.status) == ("consent", "PENDING")
        absent = {"authorize_url": "/console/consents" if is_awaited else "", "executed_seq": None}
        return Merged(row, row.question, absent)


class ApprovalDetailList(ResponseModel, frozen=True, kw_only=True):
    """Approvals with everything that the answers are bound to."""

    approvals: list[ApprovalDetailResponse]


class ApprovalReviewResponse(ResponseModel, frozen=True, kw_only=True):
    """An approval, its run, and whether the caller may decide it."""

    action: ApprovalDetailResponse = field(name="approval")
    run: RunResponse
    #: Whether the caller may decide it, and if not, why.
    can_decide: bool
    denied_reason: str
    #: The account that is to answer it; empty: none.
    assignee: str
    #: Where a rule would be saved with an approval. Null: no rule was suggested.
    rule_target: RuleTarget | None

    @classmethod
    def view_row(cls, row: Any) -> Any:
        """Add whether the caller may decide."""
        return Merged(row, {"can_decide": not row.denied_reason, "assignee": row.row.assignee})


class DecisionResponse(ResponseModel, frozen=True, kw_only=True):
    """The answered approval, and how the answer was delivered."""

    action: ApprovalResponse = field(name="approval")
    #: `queued`: another process owns the run, and applies the answer.
    delivery: Delivery
    #: With the scope `rule`: where the rule is saved when the call starts, and which other agents use that file.
    rule_target: RuleTarget | None


class ArtifactResponse(ResponseModel, frozen=True, kw_only=True):
    """An artifact of a run."""

    artifact_id: str
    kind: str
    #: Null: the store does not have it any more.
    size_bytes: OptionalSeq
    call_id: str
    seq: int


class ArtifactList(ResponseModel, frozen=True, kw_only=True):
    """Artifacts of a run."""

    artifacts: list[ArtifactResponse]


class ActivityResponse(ResponseModel, frozen=True, kw_only=True):
    """One recent event."""

    position: int
    run_id: str
    agent: str
    #: The run's, now.
    status: RunStatus
    seq: int
    at: Time
    type: str
    tool: str
    action_id: str
    text: str


class OverviewResponse(ResponseModel, frozen=True, kw_only=True):
    """Counts of runs and pending approvals, and recent activity."""

    #: How many runs have each status, and how many approvals of each kind are pending.
    runs: dict[str, int]
    open_questions: dict[str, int] = field(name="pending_approvals")
    recent: list[ActivityResponse]


class ApprovalStateResponse(ResponseModel, frozen=True, kw_only=True):
    """The state of an approval at one event of its run."""

    action_id: str
    call_id: str
    tool: str
    kind: str
    status: ActionStatus
    payload_hash: str
    asked_at: Time = field(name="created_at")
    expires_at: OptionalTime
    asked_seq: int = field(name="created_seq")
    #: Null: not yet, or never.
    answered_seq: OptionalSeq
    executed_seq: OptionalSeq
    by: str = field(name="decided_by")
    reason: str
    #: Where it was answered, and whether a person proved it or a client claims it. Empty: not answered, or not known.
    channel: str
    assurance: str


class RunStateResponse(ResponseModel, frozen=True, kw_only=True):
    """The state of a run at one event."""

    run_id: str
    at_seq: int
    at: Time
    status: RunStatus
    state: DisplayState
    agent: str
    active_agent: str
    requester: str
    created_by: str
    parent_run_id: str
    started_at: Time
    message: str
    #: The code of a failed run; empty for none.
    code: str
    calls: list[CallStateView]
    questions: list[ApprovalStateResponse] = field(name="approvals")
    message_count: int
    model_requests: int
    model_answers: int = field(name="model_responses")
    tool_calls: int
    usage: Usage
    #: When older messages were left out of what the model sees, or replaced by a summary.
    context_changes: list[ContextChange]
    verification: Verification


class CallList(ResponseModel, frozen=True, kw_only=True):
    """Calls of a run."""

    calls: list[CallStateView]


class PersonViewResponse(ResponseModel, frozen=True, kw_only=True):
    """What the person saw of a call."""

    questions: list[ApprovalDetailResponse] = field(name="approvals")
    #: The outcome in one line.
    summary: str


class PolicyEvaluationResponse(ResponseModel, frozen=True, kw_only=True):
    """One policy evaluation of a call."""

    seq: int
    at: Time
    decision: Decision


class InvocationResponse(ResponseModel, frozen=True, kw_only=True):
    """One execution of a call."""

    started_seq: int
    started_at: Time
    started: InvocationStarted
    #: What ran, with defaults and what a person or a hook changed.
    arguments: Any
    ended_seq: OptionalSeq
    ended_at: OptionalTime
    ended: InvocationCompleted | None
    child_run_id: str


class ExecutionViewResponse(ResponseModel, frozen=True, kw_only=True):
    """What was decided and executed for a call."""

    validation_errors: list[str]
    decisions: list[PolicyEvaluationResponse]
    invocations: list[InvocationResponse]
    observation: Observation | None
    warnings: list[str]


class CallResponse(ResponseModel, frozen=True, kw_only=True):
    """One call in three views."""

    run_id: str
    call_id: str
    tool: str
    tool_version: str
    proposed_seq: int
    proposed_at: Time
    observed_seq: OptionalSeq
    observed_at: OptionalTime
    repeated: int
    model_view: ModelView
    person_view: PersonViewResponse
    execution: ExecutionViewResponse
