"""Requests of the chat completions API."""

from typing import Any, cast

from ...domain.json import JsonObject, escape_surrogates
from ...domain.messages import AssistantMessage, Message, ProposedCall, ToolMessage, UserMessage
from ...domain.tool import ToolSpec
from ..conversation import sanitize_messages
from ..interface import ModelRequest


def chat_body(request: ModelRequest, model: str, limit_field: str) -> JsonObject:
    """Return the body of a request. `limit_field`: this endpoint's name for the output limit."""
    body: JsonObject = {"model": model, "messages": _messages(request)}
    if request.tools:
        body |= {"tools": [_tool(tool) for tool in request.tools], "tool_choice": _tool_choice(request.tool_choice)}
    if request.output_schema is not None:
        body["response_format"] = _response_format(request.output_schema)
    if request.max_output_tokens is not None:
        body[limit_field] = request.max_output_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    return body


def _messages(request: ModelRequest) -> list[JsonObject]:
    instructions = (
        [{"role": "system", "content": escape_surrogates(request.instructions)}] if request.instructions else []
    )
    return instructions + [_message(message) for message in sanitize_messages(request.messages)]


def _message(message: Message) -> JsonObject:
    match message:
        case UserMessage():
            return {"role": "user", "content": message.text}
        case ToolMessage():
            return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
        case AssistantMessage(text, ()):
            return {"role": "assistant", "content": text}
        case AssistantMessage(text, calls):
            return {"role": "assistant", "content": text or None, "tool_calls": [_call(call) for call in calls]}


def _call(call: ProposedCall) -> JsonObject:
    return {"id": call.call_id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}


def _tool(tool: ToolSpec) -> JsonObject:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters_schema}
    return {"type": "function", "function": function}


def _tool_choice(choice: str) -> str | JsonObject:
    if choice in {"auto", "none", "required"}:
        return choice
    return {"type": "function", "function": {"name": choice}}


def _response_format(schema: JsonObject) -> JsonObject:
    described = {"name": "answer", "schema": schema, "strict": is_strict(schema)}
    return {"type": "json_schema", "json_schema": described}


def is_strict(schema: Any) -> bool:
    """Return True if the API can enforce the schema: every object must forbid properties other than the required. Only
    where every object says that it has no other properties than the required.

    It refuses a request that claims so and is wrong.
    """
    match schema:
        case dict():
            described = cast(JsonObject, schema)
            return _is_closed(described) and all(map(is_strict, described.values()))
        case list():
            return all(map(is_strict, cast(list[Any], schema)))
        case _:
            return True


def _is_closed(schema: JsonObject) -> bool:
    if schema.get("type") != "object" and "properties" not in schema:
        return True
    properties: JsonObject = schema.get("properties") or {}
    required: list[str] = schema.get("required") or []
    return schema.get("additionalProperties") is False and set(properties) == set(required)
