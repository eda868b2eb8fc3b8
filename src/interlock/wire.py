"""Wire formats of tool calls and results. Conversion only: nothing here decides anything.

Read: OpenAI chat completions and responses, Anthropic messages, and our own, as dictionaries or as the SDKs' objects:
the calls, a message, or a whole response. Text, reasoning and what the provider executed itself are not calls. Anything
else is refused like any other bad input, and is not answered: it has no id that the provider would know.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, cast, get_args

from .domain.call import ToolIntent
from .domain.errors import ConfigurationError
from .domain.observation import Observation
from .domain.rendering import render_for_model
from .domain.tool import CallContext, JsonObject
from .registry.memory import ToolRegistry
from .rendering.text import describe_unknown

_FIELDS = ("id", "call_id", "type", "name", "tool_name", "input", "arguments", "reason")
#: Where a response or a message has its calls, outermost first.
_CONTAINERS = ("choices", "tool_calls", "output", "content")
#: Types of items that are not calls: text and reasoning, and what the provider executed itself.
_CONTENT_TYPES = frozenset(
    {
        "text",
        "output_text",
        "refusal",
        "message",
        "thinking",
        "redacted_thinking",
        "reasoning",
        "compaction",
        "program",
        "additional_tools",
        "container_upload",
        "server_tool_use",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "tool_search_call",
        "mcp_call",
        "mcp_list_tools",
    }
)
_RESULT_SUFFIXES = ("_tool_result", "_output")

#: How a provider's API writes tools, calls and messages: chat completions, responses, or Anthropic's messages.
ProviderFormat: TypeAlias = Literal["openai", "openai-responses", "anthropic"]
PROVIDER_FORMATS: tuple[str, ...] = get_args(ProviderFormat)
WireFormat: TypeAlias = ProviderFormat | Literal["interlock"]
_WIRE_FORMATS = (*PROVIDER_FORMATS, "interlock")


def read_calls(calls: Any) -> tuple[list[ToolIntent], WireFormat, list[int]]:
    """Return the intents in model order, their wire format, and the positions of those that cannot be answered.

    Raise `ConfigurationError` for what is neither calls nor a response.
    """
    wire_format: WireFormat = "openai"
    intents: list[ToolIntent] = []
    unanswerable: list[int] = []
    for call in calls if type(calls) is list else _find_calls(calls):  # pyright: ignore[reportUnknownVariableType]
        read = read_call(call)
        match read:
            case (intent, wire_format):
                intents.append(intent)
            case ToolIntent():
                unanswerable.append(len(intents))
                intents.append(read)
            case None:
                pass
    return intents, wire_format, unanswerable


def read_call(call: Any) -> tuple[ToolIntent, WireFormat] | ToolIntent | None:  # noqa: PLR0911 - one for each shape
    """Return a call and its wire format; for what is no call, None, and for what is not known, an intent without a
    tool.
    """
    match call:
        case {"id": call_id, "function": {"name": name, "arguments": arguments}}:
            return ToolIntent(call_id=call_id, tool_name=name, arguments=arguments), "openai"
        case {"type": "tool_use", "id": call_id, "name": name, "input": arguments}:
            return ToolIntent(call_id=call_id, tool_name=name, arguments=arguments), "anthropic"
        case {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}:
            return ToolIntent(call_id=call_id, tool_name=name, arguments=arguments), "openai-responses"
        case {"id": call_id, "function": {"name": name}}:
            return ToolIntent(call_id=call_id, tool_name=name, arguments={}), "openai"
        case {"type": str(kind)} if kind:
            return _read_typed(kind, cast(Mapping[str, Any], call))
        case {"id": call_id, "tool_name": name} | {"id": call_id, "name": name}:
            return _read_interlock_call(call_id, name, cast(Mapping[str, Any], call)), "interlock"
        case ToolIntent():
            return call, "interlock"
        case Mapping() | str() | None:
            return ToolIntent(call_id="", tool_name="", arguments=call)
        case _:
            return read_call(_read_fields(call))


def _read_typed(kind: str, item: Mapping[str, Any]) -> ToolIntent | None:
    """Read an item of another type than a call: nothing, or a refusal under its own id."""
    if kind in _CONTENT_TYPES or kind.endswith(_RESULT_SUFFIXES):
        return None
    return ToolIntent(call_id=item.get("call_id") or item.get("id") or "", tool_name=f"{kind} block", arguments={})


def _find_calls(given: Any) -> Iterable[Any]:
    """Return the items of a message or of a whole response, a single call, or an iterable of calls as it is."""
    fields = _read_fields(given, (*_CONTAINERS, *_FIELDS))
    match fields:
        case {"choices": [choice]}:
            return _find_calls(_read_fields(choice, ("message",)).get("message"))
        case {"tool_calls": [*items]} | {"output": [*items]} | {"content": [*items]}:
            return items
        case {"tool_calls": None} | {"content": str() | None}:
            return ()
        case {"choices": _}:
            problem = "a response that does not have exactly one choice"
        case _ if fields or isinstance(given, Mapping):
            return (cast(Any, given),)
        case _ if isinstance(given, Iterable) and not isinstance(given, str | bytes):
            return cast(Iterable[Any], given)
        case _:
            problem = type(given).__name__
    if given is None:
        return ()
    raise ConfigurationError(
        f"Expected the tool calls of a response, a message or a whole response, and found {problem}."
        " Nothing was executed."
    )


def render_messages(observations: Iterable[Observation], wire_format: WireFormat) -> list[dict[str, Any]]:
    """Return the messages for the model, in the order given, one per call id."""
    if wire_format not in _WIRE_FORMATS:
        raise ConfigurationError(describe_unknown("provider format", wire_format, PROVIDER_FORMATS))
    answers: dict[str, dict[str, Any]] = {}
    for observation in observations:
        call_id, text = observation.call_id, render_for_model(observation)
        match wire_format:
            case "openai" | "interlock":
                answers[call_id] = {"role": "tool", "tool_call_id": call_id, "name": observation.tool, "content": text}
            case "openai-responses":
                answers[call_id] = {"type": "function_call_output", "call_id": call_id, "output": text}
            case "anthropic":
                result = {"type": "tool_result", "tool_use_id": call_id, "content": text}
                answers[call_id] = {**result, "is_error": not observation.ok}
    messages = [*answers.values()]
    return [{"role": "user", "content": messages}] if wire_format == "anthropic" and messages else messages


def render_tools(registry: ToolRegistry, situation: CallContext, provider: ProviderFormat) -> list[JsonObject]:
    """Return the schemas of the tools that are visible in this context, as the provider's API takes them."""
    match provider:
        case "openai":
            return registry.to_openai_function_tools(situation)
        case "openai-responses":
            return registry.to_openai_responses_tools(situation)
        case "anthropic":
            return registry.to_anthropic_tools(situation)
        case _:
            raise ConfigurationError(describe_unknown("provider format", provider, PROVIDER_FORMATS))


def _read_interlock_call(call_id: Any, name: Any, call: Mapping[str, Any]) -> ToolIntent:
    reason = call.get("reason")
    return ToolIntent(
        call_id=call_id,
        tool_name=name,
        arguments=call.get("arguments", {}),
        reason=reason if isinstance(reason, str) else "",
    )


def _read_fields(item: Any, names: tuple[str, ...] = _FIELDS) -> dict[str, Any]:
    """Return an SDK's object as the dictionary it stands for. An object may do anything when it is looked at."""
    if isinstance(item, Mapping):
        return dict(cast(Mapping[str, Any], item))
    try:
        fields = {name: getattr(item, name) for name in names if hasattr(item, name)}
        function = getattr(item, "function", None)
        if function is not None:
            fields["function"] = {name: getattr(function, name) for name in _FIELDS if hasattr(function, name)}
    except Exception:
        return {}
    return fields
