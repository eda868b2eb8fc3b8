"""Model providers, messages and scripts."""

from .. import lazy_package

_NAMES = {
    "domain.messages": ("AssistantMessage", "ProposedCall", "ToolMessage", "Usage", "UserMessage"),
    "models.anthropic.messages": ("AnthropicMessages",),
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
    "models.openai.chat": ("OpenAIChat",),
    "models.recorder": ("ModelRecorder",),
    "models.retry": ("with_retries",),
    "models.scripted": ("ScriptedFault", "ScriptedModel", "ScriptedTurn", "from_script", "to_script", "tool_call"),
    "models.usage": ("Prices",),
}

lazy_package(__name__, _NAMES)
