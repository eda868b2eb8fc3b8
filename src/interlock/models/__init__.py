"""Model providers, messages and scripts."""

from .. import lazy_package

_NAMES = {
    "domain.messages": ("AssistantMessage", "ProposedCall", "ToolMessage", "Usage", "UserMessage"),
    "models.anthropic_messages": ("AnthropicMessages",),
    "models.connection": ("Timeouts",),
    "models.interface": (
        "ModelEvent",
        "ModelProvider",
        "ModelRequest",
        "StreamFinished",
        "StreamRestarted",
        "TextDelta",
        "ToolCallDelta",
    ),
    "models.openai_chat": ("OpenAIChat",),
    "models.provider_factory": ("with_retries",),
    "models.scripted": (
        "ModelRecorder",
        "ScriptedFault",
        "ScriptedModel",
        "ScriptedTurn",
        "from_script",
        "to_script",
        "tool_call",
    ),
    "models.usage": ("Prices",),
}

lazy_package(__name__, _NAMES)
