"""REST schemas of runs, their events and their questions. Field names are stable."""

from collections.abc import Iterable
from typing import Any, Literal, cast

import msgspec

from ....domain.call import Answer, Question
from ....domain.decision import ApprovalScope
from ....domain.event import LogEntry
from ....domain.json import JsonObject
from ....domain.payload import ApprovalBinding, BindingChange
from ....domain.state.lifecycle import RunState
from ....history.actions import Action
from ....history.run_view import RunEvent, RunEventType
from ...core.index.rows import ActionRow, RunRow
from ...core.index.run_index import ActivityRow
from ...core.runs.approval_service import DecisionResult
from ...core.runs.kept_rules import RuleTarget
from ...core.runs.queries import AgentRow, ArtifactRow, Overview, QuestionView
from ..times import format_optional_time, format_time

RunStatus = Literal["RUNNING", "PAUSED_APPROVAL", "PAUSED_CONSENT", "COMPLETED", "FAILED"]
ActionStatus = Literal["PENDING", "APPROVED", "REJECTED", "EXPIRED", "EXECUTED", "VOID"]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class ResponseModel(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all response schemas."""


class RunResponse(ResponseModel, frozen=True, kw_only=True):
    """A run."""

    run_id: str
    agent: str
    status: str
    #: Finer than the status: `degraded` and `cancelled`, too.
    state: str
    degraded: bool
    cancelled: bool
    #: The person it acts for, and who created it.
    requester: str
    created_by: str
    parent_run_id: str
    #: The first words of the task, and of how it ended.
    task: str
    message: str
    created_at: str
    updated_at: str
    last_seq: int
    open_questions: int

    @classmethod
    def from_domain(cls, row: RunRow) -> "RunResponse":
        return cls(
            run_id=row.run_id,
            agent=row.agent,
            status=row.status,
            state=row.state.value,
            degraded=row.state is RunState.DEGRADED,
            cancelled=row.state is RunState.CANCELLED,
            requester=row.requester,
            created_by=row.created_by,
            parent_run_id=row.parent_run_id,
            task=row.task,
            message=row.message,
            created_at=format_time(row.created_at),
            updated_at=format_time(row.updated_at),
            last_seq=row.last_seq,
            open_questions=row.open_questions,
        )


class RunList(ResponseModel, frozen=True, kw_only=True):
    """Runs."""

    runs: list[RunResponse]
    #: Empty: there are no more.
    next_cursor: str


class AgentResponse(ResponseModel, frozen=True, kw_only=True):
    """An agent."""

    name: str
    description: str
    tools: list[str]

    @classmethod
    def from_domain(cls, row: AgentRow) -> "AgentResponse":
        return cls(name=row.name, description=row.description, tools=list(row.tools))


class AgentList(ResponseModel, frozen=True, kw_only=True):
    """Agents."""

    agents: list[AgentResponse]


class EventResponse(ResponseModel, frozen=True, kw_only=True):
    """An event as operators see it."""

    type: RunEventType
    run_id: str
    seq: int
    at: str
    data: JsonObject

    @classmethod
    def from_domain(cls, run_id: str, event: RunEvent) -> "EventResponse":
        return cls(type=event.type, run_id=run_id, seq=event.seq, at=format_time(event.at), data=event.data)


class StoredEventResponse(ResponseModel, frozen=True, kw_only=True):
    """An event as the log has it; its own times are nanoseconds since 1970."""

    seq: int
    hash: str
    event: msgspec.Raw

    @classmethod
    def from_domain(cls, entry: LogEntry) -> "StoredEventResponse":
        try:
            _decode(entry.body)
            event = msgspec.Raw(entry.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            event = msgspec.Raw(_encode({"unreadable": entry.body.decode(errors="backslashreplace")}))
        return cls(seq=entry.seq, hash=entry.hash.hex(), event=event)


class EventList(ResponseModel, frozen=True, kw_only=True):
    """Events as operators see them."""

    #: As operators see them.
    events: list[EventResponse]
    #: What to ask for next, as `after_seq`.
    next_after_seq: int
    last_seq: int


class StoredEventList(ResponseModel, frozen=True, kw_only=True):
    """Events as stored."""

    events: list[StoredEventResponse]
    next_after_seq: int
    last_seq: int


class ActionResponse(ResponseModel, frozen=True, kw_only=True):
    """A question."""

    action_id: str
    run_id: str
    agent: str
    requester: str
    created_by: str
    call_id: str
    tool: str
    #: The operation and the first thing that it acts on.
    capability: str
    kind: Literal["approval", "input", "consent"]
    payload_hash: str
    status: ActionStatus
    risk: list[str]
    created_at: str
    expires_at: str | None
    asked_seq: int
    decided_at: str | None
    decided_by: str

    @classmethod
    def from_domain(cls, row: ActionRow) -> "ActionResponse":
        return cls(**_action_fields(row))


class ActionList(ResponseModel, frozen=True, kw_only=True):
    """Questions."""

    actions: list[ActionResponse]
    next_cursor: str


class AnswerResponse(ResponseModel, frozen=True, kw_only=True):
    """The answer to a question."""

    approved: bool
    by: str
    reason: str
    expired: bool
    scope: ApprovalScope
    until: str | None
    rule: str
    #: What a person wrote instead, and the value that they gave.
    arguments: JsonObject | None
    value: Any

    @classmethod
    def from_domain(cls, answer: Answer) -> "AnswerResponse":
        return cls(
            approved=answer.approved,
            by=answer.by,
            reason=answer.reason,
            expired=answer.expired,
            scope=answer.scope,
            until=format_optional_time(answer.until),
            rule=answer.rule,
            arguments=answer.arguments,
            value=answer.value,
        )


class ActionDetailResponse(ResponseModel, frozen=True, kw_only=True):
    """A question with everything that the answer is bound to."""

    action_id: str
    run_id: str
    agent: str
    call_id: str
    tool: str
    capability: str
    kind: Literal["approval", "input", "consent"]
    payload_hash: str
    status: ActionStatus
    risk: list[str]
    created_at: str
    expires_at: str | None
    prompt: str
    reason: str
    #: Who asks: `user rule`, `permission mode`, `default`, ...
    layer: str
    rule_ids: list[str]
    arguments: JsonObject
    bound: ApprovalBinding
    scope: ApprovalScope
    suggested_rule: str
    target_arg: str
    provider: str
    scopes: list[str]
    #: For a consent: where the user goes to give or refuse it, on this server. Empty: it is not waited for.
    authorize_at: str = ""
    #: What changed since it was asked before, and the question that this one replaces.
    changes: list[BindingChange]
    replaces: str
    #: Who edited the arguments, where another person has to approve the result.
    edited_by: str
    answer: AnswerResponse | None
    asked_seq: int
    answered_seq: int | None
    executed_seq: int | None

    @classmethod
    def from_domain(cls, action: Action) -> "ActionDetailResponse":
        return cls(
            status=to_action_status(action.status),
            authorize_at="/console/consents" if (action.question.kind, action.status) == ("consent", "PENDING") else "",
            answer=None if action.answer is None else AnswerResponse.from_domain(action.answer),
            asked_seq=action.asked_seq,
            answered_seq=action.answered_seq,
            executed_seq=action.executed_seq,
            **question_fields(action.question),
        )


class ActionDetailList(ResponseModel, frozen=True, kw_only=True):
    """Questions with everything that the answers are bound to."""

    actions: list[ActionDetailResponse]


class ApprovalResponse(ResponseModel, frozen=True, kw_only=True):
    """A question, its run, and whether the caller may decide it."""

    action: ActionDetailResponse
    run: RunResponse
    #: Whether the caller may decide it, and if not, why.
    may_decide: bool
    why_not: str
    #: Where a rule would be saved with an approval. Null: no rule was suggested.
    rule_target: RuleTarget | None

    @classmethod
    def from_domain(cls, view: QuestionView) -> "ApprovalResponse":
        return cls(
            action=ActionDetailResponse.from_domain(view.action),
            run=RunResponse.from_domain(view.run),
            may_decide=not view.why_not,
            why_not=view.why_not,
            rule_target=view.rule_target,
        )


class DecisionResponse(ResponseModel, frozen=True, kw_only=True):
    """The answered question, and how the answer was delivered."""

    action: ActionResponse
    #: `left`: another process has the run, and takes the answer from there.
    taken: Literal["recorded", "left"]
    #: With the scope `rule`: where the rule is saved when the call starts, and which other agents use that file.
    rule_target: RuleTarget | None

    @classmethod
    def from_domain(cls, decision: DecisionResult) -> "DecisionResponse":
        return cls(
            action=ActionResponse.from_domain(decision.action),
            taken=decision.delivery,
            rule_target=decision.rule_target,
        )


class ArtifactResponse(ResponseModel, frozen=True, kw_only=True):
    """An artifact of a run."""

    artifact_id: str
    kind: str
    #: Null: the store does not have it any more.
    size_bytes: int | None
    call_id: str
    seq: int

    @classmethod
    def from_domain(cls, row: ArtifactRow) -> "ArtifactResponse":
        return cls(
            artifact_id=row.artifact_id,
            kind=row.kind,
            size_bytes=row.size_bytes if row.size_bytes >= 0 else None,
            call_id=row.call_id,
            seq=row.seq,
        )


class ArtifactList(ResponseModel, frozen=True, kw_only=True):
    """Artifacts of a run."""

    artifacts: list[ArtifactResponse]


class ActivityResponse(ResponseModel, frozen=True, kw_only=True):
    """One recent event."""

    position: int
    run_id: str
    agent: str
    #: The run's, now.
    status: str
    seq: int
    at: str
    type: str
    tool: str
    action_id: str
    text: str

    @classmethod
    def from_domain(cls, row: ActivityRow) -> "ActivityResponse":
        return cls(
            position=row.position,
            run_id=row.run_id,
            agent=row.agent,
            status=row.status,
            seq=row.seq,
            at=format_time(row.at),
            type=row.type,
            tool=row.tool,
            action_id=row.action_id,
            text=row.text,
        )


class OverviewResponse(ResponseModel, frozen=True, kw_only=True):
    """Counts of runs and open questions, and recent activity."""

    #: How many runs have each status, and how many questions of each kind wait.
    runs: dict[str, int]
    open_questions: dict[str, int]
    recent: list[ActivityResponse]

    @classmethod
    def from_domain(cls, overview: Overview) -> "OverviewResponse":
        return cls(
            runs=overview.runs,
            open_questions=overview.open_questions,
            recent=list(map(ActivityResponse.from_domain, overview.recent)),
        )


def list_action_details(actions: Iterable[Action]) -> ActionDetailList:
    return ActionDetailList(actions=list(map(ActionDetailResponse.from_domain, actions)))


def _action_fields(row: ActionRow) -> dict[str, Any]:
    return {
        "action_id": row.action_id,
        "run_id": row.run_id,
        "agent": row.agent,
        "requester": row.requester,
        "created_by": row.created_by,
        "call_id": row.call_id,
        "tool": row.tool,
        "capability": row.capability,
        "kind": row.kind,
        "payload_hash": row.payload_hash,
        "status": to_action_status(row.status),
        "risk": list(row.risk),
        "created_at": format_time(row.asked_at),
        "expires_at": format_optional_time(row.expires_at),
        "asked_seq": row.asked_seq,
        "decided_at": format_optional_time(row.decided_at),
        "decided_by": row.decided_by,
    }


def question_fields(question: Question) -> dict[str, Any]:
    return {
        "action_id": question.action_id,
        "run_id": question.run_id,
        "agent": question.agent,
        "call_id": question.call_id,
        "tool": question.tool_name,
        "capability": question.capability,
        "kind": question.kind,
        "payload_hash": question.payload_hash,
        "risk": list(question.risk),
        "created_at": format_time(question.asked_at),
        "expires_at": format_optional_time(question.expires_at),
        "prompt": question.prompt,
        "reason": question.reason,
        "layer": question.layer,
        "rule_ids": list(question.rule_ids),
        "arguments": question.arguments,
        "bound": question.bound,
        "scope": question.scope,
        "suggested_rule": question.suggested_rule,
        "target_arg": question.target_arg,
        "provider": question.provider,
        "scopes": list(question.scopes),
        "changes": list(question.changes),
        "replaces": question.replaces,
        "edited_by": question.edited_by,
    }


def to_action_status(status: str) -> ActionStatus:
    """Return the status from the state's name."""
    return cast(ActionStatus, status)
