"""Runs and questions as they are listed: one row for each, which says all that a list shows. Times are nanoseconds
since 1970; 0 is not known, or never."""

from typing import Generic, TypeVar

import msgspec

from ....domain.state.lifecycle import RUN_STATUS, ActionState, RunState

_Row = TypeVar("_Row")

#: The words for runs that may still go on, and for those that do right now.
UNFINISHED_STATUSES = frozenset({"RUNNING", "PAUSED_APPROVAL", "PAUSED_CONSENT"})
RUNNING_STATUSES = frozenset({"RUNNING"})


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    agent: str
    state: RunState
    #: Who it acts for, and who made it.
    requester: str = ""
    created_by: str = ""
    parent_run_id: str = ""
    #: The first words of the task, and of how it ended.
    task: str = ""
    message: str = ""
    created_at: int
    updated_at: int
    last_seq: int
    #: Questions that nobody has answered yet.
    open_questions: int = 0

    @property
    def status(self) -> str:
        return RUN_STATUS[self.state]

    @property
    def is_over(self) -> bool:
        return self.state.is_over


class ActionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A question that people or the clock answer, in whichever run."""

    action_id: str
    run_id: str
    agent: str
    requester: str = ""
    created_by: str = ""
    call_id: str
    tool: str
    capability: str
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

    @property
    def status(self) -> str:
        return self.state.name


class Page(msgspec.Struct, Generic[_Row], frozen=True):
    rows: tuple[_Row, ...]
    #: Where the next page begins; empty: there is none.
    next_cursor: str = ""


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs, newest first. None: whichever."""

    #: Words of the REST API: RUNNING, PAUSED_APPROVAL, ...
    statuses: frozenset[str] | None = None
    #: Only runs of these agents, or of this person (who it acts for, or who made it): either is enough.
    agents: frozenset[str] | None = None
    person: str | None = None
    agent: str | None = None
    requester: str | None = None
    parent_run_id: str | None = None
    #: Runs inside calls of others are left out unless asked for.
    include_child_runs: bool = False
    #: Words in the task or the id.
    text: str | None = None
    limit: int = 50
    cursor: str = ""


class ActionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which questions, oldest first: who waits longest is first in line."""

    statuses: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    agents: frozenset[str] | None = None
    person: str | None = None
    agent: str | None = None
    run_id: str | None = None
    limit: int = 50
    cursor: str = ""
