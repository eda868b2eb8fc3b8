"""The events and the status of a run as an operator sees them: one fixed table from facts to `RunEvent`s.

| fact | event |
|---|---|
| `tool.invocation.started` | `TOOL_CALL` |
| `model.request` | `LLM_CALL` |
| `model.failed` | `ERROR`, code `model_failed` |
| `approval.requested`, `input.requested` | `APPROVAL_REQUIRED` |
| `approval.granted`, `input.provided` | `APPROVAL_GRANTED` |
| `approval.rejected`, `input.refused` | `APPROVAL_REJECTED` |
| `approval.expired`, `input.expired` | `ERROR`, code `approval_expired`: no answer, which is not a rejection |
| `approval.voided` | `ERROR`, code `approval_voided` |
| `consent.requested` | `CONSENT_REQUIRED` |
| `consent.refused`, `consent.expired` | `ERROR`, code `consent_refused` or `consent_expired` |
| `tool.observation` with the code `outcome_unknown` | `ERROR` |
| `run.failed`, `run.cancelled` | `ERROR`, code `run_failed` or `run_cancelled` |
| `run.completed`, `run.degraded` | `COMPLETED` |

Every other fact shows nothing here. A call that was refused or that failed is an outcome for the model, not
an error of the run. A question for a value counts as an approval, as it does in the status. So a run whose status is
`FAILED` ends in `ERROR`, and one whose status is `COMPLETED` ends in `COMPLETED`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from ..domain import event as facts
from ..domain.event import Event
from ..domain.json import JsonObject
from ..domain.state.ledger import Ledger
from ..domain.state.lifecycle import RUN_STATUS, RunState

RunEventType: TypeAlias = Literal[
    "TOOL_CALL",
    "LLM_CALL",
    "APPROVAL_REQUIRED",
    "CONSENT_REQUIRED",
    "APPROVAL_GRANTED",
    "APPROVAL_REJECTED",
    "ERROR",
    "COMPLETED",
]


class RunEvent(msgspec.Struct, frozen=True):
    """An event as an operator sees it."""

    type: RunEventType
    #: The place and time of the fact it shows.
    seq: int
    at: int
    data: JsonObject


class RunStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The status of a run."""

    status: str
    degraded: bool = False
    cancelled: bool = False


def to_run_events(event: Event) -> tuple[RunEvent, ...]:
    """Convert an event of the log to the public events of a run."""
    show = _RENDERERS.get(event.type)
    shown = None if show is None else show(event.fact)
    return () if shown is None else (RunEvent(shown[0], event.seq, event.at, shown[1]),)


def build_run_status(ledger: Ledger) -> RunStatus:
    """Return one of five status values for the run's state, and its details."""
    return RunStatus(
        status=RUN_STATUS[ledger.state],
        degraded=ledger.state is RunState.DEGRADED,
        cancelled=ledger.state is RunState.CANCELLED,
    )


_EventView: TypeAlias = tuple[RunEventType, JsonObject]


def _tool_call(fact: facts.InvocationStarted) -> _EventView:
    return "TOOL_CALL", {
        "tool": fact.tool,
        "call_id": fact.call_id,
        "invocation_id": fact.invocation_id,
        "action_id": fact.action_id,
    }


def _llm_call(fact: facts.ModelRequested) -> _EventView:
    return "LLM_CALL", {"agent": fact.agent, "provider": fact.provider, "model": fact.model}


def _model_failed(fact: facts.ModelFailed) -> _EventView:
    return "ERROR", {"code": fact.code or "model_failed", "message": fact.message}


def _asked(fact: facts.ApprovalRequested | facts.InputRequested) -> _EventView:
    question = fact.question
    return "APPROVAL_REQUIRED", {
        "tool": question.tool_name,
        "capability": question.capability,
        "call_id": question.call_id,
        "action_id": question.action_id,
        "kind": question.kind,
        "prompt": question.prompt,
        "payload_hash": question.payload_hash,
        "status": "PENDING",
    }


def _granted(fact: facts.ApprovalGranted | facts.InputProvided) -> _EventView:
    return "APPROVAL_GRANTED", _answer_fields(fact)


def _rejected(fact: facts.ApprovalRejected | facts.InputRefused) -> _EventView:
    return "APPROVAL_REJECTED", _answer_fields(fact)


def _answer_fields(
    fact: facts.ApprovalGranted
    | facts.ApprovalRejected
    | facts.InputProvided
    | facts.InputRefused
    | facts.ConsentRefused
    | facts.ConsentExpired,
) -> JsonObject:
    return {
        "call_id": fact.call_id,
        "action_id": fact.action_id,
        "by": fact.answer.by,
        "reason": fact.answer.reason,
    }


def _expired(fact: facts.ApprovalExpired | facts.InputExpired) -> _EventView:
    return "ERROR", {
        "code": "approval_expired",
        "message": "Nobody answered in time.",
        "call_id": fact.call_id,
        "action_id": fact.action_id,
    }


def _consent_asked(fact: facts.ConsentRequested) -> _EventView:
    question = fact.question
    return "CONSENT_REQUIRED", {
        "tool": question.tool_name,
        "capability": question.capability,
        "call_id": question.call_id,
        "action_id": question.action_id,
        "provider": question.provider,
        "scopes": list(question.scopes),
        "status": "PENDING",
    }


def _consent_refused(fact: facts.ConsentRefused) -> _EventView:
    return "ERROR", {"code": "consent_refused", "message": "The user did not consent.", **_answer_fields(fact)}


def _consent_expired(fact: facts.ConsentExpired) -> _EventView:
    return "ERROR", {"code": "consent_expired", "message": "The user did not consent in time.", **_answer_fields(fact)}


def _voided(fact: facts.ApprovalVoided) -> _EventView:
    return "ERROR", {
        "code": "approval_voided",
        "message": fact.reason,
        "call_id": fact.call_id,
        "action_id": fact.action_id,
    }


def _observed(fact: facts.CallObserved) -> _EventView | None:
    observation = fact.observation
    failure = observation.failure
    if failure is None or failure.code != "outcome_unknown":
        return None
    return "ERROR", {"code": failure.code, "message": failure.message, "call_id": observation.call_id}


def _failed(fact: facts.RunFailed) -> _EventView:
    return "ERROR", {"code": fact.code or "run_failed", "message": fact.message}


def _cancelled(fact: facts.RunCancelled) -> _EventView:
    return "ERROR", {"code": "run_cancelled", "message": fact.message}


def _completed(fact: facts.RunCompleted) -> _EventView:
    return "COMPLETED", {"message": fact.message, "degraded": False}


def _degraded(fact: facts.RunDegraded) -> _EventView:
    return "COMPLETED", {"message": fact.message, "degraded": True}


_RENDERERS: Mapping[str, Callable[[Any], _EventView | None]] = {
    "tool.invocation.started": _tool_call,
    "model.request": _llm_call,
    "model.failed": _model_failed,
    "approval.requested": _asked,
    "input.requested": _asked,
    "approval.granted": _granted,
    "input.provided": _granted,
    "approval.rejected": _rejected,
    "input.refused": _rejected,
    "approval.expired": _expired,
    "input.expired": _expired,
    "approval.voided": _voided,
    "consent.requested": _consent_asked,
    "consent.refused": _consent_refused,
    "consent.expired": _consent_expired,
    "tool.observation": _observed,
    "run.failed": _failed,
    "run.cancelled": _cancelled,
    "run.completed": _completed,
    "run.degraded": _degraded,
}
