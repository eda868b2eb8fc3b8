"""Events and states of a run in a few words each. A fact that has none of its own is shown by its fields."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ...domain import event as facts
from ...domain.event import Event
from ...domain.json import JsonObject
from ...domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ...domain.state.ledger import Ledger
from .output import compact, count, cut

_MAX_CALLS = 20
_MAX_MESSAGES = 8


def row(event: Event, started_at: int) -> tuple[str, str, str, str]:
    """Number, seconds since the start, type, and what there is to say."""
    say = WORDS.get(event.type, _fields)
    return f"{event.seq:5}", f"{(event.at - started_at) / 1e9:7.3f}", event.type, cut(say(event.fact))


def event_lines(event: Event) -> list[str]:
    """Everything that is recorded, a line per field."""
    belongs = [f"  about: {event.correlation_id}"] if event.correlation_id else []
    caused = [] if event.causation_id is None else [f"  because of event: {event.causation_id}"]
    return [*belongs, *caused, *(f"  {name}: {cut(_text(value))}" for name, value in _plain(event.fact).items())]


def state_of(ledger: Ledger) -> JsonObject:
    """The state of a run, for programs."""
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


def state_lines(ledger: Ledger) -> list[str]:
    calls = list(ledger.calls.items())
    earlier = [f"  ... {len(calls) - _MAX_CALLS:,} calls before"] if len(calls) > _MAX_CALLS else []
    open_questions = [action for action in ledger.actions.values() if action.is_open]
    return [
        f"  run: {ledger.state}",
        *earlier,
        *(f"  {call_id}: {call.tool}, {call.state}{_ok(call)}" for call_id, call in calls[-_MAX_CALLS:]),
        *(f"  waits: {action.question.action_id}: {cut(action.question.prompt)}" for action in open_questions),
        *_conversation(ledger.dialogue.messages),
    ]


def _conversation(messages: Sequence[Message]) -> list[str]:
    """What the model would be sent now: the last of it, a line for each."""
    shown = messages[-_MAX_MESSAGES:]
    earlier = [f"  ... {len(messages) - len(shown):,} messages before"] if len(messages) > len(shown) else []
    return [*earlier, *map(_line, shown)]


def _line(message: Message) -> str:
    match message:
        case UserMessage():
            return f"  person: {cut(message.text)}"
        case ToolMessage():
            return f"  tools: {message.call_id} {cut(message.text)}"
        case AssistantMessage():
            calls = f"calls {', '.join(call.tool for call in message.calls)}" if message.calls else ""
            return f"  model: {cut(' '.join(part for part in (message.text, calls) if part))}"


def _ok(call: Any) -> str:
    return "" if call.observed_seq < 0 else ", ok" if call.ok else ", not ok"


def _plain(fact: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(fact, str_keys=True)
    return {name: value for name, value in found.items() if name != "type"}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else compact(value)


def _fields(fact: Any) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in _plain(fact).items())


def _started(fact: facts.RunStarted) -> str:
    return " ".join(part for part in (fact.agent, f"in {fact.workspace}" if fact.workspace else "") if part)


def _paused(fact: facts.RunPaused) -> str:
    return f"waits for {fact.kind}"


def _message(fact: Any) -> str:
    return fact.message


def _menu(fact: facts.MenuShown) -> str:
    return f"{count(len(fact.versions), 'tool')}: {', '.join(fact.versions)}"


def _batch(fact: facts.BatchStarted) -> str:
    return f"{count(fact.call_count, 'call')}, mode {fact.mode}"


def _proposed(fact: facts.CallProposed) -> str:
    raw = fact.raw_input if fact.raw_input is not None else f"{fact.raw_bytes:,} bytes"
    return f"{fact.call_id} {fact.tool} {_text(raw)}"


def _validated(fact: facts.CallValidated) -> str:
    return f"{fact.call_id} {'fits' if fact.ok else '; '.join(fact.errors)}"


def _judged(fact: facts.CallJudged) -> str:
    return f"{fact.call_id} {fact.decision.verdict}: {fact.decision.reason}"


def _asked(fact: Any) -> str:
    return f"{fact.call_id} {fact.question.prompt}"


def _answered(fact: Any) -> str:
    by = f" by {fact.answer.by}" if fact.answer.by else ""
    return f"{fact.call_id}{by}{f': {fact.answer.reason}' if fact.answer.reason else ''}"


def _voided(fact: facts.ActionVoided) -> str:
    return f"{fact.call_id} {fact.reason}"


def _invoked(fact: facts.InvocationStarted) -> str:
    return f"{fact.call_id} {fact.tool}, sandbox {fact.sandbox}"


def _completed(fact: facts.InvocationCompleted) -> str:
    return f"{fact.call_id} {fact.exit}, {fact.duration_ms:,.0f} ms"


def _observed(fact: facts.CallObserved) -> str:
    seen = fact.observation
    words = seen.summary or (seen.failure.message if seen.failure else "")
    return f"{seen.call_id} {'ok' if seen.ok else seen.code}{f': {words}' if words else ''}"


def _said(fact: facts.UserSaid) -> str:
    return f"{fact.by or 'somebody'}: {fact.text}"


def _requested(fact: facts.ModelAsked) -> str:
    asked = " ".join(part for part in (fact.provider, fact.model) if part) or "the model"
    choice = f", tool choice {fact.tool_choice}" if fact.tool_choice != "auto" else ""
    return f"{asked} is asked, with {count(fact.message_count, 'message')}{choice}"


def _responded(fact: facts.ModelAnswered) -> str:
    read, written = fact.usage.input_tokens, fact.usage.output_tokens
    tokens = f"{read:,} tokens in, {written:,} out" if read else ""
    calls = count(fact.call_count, "call") if fact.call_count else ""
    about = ", ".join(part for part in (calls, tokens, f"{fact.duration_ms:,.0f} ms") if part)
    return f"{about}: {fact.text}" if fact.text else about


def _contradicted(fact: facts.ClaimContradicted) -> str:
    return f"{fact.message}{' The model is told.' if fact.told else ''}"


def _suspended(fact: facts.InvocationSuspended) -> str:
    return f"{fact.call_id} waits for {fact.child_run_id}"


#: By the type of the event.
WORDS: Mapping[str, Callable[[Any], str]] = {
    "run.started": _started,
    "run.paused": _paused,
    "run.completed": _message,
    "run.degraded": _message,
    "run.failed": _message,
    "run.cancelled": _message,
    "warning": _message,
    "model.menu": _menu,
    "user.message": _said,
    "model.request": _requested,
    "model.response": _responded,
    "model.failed": _message,
    "model.refused": _message,
    "verification.conflict": _contradicted,
    "tool.batch.started": _batch,
    "tool.intent": _proposed,
    "tool.validation": _validated,
    "tool.permission": _judged,
    "approval.requested": _asked,
    "approval.granted": _answered,
    "approval.rejected": _answered,
    "approval.expired": _answered,
    "input.requested": _asked,
    "input.provided": _answered,
    "input.refused": _answered,
    "input.expired": _answered,
    "consent.requested": _asked,
    "consent.granted": _answered,
    "consent.refused": _answered,
    "consent.expired": _answered,
    "approval.voided": _voided,
    "tool.invocation.started": _invoked,
    "tool.invocation.completed": _completed,
    "tool.invocation.suspended": _suspended,
    "tool.observation": _observed,
}
