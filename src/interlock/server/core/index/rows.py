"""Rows of runs and questions in lists. Times are nanoseconds since 1970; 0 is unknown, or never."""

from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from ....domain.rendering import truncate
from ....domain.state.ledger import Ledger
from ....domain.state.lifecycle import RUN_STATUS, ActionState, RunState
from ....rendering.run_states import DisplayState, RunKind, describe_owner, to_display_state
from ....storage.projection import MAX_TEXT_CHARS

_Row = TypeVar("_Row")

#: The statuses of runs that have not ended, and of active ones.
UNFINISHED_STATUSES = frozenset({"RUNNING", "PAUSED_APPROVAL", "PAUSED_CONSENT"})
RUNNING_STATUSES = frozenset({"RUNNING"})


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a list."""

    run_id: str
    agent: str
    state: RunState
    #: The user that it acts for, and who created it.
    requester: str = ""
    created_by: str = ""
    parent_run_id: str = ""
    #: The framework whose agent makes its calls, where that is not ours: its own program continues the run.
    framework: str = ""
    kind: RunKind = RunKind.AGENT
    #: The first words of the task, and of how it ended.
    task: str = ""
    message: str = ""
    created_at: int
    updated_at: int
    last_seq: int
    #: Open questions.
    open_questions: int = 0
    #: Its events are not what was written; `message` says more.
    is_damaged: bool = False
    #: The code of its failure, if any.
    code: str = ""
    #: What its models used, also those of child runs whose results it has.
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nanos: int = 0
    #: A conversation that waits for the next message. Lists do not know it.
    is_idle: bool = False

    @property
    def status(self) -> str:
        """Public status of the run."""
        return RUN_STATUS[self.state]

    @property
    def display_state(self) -> DisplayState:
        """The state that people see: a damaged run is damaged until it is closed."""
        if self.is_damaged and not self.is_over:
            return DisplayState.DAMAGED
        return DisplayState.IDLE if self.is_idle else to_display_state(self.state, self.code)

    @property
    def cost(self) -> float:
        """What its models cost, in the currency of their prices."""
        return self.cost_nanos / 1e9

    @property
    def owner(self) -> str:
        """The other program that continues the run, and how; empty when an agent of this server does."""
        return describe_owner(self.framework, self.agent, is_session=self.kind is RunKind.SESSION)

    @property
    def is_over(self) -> bool:
        """True if the run is over."""
        return self.state.is_over

    @property
    def is_degraded(self) -> bool:
        """True if the run is degraded."""
        return self.state is RunState.DEGRADED

    @property
    def is_cancelled(self) -> bool:
        """True if the run was cancelled."""
        return self.state is RunState.CANCELLED


def describe_new_run(ledger: Ledger, task: str) -> RunRow:
    """Return the row of a run that was just started with this task."""
    return RunRow(
        run_id=ledger.run_id,
        agent=ledger.agent,
        state=ledger.state,
        requester=ledger.requester,
        created_by=ledger.created_by,
        parent_run_id=ledger.parent_run_id,
        framework=ledger.framework,
        kind=RunKind.SESSION if ledger.is_session else RunKind.AGENT,
        task=truncate(task, MAX_TEXT_CHARS),
        created_at=ledger.started_at,
        updated_at=ledger.started_at,
        last_seq=ledger.next_seq - 1,
    )


class ActionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A question in a list, from any run."""

    action_id: str
    run_id: str
    agent: str
    requester: str = ""
    created_by: str = ""
    call_id: str
    tool: str
    capability: str
    #: What it is about, in one line.
    title: str = ""
    #: `approval`, `input` or `consent`.
    kind: str
    payload_hash: str
    state: ActionState
    risk: tuple[str, ...] = ()
    asked_at: int
    expires_at: int = 0
    asked_seq: int
    decided_at: int = 0
    decided_by: str = ""
    #: The ids of the rules that ask.
    rules: tuple[str, ...] = ()
    #: The account that is to answer it; empty: none. The inbox knows it, the index does not.
    assignee: str = ""

    @property
    def status(self) -> str:
        """Public status of the action."""
        return self.state.name


class DamagedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose events are damaged. Nothing can be appended to it; an operator may have closed it."""

    run_id: str
    problem: str
    closed_by: str = ""
    reason: str = ""

    @property
    def message(self) -> str:
        """The damage, and by whom the run was closed."""
        closed = f" Closed by {self.closed_by}: {self.reason}" if self.closed_by else ""
        return f"The log of this run is damaged: {self.problem.rstrip('.')}.{closed}"


class Page(msgspec.Struct, Generic[_Row], frozen=True):
    """One page of rows."""

    rows: tuple[_Row, ...]
    #: Where the next page begins; empty: there is none.
    next_cursor: str = ""


class RunOrder(StrEnum):
    """The order of a list of runs. All but `oldest` begin with the highest value."""

    NEWEST = "newest"
    OLDEST = "oldest"
    UPDATED = "updated"
    DURATION = "duration"
    TOKENS = "tokens"
    COST = "cost"


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of runs, by default newest first. None: any."""

    #: Words of the REST API: RUNNING, PAUSED_APPROVAL, ...
    statuses: frozenset[str] | None = None
    #: The finer words for a state. Those that only the log of a run knows match none.
    states: frozenset[DisplayState] | None = None
    #: Only runs of these agents, or of this person (who it acts for, or who made it): either is enough.
    agents: frozenset[str] | None = None
    person: str | None = None
    agent: str | None = None
    requester: str | None = None
    kind: RunKind | None = None
    parent_run_id: str | None = None
    #: Only forks of this run.
    forked_from: str | None = None
    #: Child runs are excluded unless requested.
    include_child_runs: bool = False
    #: Words in the task, the id or the titles of questions; each has to occur.
    text: str | None = None
    #: Started at this time or later, and before this time.
    started_since: int | None = None
    started_before: int | None = None
    order: RunOrder = RunOrder.NEWEST
    limit: int = 50
    cursor: str = ""


class ActionOrder(StrEnum):
    """The order of a list of questions. `deadline` is for open ones: those that never expire are last."""

    OLDEST = "oldest"
    NEWEST = "newest"
    DEADLINE = "deadline"


class ActionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of questions. By default oldest first: the longest waiting is first."""

    statuses: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    agents: frozenset[str] | None = None
    person: str | None = None
    agent: str | None = None
    run_id: str | None = None
    requester: str | None = None
    tool: str | None = None
    #: One of its risks, and one of the rules that ask.
    risk: str | None = None
    rule: str | None = None
    #: Asked at this time or earlier.
    asked_before: int | None = None
    #: Words in the title or the arguments, and bounds of numbers such as `amount>=500`; each has to hold.
    text: str | None = None
    #: Only these questions, and all but these.
    action_ids: frozenset[str] | None = None
    other_than_ids: frozenset[str] | None = None
    order: ActionOrder = ActionOrder.OLDEST
    limit: int = 50
    cursor: str = ""
