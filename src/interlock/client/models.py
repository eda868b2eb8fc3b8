"""What the server answers, as far as the client reads it. Fields that a newer server adds are ignored."""

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import field

RunStatus: TypeAlias = Literal["RUNNING", "PAUSED_APPROVAL", "PAUSED_CONSENT", "COMPLETED", "FAILED"]
ApprovalKind: TypeAlias = Literal["approval", "input", "consent"]
ApprovalStatus: TypeAlias = Literal["PENDING", "APPROVED", "REJECTED", "EXPIRED", "EXECUTED", "VOID"]
Scope: TypeAlias = Literal["once", "run", "window", "rule"]
Period: TypeAlias = Literal["day", "week", "month"]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run."""

    run_id: str
    agent: str
    status: RunStatus
    #: Finer than the status. `idle`: a conversation that waits for the next message.
    state: str
    is_degraded: bool = field(name="degraded")
    is_cancelled: bool = field(name="cancelled")
    is_damaged: bool = field(name="damaged")
    requester: str
    created_by: str
    parent_run_id: str
    kind: str
    framework: str
    #: The first words of the task, and of how it ended.
    task: str
    message: str
    created_at: datetime
    updated_at: datetime
    last_seq: int
    pending_approvals: int

    @property
    def is_over(self) -> bool:
        """Return whether the run has ended."""
        return self.status in ("COMPLETED", "FAILED")


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs."""

    runs: list[Run]
    #: Empty: there are no more.
    next_cursor: str


class MessageReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was sent to a run."""

    run_id: str
    #: Its event.
    seq: int


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """An approval, input or consent that a run waits for, or waited for."""

    action_id: str
    run_id: str
    agent: str
    requester: str
    created_by: str
    call_id: str
    tool: str
    capability: str
    #: What it is about, in one line.
    title: str
    kind: ApprovalKind
    #: What an answer is bound to.
    payload_hash: str
    status: ApprovalStatus
    risk: list[str]
    created_at: datetime
    expires_at: datetime | None
    created_seq: int
    decided_at: datetime | None
    decided_by: str


class ApprovalPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of approvals."""

    approvals: list[Approval]
    #: Empty: there are no more.
    next_cursor: str


class ApprovalFact(msgspec.Struct, frozen=True, kw_only=True):
    """A value of a call to look at first."""

    name: str
    value: str


class ApprovalDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An approval with everything that an answer is bound to."""

    action_id: str
    run_id: str
    agent: str
    call_id: str
    tool: str
    capability: str
    title: str
    key_facts: list[ApprovalFact]
    kind: ApprovalKind
    payload_hash: str
    status: ApprovalStatus
    risk: list[str]
    created_at: datetime
    expires_at: datetime | None
    prompt: str
    reason: str
    layer: str
    rule_ids: list[str]
    arguments: dict[str, Any]
    binding: dict[str, Any]
    scope: str
    approver: str
    suggested_rule: str
    #: For an input: the argument that is asked for.
    target_arg: str
    provider: str
    scopes: list[str]
    #: For a consent: the path below the address of the server where a person gives it.
    authorize_url: str = ""
    changes: list[dict[str, Any]]
    replaces: str
    edited_by: str
    trial: dict[str, Any] | None
    answer: dict[str, Any] | None
    created_seq: int
    answered_seq: int | None
    executed_seq: int | None


class ApprovalReview(msgspec.Struct, frozen=True, kw_only=True):
    """An approval, its run, and whether this key may decide it."""

    approval: ApprovalDetail
    run: Run
    can_decide: bool
    #: Why it may not.
    denied_reason: str
    rule_target: dict[str, Any] | None


class DecisionReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The answered approval."""

    approval: Approval
    #: `recorded`, or `queued`: another process owns the run, and applies the answer.
    delivery: str
    rule_target: dict[str, Any] | None


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a run: `LLM_CALL`, `TOOL_CALL`, `APPROVAL_REQUIRED`, ..., `COMPLETED`."""

    type: str
    run_id: str
    seq: int
    at: datetime
    data: dict[str, Any]


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the events of a run."""

    events: list[RecordedEvent]
    #: Pass it as `after_seq` to get the next page.
    next_after_seq: int
    last_seq: int


class OutcomeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that ended in an hour or a day, by outcome."""

    start: datetime
    completed: int
    degraded: int
    rejected: int
    expired: int
    cancelled: int
    failed: int


class WaitTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long approvals that were answered in an hour or a day had waited."""

    start: datetime
    answered: int
    p50_seconds: float | None
    p90_seconds: float | None


class AgentCost(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent used. `start`: the day; None for the whole period."""

    agent: str
    start: datetime | None
    responses: int
    input_tokens: int
    output_tokens: int
    cost: float


class NameCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often something happened."""

    name: str
    count: int


class StatisticsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a period that ends now, in steps of hours or days (UTC)."""

    period: str
    since: datetime
    width_seconds: int
    outcomes: list[OutcomeCounts]
    answers: dict[str, int]
    waits: list[WaitTimes]
    wait_p50_seconds: float | None
    wait_p90_seconds: float | None
    open_questions: int
    oldest_question_at: datetime | None
    question_ages: list[dict[str, Any]]
    usage: list[AgentCost]
    daily_usage: list[AgentCost]
    rules: list[NameCount]
    errors: list[NameCount]
    refusals: list[NameCount]


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A budget, and what one subject used of it in the current window."""

    id: str
    #: The budget in one line.
    about: str
    agents: list[str]
    #: Whose: agent, requester, tool. Empty: all share it, or nothing was used.
    subject: dict[str, str]
    used: float
    limit: float
    unit: str
    window: str
    #: What happens to a call that does not fit.
    then: str
    began_at: datetime
    resets_at: datetime


class BudgetList(msgspec.Struct, frozen=True, kw_only=True):
    """Budgets, the most used first."""

    budgets: list[Budget]


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """To whom an approval is assigned."""

    action_id: str
    #: `user:ada`; empty: no one.
    assignee: str
    assigned_by: str
    assigned_at: datetime
