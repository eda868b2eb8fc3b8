"""The events that a run handle publishes: one fixed table from facts to `AgentRunEvent`s.

| fact | event | data |
|---|---|---|
| `tool.batch.started` | `tool_batch_started` | `tool_call_count` |
| `tool.permission` | `policy_decision` | `tool_name`, `action`, `reason` |
| `approval.requested` | `run_paused` | `tool_name`, `reason`, `payload` |
| `approval.granted`, `approval.rejected`, `approval.expired` | `run_resumed` | `approved` |
| `tool.observation` | `tool_completed` | `tool_name`, `success`, `output`, `error`, `tool_call_id` |
| `warning` | `warning` | `message` |

Every other fact shows nothing here. Asking a person for a value (`input.*`) pauses the run too, but this vocabulary
has no event for it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..domain import event as facts
from ..domain.decision import Verdict
from ..domain.event import Event
from ..domain.json import JsonObject
from ..domain.observation import extract_error, extract_output


class AgentRunEvent(msgspec.Struct, frozen=True):
    """An event that a run handle publishes."""

    type: str
    data: JsonObject


def to_run_handle_events(event: Event) -> tuple[AgentRunEvent, ...]:
    """Convert an event of the log to events of a run handle."""
    show = _RENDERERS.get(event.type)
    return () if show is None else (show(event.fact),)


_ACTIONS: Mapping[Verdict, str] = {
    Verdict.ALLOW: "allow",
    Verdict.ASK: "defer",
    Verdict.REQUEST_INPUT: "request_user_input",
    Verdict.DENY: "deny",
}


def _policy_decision(fact: facts.PolicyEvaluated) -> AgentRunEvent:
    decision = fact.decision
    return AgentRunEvent(
        "policy_decision",
        {"tool_name": fact.tool, "action": _ACTIONS[decision.verdict], "reason": decision.reason},
    )


def _run_paused(fact: facts.ApprovalRequested) -> AgentRunEvent:
    question = fact.question
    payload = {
        "action_id": question.action_id,
        "tool_call_id": question.call_id,
        **({"title": question.title} if question.title else {}),
        "arguments": question.arguments,
        "payload_hash": question.payload_hash,
        "risk": list(question.risk),
        "rule_ids": list(question.rule_ids),
    }
    return AgentRunEvent("run_paused", {"tool_name": question.tool_name, "reason": question.prompt, "payload": payload})


def _tool_completed(fact: facts.CallObserved) -> AgentRunEvent:
    observation = fact.observation
    return AgentRunEvent(
        "tool_completed",
        {
            "tool_name": observation.tool,
            "success": observation.ok,
            "output": extract_output(observation),
            "error": extract_error(observation),
            "tool_call_id": observation.call_id,
        },
    )


_RENDERERS: Mapping[str, Callable[[Any], AgentRunEvent]] = {
    "tool.batch.started": lambda fact: AgentRunEvent("tool_batch_started", {"tool_call_count": fact.call_count}),
    "tool.permission": _policy_decision,
    "approval.requested": _run_paused,
    "approval.granted": lambda fact: AgentRunEvent("run_resumed", {"approved": True}),
    "approval.rejected": lambda fact: AgentRunEvent("run_resumed", {"approved": False}),
    "approval.expired": lambda fact: AgentRunEvent("run_resumed", {"approved": False}),
    "tool.observation": _tool_completed,
    "warning": lambda fact: AgentRunEvent("warning", {"message": fact.message}),
}
