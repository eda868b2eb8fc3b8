"""Streamed responses of the messages API, event by event. It does not need the SDK: events are read by their
attributes.

The SDK does not check what it hands on, so that is done here.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ...domain.messages import Message, Usage
from ..interface import FinishReason, ModelEvent
from ..response_assembly import CallAssembler, TextAssembler, build_final_events, convert_event, encode_arguments
from ..usage import Prices, add_cost, get_field, read_tokens
from .thinking import ThinkingBlocks

_REASONS: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}

_COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class _Block(msgspec.Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    input: Any = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None


class _BlockDelta(msgspec.Struct):
    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None


class _MessageInfo(msgspec.Struct):
    usage: Any = None


class _MessageStart(msgspec.Struct):
    message: _MessageInfo | None = None


class _BlockStart(msgspec.Struct):
    index: int
    content_block: _Block


class _BlockContinuation(msgspec.Struct):
    index: int
    delta: _BlockDelta


class _StopDelta(msgspec.Struct):
    stop_reason: str | None = None


class _MessageEnd(msgspec.Struct):
    delta: _StopDelta | None = None
    usage: Any = None


class _MessageStop(msgspec.Struct):
    pass


#: The events that matter here; others are passed over.
_EVENTS: Mapping[str, type[msgspec.Struct]] = {
    "message_start": _MessageStart,
    "content_block_start": _BlockStart,
    "content_block_delta": _BlockContinuation,
    "message_delta": _MessageEnd,
    "message_stop": _MessageStop,
}


class AnthropicResponse:
    """One response as it grows."""

    def __init__(self, earlier: Iterable[Message] = (), model: str = "") -> None:
        self._model = model
        self._calls = CallAssembler(earlier)
        self._text = TextAssembler()
        self._thoughts = ThinkingBlocks()
        self._counts: dict[str, int] = dict.fromkeys(_COUNTS, 0)
        self._reason = ""
        #: By block, the arguments that a call began with. Those that follow bit by bit count instead.
        self._initial_arguments: dict[int, str] = {}
        self.is_complete = False

    def add(self, event: object) -> str:
        """Add an event and return its text. Raise `msgspec.ValidationError` when it is not an event."""
        kind = _EVENTS.get(str(getattr(event, "type", "")))
        match kind and convert_event(kind, event):
            case _MessageStart(message=_MessageInfo(usage=usage)):
                self._count(usage)
            case _BlockStart(index=index, content_block=block):
                return self._begin_block(index, block)
            case _BlockContinuation(index=index, delta=delta):
                return self._continue_block(index, delta)
            case _MessageEnd(delta=delta, usage=usage):
                self._count(usage)
                self._reason = (delta.stop_reason if delta else None) or self._reason
            case _MessageStop():
                self.is_complete = True
            case _:
                pass
        return ""

    def _begin_block(self, index: int, block: _Block) -> str:
        match block.type:
            case "tool_use":
                self._calls.add_delta(index, block.id or "", block.name or "")
                self._initial_arguments[index] = encode_arguments(block.input) if block.input else ""
                self._thoughts.add_call()
            case "thinking":
                self._thoughts.begin(index)
                self._thoughts.add(index, block.thinking or "", block.signature or "")
            case "redacted_thinking":
                self._thoughts.add_redacted(block.data or "")
            case "text":
                return self._add_text(block.text)
            case _:
                pass
        return ""

    def _continue_block(self, index: int, delta: _BlockDelta) -> str:
        if delta.partial_json and index in self._initial_arguments:
            self._initial_arguments[index] = ""
            self._calls.add_delta(index, arguments=delta.partial_json)
        self._thoughts.add(index, delta.thinking or "", delta.signature or "")
        return self._add_text(delta.text) if delta.type == "text_delta" else ""

    def _add_text(self, text: str | None) -> str:
        said = self._text.add_delta(text or "")
        if said:
            self._thoughts.add_text(said)
        return said

    def _count(self, usage: object) -> None:
        """Counts are of the whole so far, and one that is not repeated still holds."""
        for name in _COUNTS:
            if (count := read_tokens(get_field(usage, name))) is not None:
                self._counts[name] = count

    def finish(self, prices: Prices | None = None) -> list[ModelEvent]:
        for index, arguments in self._initial_arguments.items():
            if arguments:
                self._calls.add_delta(index, arguments=arguments)
        reason = _REASONS.get(self._reason, "other")
        usage = add_cost(_to_usage(self._counts), prices)
        return build_final_events(self._text, self._calls, reason, usage, self._thoughts.encode_private(self._model))


def _to_usage(counts: Mapping[str, int]) -> Usage:
    """The API counts cached input apart; here, as with other providers, it is part of the input."""
    cached = counts["cache_read_input_tokens"]
    return Usage(
        input_tokens=counts["input_tokens"] + counts["cache_creation_input_tokens"] + cached,
        output_tokens=counts["output_tokens"],
        cached_tokens=cached,
    )
