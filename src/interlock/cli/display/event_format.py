"""Format events and states of a run as lines of a few words."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...domain.event import Event
from ...domain.json import JsonObject
from ...domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ...domain.state.ledger import Ledger
from ...rendering.events import get_call_id, present_event
from ...rendering.text import to_compact_json
from .output import truncate_text

_MAX_CALLS = 20
_MAX_MESSAGES = 8


def format_event_row(event: Event, started_at: int) -> tuple[str, str, str, str]:
    """Return its number, seconds since the start, its type, and its call with what there is to say."""
    text = f"{get_call_id(event.fact)} {present_event(event.fact).detail}".strip()
    return f"{event.seq:5}", f"{(event.at - started_at) / 1e9:7.3f}", event.type, truncate_text(text)


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
