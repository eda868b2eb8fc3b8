"""What is said between people, a model and its tools: plain data, the same for every provider."""

from typing import TypeAlias

import msgspec


class ProposedCall(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A tool call as the model wrote it: not checked, perhaps not even JSON."""

    call_id: str
    tool: str
    arguments: str
    #: Where the arguments are, when they are too long for an event.
    artifact_id: str = ""


class UserMessage(msgspec.Struct, frozen=True, gc=False, tag="user"):
    text: str


class AssistantMessage(msgspec.Struct, frozen=True, gc=False, tag="assistant", omit_defaults=True):
    text: str = ""
    calls: tuple[ProposedCall, ...] = ()
    #: What the provider wants back with this answer, unchanged or not at all. Nobody else reads it.
    private: str = ""
    #: Where that is, when it is too long for an event.
    private_artifact_id: str = ""


class ToolMessage(msgspec.Struct, frozen=True, gc=False, tag="tool"):
    """What the model is told about a call: rendered by the runtime, output marked as untrusted."""

    call_id: str
    text: str


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


class Usage(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """In tokens, as the provider counts them; `cost` in whatever the provider's price table is in."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost=self.cost + other.cost,
        )
