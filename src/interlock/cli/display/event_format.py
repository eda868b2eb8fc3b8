"""Short texts for events and states of a run. Other events are shown by their fields."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ...domain import event as facts
from ...domain.event import Event
from ...domain.json import JsonObject
from ...domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ...domain.state.ledger import Ledger
from ...rendering.text import pluralize, to_compact_json
from .output import truncate_text

_MAX_CALLS = 20
_MAX_MESSAGES = 8


def format_event_row(event: Event, started_at: int) -> tuple[str, str, str, str]:
    """Return number, seconds since the start, type, and a short text."""
    format_fact = EVENT_FORMATTERS.get(event.type, _format_fields)
    return f"{event.seq:5}", f"{(event.at - started_at) / 1e9:7.3f}", event.type, truncate_text(format_fact(event.fact))


def format_event(event: Event) -> list[str]:
    """Return everything that is recorded, a line per field."""
    correlation = [f"  about: {event.correlation_id}"] if event.correlation_id else []
    causation = [] if event.causation_id is None else [f"  because of event: {event.causation_id}"]
    return [
        *correlation,
        *causation,
        *(f"  {name}: {truncate_text(_to_text(value))}" for name, value in _to_fields(event.fact).items()),
    ]


def state_to_json(ledger: Ledger) -> JsonObject:
    """Return the state of a run, for JSON output."""
    return {
        "run": str(ledger.state),
        "next_event": ledger.next_seq,
        "calls": {
            call_id: {"tool": call.tool, "state": str(call.state), "ok": call.ok}
            for call_id, call in ledger.calls.items()
        },
        "questions": {
            action_id: {"tool": action.question.tool_name, "state": str(action.state), "prompt": action.question.prompt}
            for action_id, action in ledger.actions.items()
        },
        "conversation": msgspec.to_builtins(ledger.dialogue.messages),
    }


def format_state(ledger: Ledger) -> list[str]:
    calls = list(ledger.calls.items())
    earlier = [f"  ... {len(calls) - _MAX_CALLS:,} calls before"] if len(calls) > _MAX_CALLS else []
    open_questions = [action for action in ledger.actions.values() if action.is_open]
    return [
        f"  run: {ledger.state}",
        *earlier,
        *(f"  {call_id}: {call.tool}, {call.state}{_format_ok(call)}" for call_id, call in calls[-_MAX_CALLS:]),
        *(
            f"  waits: {action.question.action_id}: {truncate_text(action.question.prompt)}"
            for action in open_questions
        ),
        *_format_conversation(ledger.dialogue.messages),
    ]


def _format_conversation(messages: Sequence[Message]) -> list[str]:
    """What the model would be sent now: the last of it, a line for each."""
    shown = messages[-_MAX_MESSAGES:]
    earlier = [f"  ... {len(messages) - len(shown):,} messages before"] if len(messages) > len(shown) else []
    return [*earlier, *map(_format_message, shown)]


def _format_message(message: Message) -> str:
    match message:
        case UserMessage():
            return f"  person: {truncate_text(message.text)}"
        case ToolMessage():
            return f"  tools: {message.call_id} {truncate_text(message.text)}"
        case AssistantMessage():
            calls = f"calls {', '.join(call.tool for call in message.calls)}" if message.calls else ""
            return f"  model: {truncate_text(' '.join(part for part in (message.text, calls) if part))}"


def _format_ok(call: Any) -> str:
    return "" if call.observed_seq < 0 else ", ok" if call.ok else ", not ok"


def _to_fields(fact: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(fact, str_keys=True)
    return {name: value for name, value in found.items() if name != "type"}


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else to_compact_json(value)


def _format_fields(fact: Any) -> str:
    return ", ".join(f"{name} {_to_text(value)}" for name, value in _to_fields(fact).items())


def _run_started(fact: facts.RunStarted) -> str:
    return " ".join(part for part in (fact.agent, f"in {fact.workspace}" if fact.workspace else "") if part)


def _run_paused(fact: facts.RunPaused) -> str:
    return f"waits for {fact.kind}"


def _message_text(fact: Any) -> str:
    return fact.message


def _tools_offered(fact: facts.ToolsOffered) -> str:
    return f"{pluralize(len(fact.versions), 'tool')}: {', '.join(fact.versions)}"


def _batch_started(fact: facts.BatchStarted) -> str:
    return f"{pluralize(fact.call_count, 'call')}, mode {fact.mode}"


def _call_proposed(fact: facts.CallProposed) -> str:
    raw = fact.raw_input if fact.raw_input is not None else f"{fact.raw_bytes:,} bytes"
    return f"{fact.call_id} {fact.tool} {_to_text(raw)}"


def _call_validated(fact: facts.CallValidated) -> str:
    return f"{fact.call_id} {'fits' if fact.ok else '; '.join(fact.errors)}"


def _policy_evaluated(fact: facts.PolicyEvaluated) -> str:
    return f"{fact.call_id} {fact.decision.verdict}: {fact.decision.reason}"


def _question_asked(fact: Any) -> str:
    return f"{fact.call_id} {fact.question.prompt}"


def _question_answered(fact: Any) -> str:
    by = f" by {fact.answer.by}" if fact.answer.by else ""
    return f"{fact.call_id}{by}{f': {fact.answer.reason}' if fact.answer.reason else ''}"


def _approval_voided(fact: facts.ApprovalVoided) -> str:
    return f"{fact.call_id} {fact.reason}"


def _invocation_started(fact: facts.InvocationStarted) -> str:
    return f"{fact.call_id} {fact.tool}, sandbox {fact.sandbox}"


def _invocation_completed(fact: facts.InvocationCompleted) -> str:
    return f"{fact.call_id} {fact.exit}, {fact.duration_ms:,.0f} ms"


def _call_observed(fact: facts.CallObserved) -> str:
    observation = fact.observation
    summary = observation.summary or (observation.failure.message if observation.failure else "")
    return f"{observation.call_id} {'ok' if observation.ok else observation.code}{f': {summary}' if summary else ''}"


def _user_message(fact: facts.UserMessageReceived) -> str:
    return f"{fact.by or 'somebody'}: {fact.text}"


def _model_requested(fact: facts.ModelRequested) -> str:
    asked = " ".join(part for part in (fact.provider, fact.model) if part) or "the model"
    choice = f", tool choice {fact.tool_choice}" if fact.tool_choice != "auto" else ""
    return f"{asked} is asked, with {pluralize(fact.message_count, 'message')}{choice}"


def _model_responded(fact: facts.ModelResponded) -> str:
    read, written = fact.usage.input_tokens, fact.usage.output_tokens
    tokens = f"{read:,} tokens in, {written:,} out" if read else ""
    calls = pluralize(fact.call_count, "call") if fact.call_count else ""
    usage = ", ".join(part for part in (calls, tokens, f"{fact.duration_ms:,.0f} ms") if part)
    return f"{usage}: {fact.text}" if fact.text else usage


def _claim_contradicted(fact: facts.ClaimContradicted) -> str:
    return f"{fact.message}{' The model is told.' if fact.told else ''}"


def _invocation_suspended(fact: facts.InvocationSuspended) -> str:
    return f"{fact.call_id} waits for {fact.child_run_id}"


#: By the type of the event.
EVENT_FORMATTERS: Mapping[str, Callable[[Any], str]] = {
    "run.started": _run_started,
    "run.paused": _run_paused,
    "run.completed": _message_text,
    "run.degraded": _message_text,
    "run.failed": _message_text,
    "run.cancelled": _message_text,
    "warning": _message_text,
    "model.menu": _tools_offered,
    "user.message": _user_message,
    "model.request": _model_requested,
    "model.response": _model_responded,
    "model.failed": _message_text,
    "model.refused": _message_text,
    "verification.conflict": _claim_contradicted,
    "tool.batch.started": _batch_started,
    "tool.intent": _call_proposed,
    "tool.validation": _call_validated,
    "tool.permission": _policy_evaluated,
    "approval.requested": _question_asked,
    "approval.granted": _question_answered,
    "approval.rejected": _question_answered,
    "approval.expired": _question_answered,
    "input.requested": _question_asked,
    "input.provided": _question_answered,
    "input.refused": _question_answered,
    "input.expired": _question_answered,
    "consent.requested": _question_asked,
    "consent.granted": _question_answered,
    "consent.refused": _question_answered,
    "consent.expired": _question_answered,
    "approval.voided": _approval_voided,
    "tool.invocation.started": _invocation_started,
    "tool.invocation.completed": _invocation_completed,
    "tool.invocation.suspended": _invocation_suspended,
    "tool.observation": _call_observed,
}
