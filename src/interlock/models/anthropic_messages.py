"""Provider for Anthropic's messages API.

The SDK does not check what it hands on, so that is done here: events are read by their attributes.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ..domain.errors import ConfigurationError

try:
    import anthropic
except ImportError as missing:
    raise ConfigurationError(
        "AnthropicMessages needs the `anthropic` package: pip install 'interlock[anthropic]'"
    ) from missing

from ..domain.file_kind import TEXT_TYPE
from ..domain.json import JsonObject, escape_surrogates, parse
from ..domain.messages import (
    AssistantMessage,
    LoadedPart,
    Message,
    MessagePart,
    ProposedCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from ..domain.tool import ToolSpec
from .anthropic_thinking import ThinkingBlocks, restore_blocks
from .connection import DEFAULT_TIMEOUTS, SdkErrors, SdkProvider, Timeouts, check_base_url, create_http_client
from .conversation import format_text_part, sanitize_messages
from .interface import NO_KEY, FinishReason, ModelEvent, ModelRequest
from .response_assembly import CallAssembler, TextAssembler, build_final_events, convert_event, encode_arguments
from .usage import Prices, add_cost, get_field, read_tokens


class AnthropicMessages(SdkProvider):
    """A model behind the API of Anthropic messages.

    `model` is for requests that name none. Without `api_key` the SDK takes it from `ANTHROPIC_API_KEY`.

    The API takes no temperature, so it is not sent. `max_output_tokens` is for requests that set no limit, because the
    API wants one. `prompt_cache` lets the provider keep the conversation so far for the next turn, which makes that
    cheaper. A `client` of your own stays yours to close. `prices` are by model.
    """

    name = "anthropic"
    _errors = SdkErrors(
        status=anthropic.APIStatusError,
        timeout=anthropic.APITimeoutError,
        connection=anthropic.APIConnectionError,
        said=anthropic.APIError,
        any=anthropic.AnthropicError,
    )

    def __init__(  # noqa: PLR0913 - one for each thing that may be chosen
        self,
        model: str = "",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: anthropic.AsyncAnthropic | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        max_output_tokens: int = 16_384,
        prompt_cache: bool = True,
        prices: Mapping[str, Prices] | None = None,
        extra_body: Mapping[str, object] | None = None,
    ) -> None:
        self._require_one(client, base_url, api_key)
        # The SDK does not retry: use `with_retries` for that.
        used = client.with_options(max_retries=0) if client else _create_client(base_url, api_key, timeouts)
        super().__init__(model, used, timeouts, prices, owns_client=client is None)
        # Looked up now: the SDK imports a good part of itself when this is first named.
        self._create: Any = used.messages.create
        self._extra_body = dict(extra_body or {}) or None
        self._max_output_tokens = max_output_tokens
        self._prompt_cache = prompt_cache

    def _get_key(self) -> str:
        return self._client.api_key or self._client.auth_token or ""

    def _make_response(self, request: ModelRequest, model: str) -> "AnthropicResponse":
        return AnthropicResponse(request.messages, model)

    async def _send(self, request: ModelRequest, model: str) -> Any:
        body = messages_body(request, model, self._max_output_tokens)
        if self._prompt_cache:
            body["cache_control"] = {"type": "ephemeral"}
        if request.output_schema is not None:
            schema = anthropic.transform_schema(request.output_schema)
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        return await self._create(**body, stream=True, extra_body=self._extra_body)


def _create_client(base_url: str | None, api_key: str | None, timeouts: Timeouts) -> anthropic.AsyncAnthropic:
    if base_url is not None:
        check_base_url(base_url, "`base_url`")
    http = create_http_client(timeouts)
    try:
        made = anthropic.AsyncAnthropic(base_url=base_url, api_key=api_key, max_retries=0, http_client=http)
    except anthropic.AnthropicError as error:
        raise ConfigurationError(f"The SDK cannot use the credentials that it found: {error}") from None
    if not (made.api_key or made.auth_token or made.credentials):
        if base_url is None:
            raise ConfigurationError("There is no API key: set ANTHROPIC_API_KEY, or give AnthropicMessages one.")
        made = anthropic.AsyncAnthropic(base_url=base_url, api_key=NO_KEY, max_retries=0, http_client=http)
    check_base_url(str(made.base_url), "`ANTHROPIC_BASE_URL`")
    return made


_TOOL_CHOICES: JsonObject = {"auto": {"type": "auto"}, "none": {"type": "none"}, "required": {"type": "any"}}
#: For a request without messages, because the API wants at least one.
_EMPTY_MESSAGE = "(nothing was said)"


def messages_body(request: ModelRequest, model: str, max_output_tokens: int) -> JsonObject:
    """Build the body of a request to the Messages API."""
    body: JsonObject = {
        "model": model,
        "max_tokens": request.max_output_tokens or max_output_tokens,
        "messages": _messages(request, model),
    }
    if request.instructions.strip():
        body["system"] = escape_surrogates(request.instructions)
    if request.tools:
        choice = _TOOL_CHOICES.get(request.tool_choice) or {"type": "tool", "name": request.tool_choice}
        body |= {"tools": [_tool(tool) for tool in request.tools], "tool_choice": choice}
    return body


def _messages(request: ModelRequest, model: str) -> list[JsonObject]:
    merged: list[JsonObject] = []
    for message in sanitize_messages(request.messages):
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = _blocks(message, model)
        if not blocks:
            continue
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += blocks
        else:
            merged.append({"role": role, "content": blocks})
    if not merged or merged[0]["role"] == "assistant":
        merged.insert(0, {"role": "user", "content": [{"type": "text", "text": _EMPTY_MESSAGE}]})
    return merged


def _blocks(message: Message, model: str) -> list[JsonObject]:
    match message:
        case ToolMessage(call_id, text, parts):
            content = [{"type": "text", "text": text}, *_parts(parts)] if parts else text
            return [{"type": "tool_result", "tool_use_id": call_id, "content": content}]
        case UserMessage(text, parts):
            return [*([{"type": "text", "text": text}] if text.strip() else []), *_parts(parts)]
        case AssistantMessage():
            return restore_blocks(message.private, model, message.text, map(_call, message.calls))


def _parts(parts: Iterable[MessagePart]) -> list[JsonObject]:
    return [_part(part) for part in parts if isinstance(part, LoadedPart)]


def _part(part: LoadedPart) -> JsonObject:
    if part.media_type == TEXT_TYPE:
        return {"type": "text", "text": format_text_part(part)}
    source = {"type": "base64", "media_type": part.media_type, "data": b64encode(part.content).decode()}
    return {"type": "image" if part.media_type.startswith("image/") else "document", "source": source}


def _call(call: ProposedCall) -> JsonObject:
    return {"type": "tool_use", "id": call.call_id, "name": call.tool, "input": parse(call.arguments)}


def _tool(tool: ToolSpec) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters_schema}


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
        """Update the counts. They are totals so far, and one that is not repeated is still valid."""
        for name in _COUNTS:
            if (count := read_tokens(get_field(usage, name))) is not None:
                self._counts[name] = count

    def finish(self, prices: Prices | None = None) -> list[ModelEvent]:
        """Return the final events of the response."""
        for index, arguments in self._initial_arguments.items():
            if arguments:
                self._calls.add_delta(index, arguments=arguments)
        reason = _REASONS.get(self._reason, "other")
        usage = add_cost(_to_usage(self._counts), prices)
        return build_final_events(self._text, self._calls, reason, usage, self._thoughts.encode_private(self._model))


def _to_usage(counts: Mapping[str, int]) -> Usage:
    """Convert token counts. The API counts cached input separately; here it is part of the input."""
    cached = counts["cache_read_input_tokens"]
    return Usage(
        input_tokens=counts["input_tokens"] + counts["cache_creation_input_tokens"] + cached,
        output_tokens=counts["output_tokens"],
        cached_tokens=cached,
    )
