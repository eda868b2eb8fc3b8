"""A conversation as lines that can be compared and hold nothing of it: who spoke, and a digest of what was said."""

from hashlib import sha256

from ..domain.messages import AssistantMessage, Message, ToolMessage, UserMessage

#: How the ids of calls begin that came without a usable one.
MADE_UP = "invalid_"
_DIGEST_CHARS = 16


def short_digest(text: str) -> str:
    return sha256(text.encode(errors="backslashreplace")).hexdigest()[:_DIGEST_CHARS]


def message_line(message: Message) -> str:
    match message:
        case UserMessage():
            return f"user {short_digest(message.text)}"
        case ToolMessage():
            made_up = message.call_id.startswith(MADE_UP)
            return f"tool {MADE_UP}" if made_up else f"tool {message.call_id} {short_digest(message.text)}"
        case AssistantMessage():
            called = "".join(f" {_named(call.call_id)}:{call.tool}" for call in message.calls)
            return f"assistant {short_digest(message.text)}{called}"


def _named(call_id: str) -> str:
    """An id that was made up for a call without one depends on words that the log does not have."""
    return MADE_UP if call_id.startswith(MADE_UP) else call_id
