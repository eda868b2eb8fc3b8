"""Runs, their events and their questions as REST shows them. Field names here are a promise to programs."""

from collections.abc import Iterable
from typing import Any, Literal, cast

import msgspec

from ....domain.call import Answer, Question
from ....domain.chain import Entry
from ....domain.decision import Scope
from ....domain.json import JsonObject
from ....domain.payload import Bound, Change
from ....domain.state.lifecycle import RunState
from ....history.actions import Action
from ....history.run_view import RunEvent, RunEventType
from ...core.index.index import ActivityRow
from ...core.index.rows import ActionRow, RunRow
from ...core.runs.approvals import Decided
from ...core.runs.kept_rules import RuleTarget
from ...core.runs.queries import AgentRow, ArtifactRow, Overview, QuestionView
from ..times import moment, when

Status = Literal["RUNNING", "PAUSED_APPROVAL", "PAUSED_CONSENT", "COMPLETED", "FAILED"]
ActionStatus = Literal["PENDING", "APPROVED", "REJECTED", "EXPIRED", "EXECUTED", "VOID"]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    pass


class RunShape(Shape, frozen=True, kw_only=True):
    run_id: str
    agent: str
    status: str
    #: Finer than the status: `degraded` and `cancelled`, too.
    state: str
    degraded: bool
    cancelled: bool
    #: The person it acts for, and who made it.
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
    def of(cls, row: RunRow) -> "RunShape":
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
            created_at=moment(row.created_at),
            updated_at=moment(row.updated_at),
            last_seq=row.last_seq,
            open_questions=row.open_questions,
        )


class RunList(Shape, frozen=True, kw_only=True):
    runs: list[RunShape]
    #: Empty: there are no more.
    next_cursor: str


class AgentShape(Shape, frozen=True, kw_only=True):
    name: str
    description: str
    tools: list[str]

    @classmethod
    def of(cls, row: AgentRow) -> "AgentShape":
        return cls(name=row.name, description=row.description, tools=list(row.tools))


class AgentList(Shape, frozen=True, kw_only=True):
    agents: list[AgentShape]


class EventShape(Shape, frozen=True, kw_only=True):
    type: RunEventType
    run_id: str
    seq: int
    at: str
    data: JsonObject

    @classmethod
    def of(cls, run_id: str, event: RunEvent) -> "EventShape":
        return cls(type=event.type, run_id=run_id, seq=event.seq, at=moment(event.at), data=event.data)


class StoredEvent(Shape, frozen=True, kw_only=True):
    """An event as the log has it; its own times are nanoseconds since 1970."""

    seq: int
    hash: str
    event: msgspec.Raw

    @classmethod
    def of(cls, entry: Entry) -> "StoredEvent":
        try:
            _decode(entry.body)
            event = msgspec.Raw(entry.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            event = msgspec.Raw(_encode({"unreadable": entry.body.decode(errors="backslashreplace")}))
        return cls(seq=entry.seq, hash=entry.hash.hex(), event=event)


class EventList(Shape, frozen=True, kw_only=True):
    #: As operators see them.
    events: list[EventShape]
    #: What to ask for next, as `after_seq`.
    next_after_seq: int
    last_seq: int


class StoredEventList(Shape, frozen=True, kw_only=True):
    events: list[StoredEvent]
    next_after_seq: int
    last_seq: int


class ActionShape(Shape, frozen=True, kw_only=True):
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
    def of(cls, row: ActionRow) -> "ActionShape":
        return cls(**_of_row(row))


class ActionList(Shape, frozen=True, kw_only=True):
    actions: list[ActionShape]
    next_cursor: str


class AnswerShape(Shape, frozen=True, kw_only=True):
    approved: bool
    by: str
    reason: str
    expired: bool
    scope: Scope
    until: str | None
    rule: str
    #: What a person wrote instead, and the value that they gave.
    arguments: JsonObject | None
    value: Any

    @classmethod
    def of(cls, answer: Answer) -> "AnswerShape":
        return cls(
            approved=answer.approved,
            by=answer.by,
            reason=answer.reason,
            expired=answer.expired,
            scope=answer.scope,
            until=when(answer.until),
            rule=answer.rule,
            arguments=answer.arguments,
            value=answer.value,
        )


class AskedShape(Shape, frozen=True, kw_only=True):
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
    bound: Bound
    scope: Scope
    suggested_rule: str
    target_arg: str
    provider: str
    scopes: list[str]
    #: For a consent: where the user goes to give or refuse it, on this server. Empty: it is not waited for.
    authorize_at: str = ""
    #: What changed since it was asked before, and the question that this one replaces.
    changes: list[Change]
    replaces: str
    #: Who edited the arguments, where somebody else has to approve the result.
    edited_by: str
    answer: AnswerShape | None
    asked_seq: int
    answered_seq: int | None
    executed_seq: int | None

    @classmethod
    def of(cls, action: Action) -> "AskedShape":
        return cls(
            status=action_status(action.status),
            authorize_at="/console/consents" if (action.question.kind, action.status) == ("consent", "PENDING") else "",
            answer=None if action.answer is None else AnswerShape.of(action.answer),
            asked_seq=action.asked_seq,
            answered_seq=action.answered_seq,
            executed_seq=action.executed_seq,
            **of_question(action.question),
        )


class AskedList(Shape, frozen=True, kw_only=True):
    actions: list[AskedShape]


class QuestionShape(Shape, frozen=True, kw_only=True):
    action: AskedShape
    run: RunShape
    #: May whoever asks decide it, and if not, why.
    may_decide: bool
    why_not: str
    #: Where a rule would be kept with an approval. Null: no rule was suggested.
    rule_target: RuleTarget | None

    @classmethod
    def of(cls, view: QuestionView) -> "QuestionShape":
        return cls(
            action=AskedShape.of(view.action),
            run=RunShape.of(view.run),
            may_decide=not view.why_not,
            why_not=view.why_not,
            rule_target=view.rule_target,
        )


class DecidedShape(Shape, frozen=True, kw_only=True):
    action: ActionShape
    #: `left`: another process has the run, and takes the answer from there.
    taken: Literal["recorded", "left"]
    #: With the scope `rule`: where the rule is kept when the call starts, and which other agents use that file.
    rule_target: RuleTarget | None

    @classmethod
    def of(cls, decided: Decided) -> "DecidedShape":
        return cls(action=ActionShape.of(decided.action), taken=decided.taken, rule_target=decided.rule_target)


class ArtifactShape(Shape, frozen=True, kw_only=True):
    artifact_id: str
    kind: str
    #: Null: the store does not have it any more.
    size_bytes: int | None
    call_id: str
    seq: int

    @classmethod
    def of(cls, row: ArtifactRow) -> "ArtifactShape":
        return cls(
            artifact_id=row.artifact_id,
            kind=row.kind,
            size_bytes=row.size_bytes if row.size_bytes >= 0 else None,
            call_id=row.call_id,
            seq=row.seq,
        )


class ArtifactList(Shape, frozen=True, kw_only=True):
    artifacts: list[ArtifactShape]


class ActivityShape(Shape, frozen=True, kw_only=True):
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
    def of(cls, row: ActivityRow) -> "ActivityShape":
        return cls(
            position=row.position,
            run_id=row.run_id,
            agent=row.agent,
            status=row.status,
            seq=row.seq,
            at=moment(row.at),
            type=row.type,
            tool=row.tool,
            action_id=row.action_id,
            text=row.text,
        )


class OverviewShape(Shape, frozen=True, kw_only=True):
    #: How many runs have each status, and how many questions of each kind wait.
    runs: dict[str, int]
    open_questions: dict[str, int]
    recent: list[ActivityShape]

    @classmethod
    def of(cls, overview: Overview) -> "OverviewShape":
        return cls(
            runs=overview.runs,
            open_questions=overview.open_questions,
            recent=list(map(ActivityShape.of, overview.recent)),
        )


def asked_list(actions: Iterable[Action]) -> AskedList:
    return AskedList(actions=list(map(AskedShape.of, actions)))


def _of_row(row: ActionRow) -> dict[str, Any]:
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
        "status": action_status(row.status),
        "risk": list(row.risk),
        "created_at": moment(row.asked_at),
        "expires_at": when(row.expires_at),
        "asked_seq": row.asked_seq,
        "decided_at": when(row.decided_at),
        "decided_by": row.decided_by,
    }


def of_question(question: Question) -> dict[str, Any]:
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
        "created_at": moment(question.asked_at),
        "expires_at": when(question.expires_at),
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


def action_status(word: str) -> ActionStatus:
    """As it is told from the names of its states."""
    return cast(ActionStatus, word)
