"""Requests of the messages API.

There, what people say and what tools return are both said by the user: neighbours are merged into one message, with
results first, because they must directly follow the calls. Empty texts are not allowed.
"""

from ...domain.json import JsonObject, escape_surrogates, parse
from ...domain.messages import AssistantMessage, Message, ProposedCall, ToolMessage, UserMessage
from ...domain.tool import ToolSpec
from ..conversation import sanitize_messages
from ..interface import ModelRequest
from .thinking import restore_blocks

_TOOL_CHOICES: JsonObject = {"auto": {"type": "auto"}, "none": {"type": "none"}, "required": {"type": "any"}}
#: For a request without messages, because the API wants at least one.
_EMPTY_MESSAGE = "(nothing was said)"


def messages_body(request: ModelRequest, model: str, max_output_tokens: int) -> JsonObject:
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
        case ToolMessage():
            return [{"type": "tool_result", "tool_use_id": message.call_id, "content": message.text}]
        case UserMessage():
            return [{"type": "text", "text": message.text}] if message.text.strip() else []
        case AssistantMessage():
            return restore_blocks(message.private, model, message.text, map(_call, message.calls))


def _call(call: ProposedCall) -> JsonObject:
    return {"type": "tool_use", "id": call.call_id, "name": call.tool, "input": parse(call.arguments)}


def _tool(tool: ToolSpec) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters_schema}
