"""Interface of model providers: requests, and streamed responses. A model only proposes."""

from collections.abc import AsyncGenerator
from typing import Literal, Protocol, TypeAlias

import msgspec

from ..domain.messages import Message, ProposedCall, Usage
from ..domain.tool import JsonObject, ToolSpec

#: Limits of one response, for every provider. Exceeding one is a `ModelError`.
MAX_ANSWER_CHARS = 1 << 20

#: The key for self-hosted servers, which often want none, while the SDKs do.
NO_KEY = "none"

#: `auto`, `none`, `required`, or the name of the one tool that must be called.
ToolChoice: TypeAlias = str


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a model."""

    #: As the provider names it.
    model: str
    instructions: str = ""
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    #: A JSON schema that the final text must fit, where the provider can hold a model to it.
    output_schema: JsonObject | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None


class TextDelta(msgspec.Struct, frozen=True):
    """A part of the model's text."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A complete tool call of the model."""

    call: ProposedCall


class StreamRestarted(msgspec.Struct, frozen=True):
    """The response broke off and is requested again: what came so far does not count."""

    reason: str


FinishReason: TypeAlias = Literal["stop", "tool_calls", "length", "refused", "other"]


class StreamFinished(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a response. Always the last event, unless `ModelError` is raised."""

    reason: FinishReason
    usage: Usage = Usage()
    #: For `AssistantMessage.private`: what the provider wants back with this answer.
    private: str = ""


ModelEvent: TypeAlias = TextDelta | ToolCallDelta | StreamRestarted | StreamFinished


class ModelProvider(Protocol):
    """Streams responses of a model."""

    @property
    def name(self) -> str:
        """The name for the record: `openai`, `anthropic`, `scripted`, ..."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream the response. `ModelError` when there is none, or when it broke off for good.

        Callers that stop early close it (`contextlib.aclosing`), which also closes the connection.
        """
        ...

    async def close(self) -> None: ...
