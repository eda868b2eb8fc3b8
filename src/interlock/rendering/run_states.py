"""The states of runs as people see them: one word each in the CLI, REST and the console, and how it is shown."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias

from ..domain.state.lifecycle import ActionState, RunState

StateTone: TypeAlias = Literal["active", "warning", "success", "danger", "neutral"]


class DisplayState(StrEnum):
    """The states of a run: those of `RunState`, and those that only readers of its log can find."""

    RUNNING = "running"
    PAUSED_APPROVAL = "paused_approval"
    PAUSED_INPUT = "paused_input"
    PAUSED_CONSENT = "paused_consent"
    #: Running, and every message has its answer: a chat that waits for the next one.
    IDLE = "idle"
    #: Running, and no living process owns it. It can be resumed.
    STOPPED = "stopped"
    COMPLETED = "completed"
    DEGRADED = "degraded"
    FAILED = "failed"
    #: A person rejected a call, and the run ended because of that.
    REJECTED = "rejected"
    #: The run ended because no person answered in time.
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    #: Its events are not what was written.
    DAMAGED = "damaged"

    @property
    def is_paused(self) -> bool:
        """True if the run waits for a person."""
        return self.startswith("paused_")


#: Runs that ended because of an answer, or because there was none: the codes of their failures.
CODES_BY_STATE: Mapping[DisplayState, tuple[str, ...]] = {
    DisplayState.REJECTED: ("user_denied", "consent_refused"),
    DisplayState.EXPIRED: ("approval_expired", "consent_expired"),
}
_STATES_BY_CODE = {code: state for state, codes in CODES_BY_STATE.items() for code in codes}


def to_display_state(state: RunState, code: str) -> DisplayState:
    """Return the state that people see. A run that ended because of a person's answer did not fail."""
    if state is RunState.FAILED:
        return _STATES_BY_CODE.get(code, DisplayState.FAILED)
    return DisplayState(state)


class RunKind(StrEnum):
    """What a run belongs to: an agent, or the session of a client such as an MCP client or a coding agent."""

    AGENT = "agent"
    SESSION = "session"


def describe_owner(framework: str, client: str, *, is_session: bool) -> str:
    """Return which other program continues a run, and how; empty when Interlock does."""
    if is_session:
        over = f" over {framework}" if framework else ""
        return f"{client or 'client'}{over}: it continues a call by making the same call again"
    return f"{framework}: the program that made the run continues it" if framework else ""


class StatePresentation(NamedTuple):
    """The label, tone and icon of a state. Icons are drawings of the console."""

    label: str
    tone: StateTone
    icon: str


RUN_STATES: Mapping[str, StatePresentation] = {
    DisplayState.RUNNING: StatePresentation("Running", "active", "running"),
    DisplayState.PAUSED_APPROVAL: StatePresentation("Waiting for approval", "warning", "hand"),
    DisplayState.PAUSED_INPUT: StatePresentation("Waiting for input", "warning", "question"),
    DisplayState.PAUSED_CONSENT: StatePresentation("Waiting for consent", "warning", "key"),
    DisplayState.IDLE: StatePresentation("Idle", "active", "clock"),
    DisplayState.STOPPED: StatePresentation("Stopped", "warning", "stop"),
    DisplayState.COMPLETED: StatePresentation("Completed", "success", "check"),
    DisplayState.DEGRADED: StatePresentation("Degraded", "warning", "partly"),
    DisplayState.FAILED: StatePresentation("Failed", "danger", "cross"),
    DisplayState.REJECTED: StatePresentation("Rejected", "neutral", "refused"),
    DisplayState.EXPIRED: StatePresentation("Expired", "neutral", "clock"),
    DisplayState.CANCELLED: StatePresentation("Cancelled", "neutral", "stop"),
    DisplayState.DAMAGED: StatePresentation("Damaged", "danger", "warning"),
}
ACTION_STATES: Mapping[str, StatePresentation] = {
    ActionState.PENDING: StatePresentation("Pending", "warning", "hand"),
    ActionState.APPROVED: StatePresentation("Approved", "success", "check"),
    ActionState.EXECUTED: StatePresentation("Executed", "success", "check"),
    ActionState.REJECTED: StatePresentation("Rejected", "neutral", "refused"),
    ActionState.EXPIRED: StatePresentation("Expired", "neutral", "clock"),
    ActionState.VOID: StatePresentation("Void", "neutral", "stop"),
}
