"""Model providers, messages and scripts."""

from ..domain.messages import AssistantMessage, ProposedCall, ToolMessage, Usage, UserMessage
from .anthropic_messages import AnthropicMessages
from .connection import Timeouts
from .interface import (
    ModelEvent,
    ModelProvider,
    ModelRequest,
    StreamFinished,
    StreamRestarted,
    TextDelta,
    ToolCallDelta,
)
from .openai_chat import OpenAIChat
from .provider_factory import with_retries
from .scripted import ModelRecorder, ScriptedFault, ScriptedModel, ScriptedTurn, from_script, to_script, tool_call
from .usage import Prices

__all__ = [
    "AnthropicMessages",
    "AssistantMessage",
    "ModelEvent",
    "ModelProvider",
    "ModelRecorder",
    "ModelRequest",
    "OpenAIChat",
    "Prices",
    "ProposedCall",
    "ScriptedFault",
    "ScriptedModel",
    "ScriptedTurn",
    "StreamFinished",
    "StreamRestarted",
    "TextDelta",
    "Timeouts",
    "ToolCallDelta",
    "ToolMessage",
    "Usage",
    "UserMessage",
    "from_script",
    "to_script",
    "tool_call",
    "with_retries",
]
