"""The state machines of the runtime, as tables. Nothing else decides a transition.

A table maps a state to its triggers, and each trigger to the next state. A trigger is an event type, or a value in the
event where its type is not enough (`tool.permission` is `allowed`, `asked` or `denied`). So a log is a walk through
these tables; an event without an entry is refused and changes nothing. A state without entries is final. The diagrams
in `docs/` are generated from here.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from ..errors import IllegalTransitionError


class RunState(StrEnum):
    """Where a run is: running, paused for a person, or over (`is_over`)."""

    RUNNING = "running"
    PAUSED_APPROVAL = "paused_approval"
    PAUSED_CONSENT = "paused_consent"
    PAUSED_INPUT = "paused_input"
    COMPLETED = "completed"
    DEGRADED = "degraded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """True in a final state."""
        return not RUN_TRANSITIONS[self]


class CallState(StrEnum):
    """The states of a call."""

    PROPOSED = "proposed"
    VALID = "valid"
    WAITING = "waiting"
    PERMITTED = "permitted"
    REFUSED = "refused"
    RUNNING = "running"
    SUSPENDED = "suspended"
    ENDED = "ended"
    OBSERVED = "observed"


class ActionState(StrEnum):
    """The states of a question."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    EXECUTED = "executed"
    VOID = "void"


_RUN_ENDS = {
    "run.failed": RunState.FAILED,
    "run.cancelled": RunState.CANCELLED,
}

RUN_TRANSITIONS: Mapping[RunState, Mapping[str, RunState]] = {
    RunState.RUNNING: {
        "paused for approval": RunState.PAUSED_APPROVAL,
        "paused for consent": RunState.PAUSED_CONSENT,
        "paused for input": RunState.PAUSED_INPUT,
        "run.completed": RunState.COMPLETED,
        "run.degraded": RunState.DEGRADED,
        **_RUN_ENDS,
    },
    RunState.PAUSED_APPROVAL: {"run.resumed": RunState.RUNNING, **_RUN_ENDS},
    RunState.PAUSED_CONSENT: {"run.resumed": RunState.RUNNING, **_RUN_ENDS},
    RunState.PAUSED_INPUT: {"run.resumed": RunState.RUNNING, **_RUN_ENDS},
    RunState.COMPLETED: {},
    RunState.DEGRADED: {},
    RunState.FAILED: {},
    RunState.CANCELLED: {},
}

CALL_TRANSITIONS: Mapping[CallState, Mapping[str, CallState]] = {
    CallState.PROPOSED: {
        "validation passed": CallState.VALID,
        "validation failed": CallState.REFUSED,
        "tool.observation": CallState.OBSERVED,
    },
    CallState.VALID: {
        "allowed": CallState.PERMITTED,
        "asked": CallState.WAITING,
        "denied": CallState.REFUSED,
        "tool.observation": CallState.OBSERVED,
    },
    CallState.WAITING: {
        "allowed": CallState.PERMITTED,
        "denied": CallState.REFUSED,
        "asked": CallState.WAITING,
        "granted": CallState.PERMITTED,
        "rejected": CallState.REFUSED,
        "expired": CallState.REFUSED,
        "tool.observation": CallState.OBSERVED,
    },
    CallState.PERMITTED: {
        "tool.invocation.started": CallState.RUNNING,
        "allowed": CallState.PERMITTED,
        "asked": CallState.WAITING,
        "denied": CallState.REFUSED,
        "tool.observation": CallState.OBSERVED,
    },
    CallState.REFUSED: {"tool.observation": CallState.OBSERVED},
    # A call that started and has no recorded end is evaluated again only when it is known that nothing happened.
    CallState.RUNNING: {
        "tool.invocation.completed": CallState.ENDED,
        "tool.invocation.suspended": CallState.SUSPENDED,
        "allowed": CallState.PERMITTED,
        "asked": CallState.WAITING,
        "denied": CallState.REFUSED,
        "tool.observation": CallState.OBSERVED,
    },
    # It is already permitted; it resumes when its child run can.
    CallState.SUSPENDED: {
        "tool.invocation.started": CallState.RUNNING,
        "tool.observation": CallState.OBSERVED,
    },
    CallState.ENDED: {"tool.observation": CallState.OBSERVED},
    CallState.OBSERVED: {},
}

ACTION_TRANSITIONS: Mapping[ActionState, Mapping[str, ActionState]] = {
    ActionState.PENDING: {
        "granted": ActionState.APPROVED,
        "rejected": ActionState.REJECTED,
        "expired": ActionState.EXPIRED,
        "voided": ActionState.VOID,
    },
    ActionState.APPROVED: {"tool.invocation.started": ActionState.EXECUTED, "voided": ActionState.VOID},
    ActionState.REJECTED: {},
    ActionState.EXPIRED: {},
    ActionState.EXECUTED: {},
    ActionState.VOID: {},
}

#: The five status values of the REST API for the detailed states.
RUN_STATUS: Mapping[RunState, str] = {
    RunState.RUNNING: "RUNNING",
    RunState.PAUSED_APPROVAL: "PAUSED_APPROVAL",
    RunState.PAUSED_CONSENT: "PAUSED_CONSENT",
    RunState.PAUSED_INPUT: "PAUSED_APPROVAL",
    RunState.COMPLETED: "COMPLETED",
    RunState.DEGRADED: "COMPLETED",
    RunState.FAILED: "FAILED",
    RunState.CANCELLED: "FAILED",
}

_State = TypeVar("_State", RunState, CallState, ActionState)


def next_state(table: Mapping[_State, Mapping[str, _State]], state: _State, trigger: str) -> _State:
    """Return the state after `trigger`. Raise `IllegalTransitionError` if there is none."""
    try:
        return table[state][trigger]
    except KeyError:
        kind = type(state).__name__
        raise IllegalTransitionError(f"{kind} {state.value!r} has no transition {trigger!r}") from None
