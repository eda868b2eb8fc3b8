"""What a model is asked, and what it answers bit by bit, whoever provides it. A model only proposes."""

from collections.abc import AsyncGenerator
from typing import Literal, Protocol, TypeAlias

import msgspec

from ..domain.messages import Message, ProposedCall, Usage
from ..domain.tool import JsonObject, ToolSpec

#: What a model may say in one answer, whoever provides it. More of it is `ModelError`.
MAX_ANSWER_CHARS = 1 << 20

#: `auto`, `none`, `required`, or the name of the one tool that must be called.
ToolChoice: TypeAlias = str


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
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
    """A part of what the model says."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True):
    """The model has written a tool call to its end."""

    call: ProposedCall


class StreamRestarted(msgspec.Struct, frozen=True):
    """The answer broke off and is asked for again: what came so far does not count."""

    reason: str


FinishReason: TypeAlias = Literal["stop", "tool_calls", "length", "refused", "other"]


class StreamFinished(msgspec.Struct, frozen=True, kw_only=True):
    """Always the last one, unless `ModelError` is raised."""

    reason: FinishReason
    usage: Usage = Usage()
    #: For `AssistantMessage.private`: what the provider wants back with this answer.
    private: str = ""


ModelEvent: TypeAlias = TextDelta | ToolCallDelta | StreamRestarted | StreamFinished


class ModelProvider(Protocol):
    @property
    def name(self) -> str:
        """For the record: `openai`, `anthropic`, `scripted`, ..."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """The answer as it comes. `ModelError` when there is none, or when it broke off for good.

        Whoever leaves early closes it (`contextlib.aclosing`): then the connection goes, too.
        """
        ...

    async def close(self) -> None: ...
