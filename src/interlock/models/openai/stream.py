"""Streamed responses of the chat completions API, chunk by chunk. It does not need the SDK: chunks are read by their
attributes.

The SDK does not check what it hands on, so that is done here.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ...domain.messages import Message, Usage
from ..interface import FinishReason, ModelEvent
from ..response_assembly import CallAssembler, TextAssembler, build_final_events, convert_event, encode_arguments
from ..usage import Prices, add_cost, get_field, read_cost, read_tokens

_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refused",
}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallDelta(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Choice(msgspec.Struct):
    index: int | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    """The part of a chunk that matters here. The SDK does not check what it hands on."""

    choices: list[_Choice] | None = None
    usage: Any = None


class OpenAIResponse:
    """One response as it grows."""

    def __init__(self, earlier: Iterable[Message] = ()) -> None:
        self._calls = CallAssembler(earlier)
        self._text = TextAssembler()
        self._usage = Usage()
        self._refused = False
        self._reason = ""

    @property
    def is_complete(self) -> bool:
        """True when the server said why it ended."""
        return bool(self._reason)

    def add(self, chunk: object) -> str:
        """Add a chunk and return its text. Raise `msgspec.ValidationError` when it is not a chunk."""
        known = convert_event(_Chunk, chunk)
        if known.usage:
            self._usage = _to_usage(known.usage)
        said = [self._add_choice(choice) for choice in known.choices or () if not choice.index]
        return "".join(said)

    def _add_choice(self, choice: _Choice) -> str:
        self._reason = choice.finish_reason or self._reason
        delta = choice.delta or _Delta()
        for piece in delta.tool_calls or ():
            function = piece.function or _Function()
            written = function.arguments or ""
            arguments = written if isinstance(written, str) else encode_arguments(written)
            self._calls.add_delta(piece.index, piece.id or "", function.name or "", arguments)
        self._refused = self._refused or bool(delta.refusal)
        return self._text.add_delta((delta.content or "") + (delta.refusal or ""))

    def finish(self, prices: Prices | None = None) -> list[ModelEvent]:
        reason: FinishReason = "refused" if self._refused else _REASONS.get(self._reason, "other")
        return build_final_events(self._text, self._calls, reason, add_cost(self._usage, prices))


def _to_usage(usage: object) -> Usage:
    details = get_field(usage, "prompt_tokens_details")
    return Usage(
        input_tokens=read_tokens(get_field(usage, "prompt_tokens")) or 0,
        output_tokens=read_tokens(get_field(usage, "completion_tokens")) or 0,
        cached_tokens=read_tokens(get_field(details, "cached_tokens")) or 0,
        # Some routers say what it cost.
        cost=read_cost(get_field(usage, "cost")) or 0.0,
    )
