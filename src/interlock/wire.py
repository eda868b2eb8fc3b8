"""Wire formats of tool calls and results. Conversion only: nothing here decides anything.

Read: OpenAI chat completions and responses, Anthropic messages, and our own, as dictionaries or as the SDKs' objects.
Anything else becomes an intent without an id, which is refused like any other bad input.
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

#: How a provider's API writes tools, calls and messages: chat completions, responses, or Anthropic's messages.
ProviderFormat: TypeAlias = Literal["openai", "openai-responses", "anthropic"]
PROVIDER_FORMATS: tuple[str, ...] = get_args(ProviderFormat)
WireFormat: TypeAlias = ProviderFormat | Literal["interlock"]


def read_calls(calls: Iterable[Any]) -> tuple[list[ToolIntent], WireFormat]:
    """Return the intents, in model order, and their wire format."""
    wire_format: WireFormat = "openai"
    intents: list[ToolIntent] = []
    for call in calls:
        intent, wire_format = read_call(call)
        intents.append(intent)
    return intents, wire_format


def read_call(call: Any) -> tuple[ToolIntent, WireFormat]:
    match call:
        case {"id": call_id, "function": {"name": name, "arguments": arguments}}:
            return ToolIntent(call_id=call_id, tool_name=name, arguments=arguments), "openai"
        case {"type": "tool_use", "id": call_id, "name": name, "input": arguments}:
            return ToolIntent(call_id=call_id, tool_name=name, arguments=arguments), "anthropic"
        case {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}:
            return ToolIntent(call_id=call_id, tool_name=name, arguments=arguments), "openai-responses"
        case {"id": call_id, "function": {"name": name}}:
            return ToolIntent(call_id=call_id, tool_name=name, arguments={}), "openai"
        case {"id": call_id, "tool_name": name} | {"id": call_id, "name": name}:
            return _read_interlock_call(call_id, name, cast(Mapping[str, Any], call)), "interlock"
        case _:
            return _read_other(call)


def render_messages(observations: Iterable[Observation], wire_format: WireFormat) -> list[dict[str, Any]]:
    """Return the messages for the model, in the order given, one per call id."""
    match wire_format:
        case "openai" | "interlock":
            answer = _openai_message
        case "openai-responses":
            answer = _openai_responses_item
        case "anthropic":
            answer = _anthropic_block
        case _:
            raise ConfigurationError(describe_unknown("provider format", wire_format, PROVIDER_FORMATS))
    answers = list({observation.call_id: answer(observation) for observation in observations}.values())
    return [{"role": "user", "content": answers}] if wire_format == "anthropic" and answers else answers


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


def _openai_message(observation: Observation) -> dict[str, Any]:
    return {
        "role": "tool",
        "tool_call_id": observation.call_id,
        "name": observation.tool,
        "content": render_for_model(observation),
    }


def _openai_responses_item(observation: Observation) -> dict[str, Any]:
    return {
        "type": "function_call_output",
        "call_id": observation.call_id,
        "output": render_for_model(observation),
    }


def _anthropic_block(observation: Observation) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": observation.call_id,
        "content": render_for_model(observation),
        "is_error": not observation.ok,
    }


def _read_other(call: Any) -> tuple[ToolIntent, WireFormat]:
    if isinstance(call, ToolIntent):
        return call, "interlock"
    if isinstance(call, Mapping | str) or call is None:
        return ToolIntent(call_id="", tool_name="", arguments=call), "interlock"
    return read_call(_read_fields(call))


def _read_interlock_call(call_id: Any, name: Any, call: Mapping[str, Any]) -> ToolIntent:
    reason = call.get("reason")
    return ToolIntent(
        call_id=call_id,
        tool_name=name,
        arguments=call.get("arguments", {}),
        reason=reason if isinstance(reason, str) else "",
    )


def _read_fields(call: Any) -> dict[str, Any]:
    """An SDK's object as the dictionary it stands for. An object may do anything when it is looked at."""
    try:
        fields = {name: getattr(call, name) for name in _FIELDS if hasattr(call, name)}
        function = getattr(call, "function", None)
        if function is not None:
            fields["function"] = {name: getattr(function, name) for name in _FIELDS if hasattr(function, name)}
    except Exception:
        return {}
    return fields
