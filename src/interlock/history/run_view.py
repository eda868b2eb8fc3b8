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
from ..domain.call import Answer
from ..domain.event import Event
from ..domain.json import JsonObject

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


def to_run_events(event: Event) -> tuple[RunEvent, ...]:
    """Convert an event of the log to the public events of a run."""
    show = _RENDERERS.get(event.type)
    shown = None if show is None else show(event.fact)
    return () if shown is None else (RunEvent(shown[0], event.seq, event.at, shown[1]),)


_EventView: TypeAlias = tuple[RunEventType, JsonObject]


def _tool_call(fact: facts.InvocationStarted) -> _EventView:
    return "TOOL_CALL", {
        "tool": fact.tool,
        "call_id": fact.call_id,
        "invocation_id": fact.invocation_id,
        "action_id": fact.action_id,
    }


def _asked(fact: facts.ApprovalRequested | facts.InputRequested) -> _EventView:
    question = fact.question
    return "APPROVAL_REQUIRED", {
        "tool": question.tool_name,
        "capability": question.capability,
        **({"title": question.title} if question.title else {}),
        "call_id": question.call_id,
        "action_id": question.action_id,
        "kind": question.kind,
        "prompt": question.prompt,
        "payload_hash": question.payload_hash,
        "status": "PENDING",
    }


def _render_answer(fact: Any) -> JsonObject:
    answer: Answer = fact.answer
    where = {"channel": answer.channel, "assurance": answer.assurance} if answer.is_qualified else {}
    return {"call_id": fact.call_id, "action_id": fact.action_id, "by": answer.by, "reason": answer.reason, **where}


def _render_error(fact: Any, code: str, message: str) -> _EventView:
    return "ERROR", {"code": code, "message": message, "call_id": fact.call_id, "action_id": fact.action_id}


def _render_consent_error(fact: Any, code: str, message: str) -> _EventView:
    return "ERROR", {"code": code, "message": message, **_render_answer(fact)}


def _consent_asked(fact: facts.ConsentRequested) -> _EventView:
    question = fact.question
    return "CONSENT_REQUIRED", {
        "tool": question.tool_name,
        "capability": question.capability,
        **({"title": question.title} if question.title else {}),
        "call_id": question.call_id,
        "action_id": question.action_id,
        "provider": question.provider,
        "scopes": list(question.scopes),
        "status": "PENDING",
    }


def _observed(fact: facts.CallObserved) -> _EventView | None:
    observation = fact.observation
    failure = observation.failure
    if failure is None or failure.code != "outcome_unknown":
        return None
    return "ERROR", {"code": failure.code, "message": failure.message, "call_id": observation.call_id}


_RENDERERS: Mapping[str, Callable[[Any], _EventView | None]] = {
    "tool.invocation.started": _tool_call,
    "model.request": lambda fact: ("LLM_CALL", {name: getattr(fact, name) for name in ("agent", "provider", "model")}),
    "model.failed": lambda fact: ("ERROR", {"code": fact.code or "model_failed", "message": fact.message}),
    "approval.requested": _asked,
    "input.requested": _asked,
    "approval.granted": lambda fact: ("APPROVAL_GRANTED", _render_answer(fact)),
    "input.provided": lambda fact: ("APPROVAL_GRANTED", _render_answer(fact)),
    "approval.rejected": lambda fact: ("APPROVAL_REJECTED", _render_answer(fact)),
    "input.refused": lambda fact: ("APPROVAL_REJECTED", _render_answer(fact)),
    "approval.expired": lambda fact: _render_error(fact, "approval_expired", "Nobody answered in time."),
    "input.expired": lambda fact: _render_error(fact, "approval_expired", "Nobody answered in time."),
    "approval.voided": lambda fact: _render_error(fact, "approval_voided", fact.reason),
    "consent.requested": _consent_asked,
    "consent.refused": lambda fact: _render_consent_error(fact, "consent_refused", "The user did not consent."),
    "consent.expired": lambda fact: _render_consent_error(fact, "consent_expired", "The user did not consent in time."),
    "tool.observation": _observed,
    "run.failed": lambda fact: ("ERROR", {"code": fact.code or "run_failed", "message": fact.message}),
    "run.cancelled": lambda fact: ("ERROR", {"code": "run_cancelled", "message": fact.message}),
    "run.completed": lambda fact: ("COMPLETED", {"message": fact.message, "degraded": False}),
    "run.degraded": lambda fact: ("COMPLETED", {"message": fact.message, "degraded": True}),
}
