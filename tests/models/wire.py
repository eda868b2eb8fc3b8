"""The two wire formats as servers write them, and what tests of providers share."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec

from interlock.domain.messages import ProposedCall, UserMessage
from interlock.models.anthropic_messages import AnthropicMessages
from interlock.models.connection import DEFAULT_TIMEOUTS, Timeouts
from interlock.models.interface import ModelEvent, ModelProvider, ModelRequest, StreamFinished, TextDelta, ToolCallDelta
from interlock.models.openai_chat import OpenAIChat
from tests.models.loopback import Loopback, Reply, serving
from tests.patience import HANG_SECONDS

ASKED = ModelRequest(model="some-model", messages=(UserMessage("What is in the file?"),))
KEY = "sk-test-9f8e7d6c5b4a"


def openai_chunks(*chunks: Any, done: bool = True) -> tuple[bytes, ...]:
    written = tuple(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    return (*written, b"data: [DONE]\n\n") if done else written


def openai_delta(delta: Any = None, finish_reason: str | None = None) -> dict[str, Any]:
    return {"id": "1", "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish_reason}]}


def openai_call(finish_reason: str | None = None, **piece: Any) -> dict[str, Any]:
    return openai_delta({"tool_calls": [piece]}, finish_reason)


def anthropic_events(*events: Any) -> tuple[bytes, ...]:
    return tuple(
        f"event: {event['type']}\n".encode() + b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events
    )


ANTHROPIC_START = {"type": "message_start", "message": {"id": "1", "usage": {"input_tokens": 3, "output_tokens": 1}}}
ANTHROPIC_STOP = {"type": "message_stop"}


def anthropic_end(stop_reason: str, output_tokens: int = 5) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": {"output_tokens": output_tokens}}


def anthropic_block(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def anthropic_piece(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


#: The word "Hi" and a proper end, by provider.
HELLO = {
    "openai": openai_chunks(openai_delta({"content": "Hi"}), openai_delta(finish_reason="stop")),
    "anthropic": anthropic_events(
        ANTHROPIC_START,
        anthropic_block(0, type="text", text=""),
        anthropic_piece(0, type="text_delta", text="Hi"),
        anthropic_end("end_turn"),
        ANTHROPIC_STOP,
    ),
}
#: The word "Hi", and then nothing more.
HALF = {"openai": HELLO["openai"][:1], "anthropic": HELLO["anthropic"][:3]}


def provider_at(kind: str, url: str, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> ModelProvider:
    if kind == "openai":
        return OpenAIChat(base_url=f"{url}/v1", api_key=KEY, timeouts=timeouts)
    return AnthropicMessages(base_url=url, api_key=KEY, timeouts=timeouts)


async def answer(
    provider: ModelProvider, request: ModelRequest = ASKED, seconds: float = HANG_SECONDS
) -> list[ModelEvent]:
    async with aclosing(provider.stream(request)) as events, asyncio.timeout(seconds):
        return [event async for event in events]


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def calls_of(events: list[ModelEvent]) -> list[ProposedCall]:
    return [event.call for event in events if isinstance(event, ToolCallDelta)]


def end_of(events: list[ModelEvent]) -> StreamFinished:
    assert isinstance(events[-1], StreamFinished)
    return events[-1]


@asynccontextmanager
async def talking(
    kind: str,
    *replies: Reply,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> AsyncGenerator[tuple[ModelProvider, Loopback]]:
    """A provider, and the server that it talks to."""
    async with serving(*replies) as server:
        provider = provider_at(kind, server.url, timeouts)
        try:
            yield provider, server
        finally:
            await provider.close()


async def answer_to(kind: str, *chunks: bytes, request: ModelRequest = ASKED) -> list[ModelEvent]:
    """What becomes of an answer with these bytes."""
    async with talking(kind, Reply(chunks)) as (provider, _):
        return await answer(provider, request)
