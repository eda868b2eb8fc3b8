"""The public names, for type checkers and readers. `__init__.py` loads them on first use."""

from .approvals.callback import CallbackInteractionProvider
from .approvals.headless import HeadlessInteractionProvider
from .approvals.interface import InteractionProvider
from .artifacts.files import FileArtifacts
from .artifacts.memory import MemoryArtifacts
from .domain.call import Answer, Question, ToolIntent, Waiting
from .domain.chain import Entry
from .domain.decision import Decision, Verdict
from .domain.decision import Decision as PolicyDecision
from .domain.effects import SideEffect
from .domain.envelope import render_for_model, render_for_user, render_untrusted_tool_message
from .domain.errors import (
    AgentExecutionError,
    ArtifactError,
    ConfigurationError,
    DecisionConflictError,
    DuplicateToolError,
    InterlockError,
    LogCorruptError,
    LogError,
    LogFencedError,
    LogWriteError,
    RunEndedError,
    RunPausedError,
    SandboxDeniedError,
    ToolDeclarationError,
    ToolError,
    ToolExecutionError,
    ToolTimeoutError,
    ToolValidationError,
    UnknownToolError,
)
from .domain.event import Event
from .domain.excerpt import apply_tool_output_limits
from .domain.execution import ToolExecutionRecord, ToolResult, tool_result
from .domain.fail_safe import FailSafeConfig
from .domain.failure import CODES, Failure
from .domain.lifecycle import RunState
from .domain.observation import Observation
from .domain.phase import Phase
from .domain.tool import (
    Menu,
    Middleware,
    Mode,
    Normalized,
    PostHook,
    PreHook,
    Problem,
    Risk,
    Situation,
    ToolContext,
    ToolDefinition,
    ToolSpec,
)
from .history.export import read_export, to_json, to_ndjson
from .history.replay import Replay
from .history.run_handle_view import AgentRunEvent
from .history.run_view import RunEvent, run_events
from .history.verify import Audit, Checkpoint, Flaw, verify
from .log.interface import EventLog
from .log.memory import MemoryLog
from .log.sqlite import SqliteLog
from .pipeline.parts import Clock, Limits
from .policy.interface import PolicyEngine, PolicyEvent
from .policy.rules import Rule, RulePolicy
from .registry.decorator import tool
from .registry.memory import ToolRegistry
from .registry.toolsets import filtered, prefixed, renamed
from .runtime import BatchResult, ToolRuntime

__version__: str

__all__ = [
    "CODES",
    "AgentExecutionError",
    "AgentRunEvent",
    "Answer",
    "ArtifactError",
    "Audit",
    "BatchResult",
    "CallbackInteractionProvider",
    "Checkpoint",
    "Clock",
    "ConfigurationError",
    "Decision",
    "DecisionConflictError",
    "DuplicateToolError",
    "Entry",
    "Event",
    "EventLog",
    "FailSafeConfig",
    "Failure",
    "FileArtifacts",
    "Flaw",
    "HeadlessInteractionProvider",
    "InteractionProvider",
    "InterlockError",
    "Limits",
    "LogCorruptError",
    "LogError",
    "LogFencedError",
    "LogWriteError",
    "MemoryArtifacts",
    "MemoryLog",
    "Menu",
    "Middleware",
    "Mode",
    "Normalized",
    "Observation",
    "Phase",
    "PolicyDecision",
    "PolicyEngine",
    "PolicyEvent",
    "PostHook",
    "PreHook",
    "Problem",
    "Question",
    "Replay",
    "Risk",
    "Rule",
    "RulePolicy",
    "RunEndedError",
    "RunEvent",
    "RunPausedError",
    "RunState",
    "SandboxDeniedError",
    "SideEffect",
    "Situation",
    "SqliteLog",
    "ToolContext",
    "ToolDeclarationError",
    "ToolDefinition",
    "ToolError",
    "ToolExecutionError",
    "ToolExecutionRecord",
    "ToolIntent",
    "ToolRegistry",
    "ToolResult",
    "ToolRuntime",
    "ToolSpec",
    "ToolTimeoutError",
    "ToolValidationError",
    "UnknownToolError",
    "Verdict",
    "Waiting",
    "apply_tool_output_limits",
    "filtered",
    "prefixed",
    "read_export",
    "renamed",
    "render_for_model",
    "render_for_user",
    "render_untrusted_tool_message",
    "run_events",
    "to_json",
    "to_ndjson",
    "tool",
    "tool_result",
    "verify",
]
