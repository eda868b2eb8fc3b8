"""Messages between people, a model and its tools: plain data, the same for every provider."""

from typing import TypeAlias

import msgspec


class ProposedCall(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A tool call as the model wrote it: unchecked, perhaps not even JSON."""

    call_id: str
    tool: str
    arguments: str
    #: The artifact with the arguments, when they are too long for an event.
    artifact_id: str = ""


class MessagePart(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An image or a file in a message: the artifact that holds it."""

    artifact_id: str
    #: Detected by content; empty until it was read.
    media_type: str = ""
    size_bytes: int = 0
    name: str = ""


class LoadedPart(MessagePart, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A part with its content: in requests to a model, never in the log."""

    content: bytes


class UserMessage(msgspec.Struct, frozen=True, gc=False, tag="user", omit_defaults=True):
    """A message of the user."""

    text: str
    parts: tuple[MessagePart, ...] = ()


class AssistantMessage(msgspec.Struct, frozen=True, gc=False, tag="assistant", omit_defaults=True):
    """A message of the model, with the calls it proposed."""

    text: str = ""
    calls: tuple[ProposedCall, ...] = ()
    #: What the provider wants back with this answer, unchanged or not at all. Opaque to everything else.
    private: str = ""
    #: The artifact with it, when it is too long for an event.
    private_artifact_id: str = ""


class ToolMessage(msgspec.Struct, frozen=True, gc=False, tag="tool", omit_defaults=True):
    """The result of a call as shown to the model: rendered by the runtime, output marked as untrusted."""

    call_id: str
    text: str
    #: Only in requests to a model: the log has them as artifacts of the observation.
    parts: tuple[MessagePart, ...] = ()


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


class Usage(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Token usage as the provider counts it; `cost` in the currency of the provider's price table."""

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
