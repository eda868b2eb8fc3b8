"""The four wire formats that the agents speak with their models: what a request says, and a streamed reply.

Only what the agents need: a reply is one tool call or one text.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4

import msgspec


@dataclass(frozen=True)
class Call:
    """A tool call of the model."""

    tool: str
    arguments: Mapping[str, object]
    #: Codex has the tools of MCP servers in namespaces.
    namespace: str = ""
    id: str = ""


@dataclass(frozen=True)
class Text:
    """A text of the model: the end of its turn."""

    text: str


Answer = Call | Text


@dataclass(frozen=True)
class Request:
    """What an agent asks its model."""

    has_tools: bool
    #: The results since the model last spoke, by the id of their call.
    results: Mapping[str, str]
    #: All texts since then.
    prompt: str


@dataclass(frozen=True)
class Wire:
    """A format: reads the body of a request, and writes the chunks of an answer."""

    read: Callable[[dict[str, Any]], Request]
    write: Callable[[Answer], Iterator[dict[str, Any]]]
    #: The chunk that ends the stream, if the format has one.
    last: bytes = b""
    #: Chunks are named by their `type`.
    is_named: bool = False


def _flat(value: object) -> str:
    """Return the text of a value that is one, or has some in its parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(map(_flat, cast("list[object]", value)))
    if isinstance(value, dict):
        return "\n".join(map(_flat, cast("dict[str, object]", value).values()))
    return ""


def _arguments(call: Call) -> str:
    return msgspec.json.encode(call.arguments).decode()


def _take_last(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages after the last one of the model."""
    start = max((number for number, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    return messages[start + 1 :]


# Anthropic: Claude Code


def _read_messages(body: dict[str, Any]) -> Request:
    # Claude Code adds reminders after the results.
    last: list[Any] = [message["content"] for message in _take_last(body["messages"])]
    parts = [cast("list[dict[str, Any]]", content) for content in last if isinstance(content, list)]
    blocks = [block for content in parts for block in content]
    results = {block["tool_use_id"]: _flat(block["content"]) for block in blocks if block["type"] == "tool_result"}
    return Request(bool(body.get("tools")), results, _flat(last))


def _write_messages(answer: Answer) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    # Claude Code takes messages with the same id as one.
    message: dict[str, Any] = {
        "id": f"msg_{uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": usage,
    }
    yield {"type": "message_start", "message": message}
    if isinstance(answer, Call):
        block: dict[str, Any] = {"type": "tool_use", "id": answer.id, "name": answer.tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": _arguments(answer)}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": answer.text}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    reason = "tool_use" if isinstance(answer, Call) else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
    yield {"type": "message_stop"}


# OpenAI, responses: Codex


def _read_responses(body: dict[str, Any]) -> Request:
    items: list[dict[str, Any]] = body["input"]
    last = items[-1]
    results = {last["call_id"]: _flat(last["output"])} if str(last["type"]).endswith("_output") else {}
    return Request(bool(body.get("tools")), results, _flat(last))


def _write_responses(answer: Answer) -> Iterator[dict[str, Any]]:
    yield {"type": "response.created", "response": {"id": "resp_1"}}
    if isinstance(answer, Call):
        item = {"type": "function_call", "call_id": answer.id, "name": answer.tool, "arguments": _arguments(answer)}
        item |= {"namespace": answer.namespace} if answer.namespace else {}
        if answer.tool == "apply_patch":
            item = {"type": "custom_tool_call", "call_id": answer.id, "name": answer.tool} | dict(answer.arguments)
    else:
        content = [{"type": "output_text", "text": answer.text}]
        item = {"type": "message", "role": "assistant", "id": "m1", "content": content}
    yield {"type": "response.output_item.done", "item": item}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}}


# OpenAI, chat: opencode


def _read_chat(body: dict[str, Any]) -> Request:
    last = body["messages"][-1]
    results = {last["tool_call_id"]: _flat(last["content"])} if last["role"] == "tool" else {}
    return Request(bool(body.get("tools")), results, _flat(last["content"]))


def _write_chat(answer: Answer) -> Iterator[dict[str, Any]]:
    delta: dict[str, Any] = {"role": "assistant"}
    if isinstance(answer, Call):
        function = {"name": answer.tool, "arguments": _arguments(answer)}
        delta["tool_calls"] = [{"index": 0, "id": answer.id, "type": "function", "function": function}]
    else:
        delta["content"] = answer.text
    chunk = {"id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    yield {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    reason = "tool_calls" if isinstance(answer, Call) else "stop"
    yield {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


# Google: Gemini CLI


def _read_contents(body: dict[str, Any]) -> Request:
    parts: list[dict[str, Any]] = body["contents"][-1]["parts"]
    responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
    results = {response.get("id", ""): _flat(response["response"]) for response in responses}
    return Request(bool(body.get("tools")), results, _flat(parts))


def _write_contents(answer: Answer) -> Iterator[dict[str, Any]]:
    if isinstance(answer, Call):
        part: dict[str, Any] = {"functionCall": {"id": answer.id, "name": answer.tool, "args": dict(answer.arguments)}}
    else:
        part = {"text": answer.text}
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    yield {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}


#: By the end of the path.
WIRES: Mapping[str, Wire] = {
    "/v1/messages": Wire(_read_messages, _write_messages, is_named=True),
    "/v1/responses": Wire(_read_responses, _write_responses, is_named=True),
    "/v1/chat/completions": Wire(_read_chat, _write_chat, last=b"data: [DONE]\n\n"),
    ":streamGenerateContent": Wire(_read_contents, _write_contents),
}


def render(wire: Wire, answer: Answer) -> bytes:
    """Return the stream of an answer."""
    chunks: list[bytes] = []
    for chunk in wire.write(answer):
        name = f"event: {chunk['type']}\n".encode() if wire.is_named else b""
        chunks.append(name + b"data: " + msgspec.json.encode(chunk) + b"\n\n")
    return b"".join(chunks) + wire.last
