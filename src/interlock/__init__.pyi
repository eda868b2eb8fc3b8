"""The public names, for type checkers and readers. `__init__.py` loads them on first use."""

from .agent.agent import Agent, AgentTool
from .agent.next_step import Budgets
from .audit.export import read_export, to_json, to_ndjson
from .audit.verify import ChainFlaw, ChainVerification, Checkpoint, verify
from .domain.call import Answer, Question, ToolIntent, WaitingCall
from .domain.decision import Decision, FailSafeConfig, Verdict
from .domain.decision import Decision as PolicyDecision
from .domain.errors import (
    AgentExecutionError,
    AnswerRefusedError,
    ArtifactError,
    ConfigurationError,
    ConsentError,
    DecisionConflictError,
    DuplicateToolError,
    InterlockError,
    LogCorruptError,
    LogError,
    LogFencedError,
    LogWriteError,
    ModelError,
    PreconditionError,
    RunClaimedError,
    RunEndedError,
    RunPausedError,
    SandboxDeniedError,
    SandboxSetupError,
    ToolDeclarationError,
    ToolError,
    ToolExecutionError,
    ToolTimeoutError,
    ToolValidationError,
    UnknownToolError,
)
from .domain.event import Event, LogEntry
from .domain.messages import AssistantMessage, ProposedCall, ToolMessage, Usage, UserMessage
from .domain.observation import Observation, ToolExecutionRecord, ToolResult, tool_result
from .domain.outcome import ERROR_CODES, Failure, Phase, SideEffect
from .domain.payload import ApprovalBinding, BindingChange, ExecutionEnvironment, FileOperand
from .domain.rendering import render_for_model, render_for_user, render_untrusted_tool_message
from .domain.state.lifecycle import RunState
from .domain.state.verification import Verification
from .domain.tool import (
    CallContext,
    CheckProblem,
    Consent,
    ConsentBinding,
    Mask,
    Middleware,
    NormalizedOutput,
    PermissionMode,
    PostHook,
    PreHook,
    Risk,
    SandboxScope,
    ToolCatalog,
    ToolContext,
    ToolDefinition,
    ToolSpec,
)
from .history.actions import Action
from .history.run_handle_view import AgentRunEvent
from .history.run_view import RunEvent, to_run_events
from .interaction.interface import InteractionProvider
from .interaction.providers import CallbackInteractionProvider, HeadlessInteractionProvider
from .interaction.terminal import TerminalInteractionProvider
from .local import LocalTools
from .models.anthropic.messages import AnthropicMessages
from .models.connection import Timeouts
from .models.interface import (
    ModelEvent,
    ModelProvider,
    ModelRequest,
    StreamFinished,
    StreamRestarted,
    TextDelta,
    ToolCallDelta,
)
from .models.openai.chat import OpenAIChat
from .models.recorder import ModelRecorder
from .models.retry import with_retries
from .models.scripted import ScriptedFault, ScriptedModel, ScriptedTurn, from_script, to_script, tool_call
from .models.usage import Prices
from .oauth.interface import ConsentProvider
from .pipeline.parts import Clock, Limits
from .policy.analysis.backtest import Backtest, backtest
from .policy.analysis.explain import Explanation, explain, find_masks
from .policy.analysis.recorded_calls import RecordedCall, read_recorded_calls
from .policy.analysis.suggestions import RuleSuggestion, find_suggestions
from .policy.engine.example_event import example_event
from .policy.engine.rule import ArgumentGlob, ArgumentIs, ArgumentRegex, CommandPattern, ResourceDeclaration, Rule
from .policy.engine.rule_policy import RulePolicy
from .policy.files.policy_files import PolicyFiles, check_file, load_policy
from .policy.files.problems import PolicyFileError
from .policy.interface import PolicyEngine, PolicyEvent
from .registry.decorator import tool
from .registry.memory import ToolRegistry
from .registry.toolsets import filter_tools, prefix_tools, rename_tools
from .rendering.excerpt import apply_tool_output_limits
from .replay.dry_run import DryRun, dry_run
from .replay.export_test import export_test
from .replay.model import ModelReplay, replay_model
from .replay.trace import Replay
from .runs.fork import fork
from .runs.handle import RunHandle
from .runs.inbox import Inbox
from .runs.result import AgentResult
from .runs.runner import Runner
from .runtime import BatchResult, ToolRuntime
from .sandbox.interface import CommandLimits, CommandSandbox, Confinement
from .server.core.runs.served_agent import ServedAgent
from .storage.event_log import EventLog
from .storage.file_artifacts import FileArtifacts
from .storage.memory import MemoryLog
from .storage.memory_artifacts import MemoryArtifacts
from .storage.sqlite.log import SqliteLog
from .tools.skills.skill_tools import skills

__version__: str

__all__ = [
    "ERROR_CODES",
    "Action",
    "Agent",
    "AgentExecutionError",
    "AgentResult",
    "AgentRunEvent",
    "AgentTool",
    "Answer",
    "AnswerRefusedError",
    "AnthropicMessages",
    "ApprovalBinding",
    "ArgumentGlob",
    "ArgumentIs",
    "ArgumentRegex",
    "ArtifactError",
    "AssistantMessage",
    "Backtest",
    "BatchResult",
    "BindingChange",
    "Budgets",
    "CallContext",
    "CallbackInteractionProvider",
    "ChainFlaw",
    "ChainVerification",
    "CheckProblem",
    "Checkpoint",
    "Clock",
    "CommandLimits",
    "CommandPattern",
    "CommandSandbox",
    "ConfigurationError",
    "Confinement",
    "Consent",
    "ConsentBinding",
    "ConsentError",
    "ConsentProvider",
    "Decision",
    "DecisionConflictError",
    "DryRun",
    "DuplicateToolError",
    "Event",
    "EventLog",
    "ExecutionEnvironment",
    "Explanation",
    "FailSafeConfig",
    "Failure",
    "FileArtifacts",
    "FileOperand",
    "HeadlessInteractionProvider",
    "Inbox",
    "InteractionProvider",
    "InterlockError",
    "Limits",
    "LocalTools",
    "LogCorruptError",
    "LogEntry",
    "LogError",
    "LogFencedError",
    "LogWriteError",
    "Mask",
    "MemoryArtifacts",
    "MemoryLog",
    "Middleware",
    "ModelError",
    "ModelEvent",
    "ModelProvider",
    "ModelRecorder",
    "ModelReplay",
    "ModelRequest",
    "NormalizedOutput",
    "Observation",
    "OpenAIChat",
    "PermissionMode",
    "Phase",
    "PolicyDecision",
    "PolicyEngine",
    "PolicyEvent",
    "PolicyFileError",
    "PolicyFiles",
    "PostHook",
    "PreHook",
    "PreconditionError",
    "Prices",
    "ProposedCall",
    "Question",
    "RecordedCall",
    "Replay",
    "ResourceDeclaration",
    "Risk",
    "Rule",
    "RulePolicy",
    "RuleSuggestion",
    "RunClaimedError",
    "RunEndedError",
    "RunEvent",
    "RunHandle",
    "RunPausedError",
    "RunState",
    "Runner",
    "SandboxDeniedError",
    "SandboxScope",
    "SandboxSetupError",
    "ScriptedFault",
    "ScriptedModel",
    "ScriptedTurn",
    "ServedAgent",
    "SideEffect",
    "SqliteLog",
    "StreamFinished",
    "StreamRestarted",
    "TerminalInteractionProvider",
    "TextDelta",
    "Timeouts",
    "ToolCallDelta",
    "ToolCatalog",
    "ToolContext",
    "ToolDeclarationError",
    "ToolDefinition",
    "ToolError",
    "ToolExecutionError",
    "ToolExecutionRecord",
    "ToolIntent",
    "ToolMessage",
    "ToolRegistry",
    "ToolResult",
    "ToolRuntime",
    "ToolSpec",
    "ToolTimeoutError",
    "ToolValidationError",
    "UnknownToolError",
    "Usage",
    "UserMessage",
    "Verdict",
    "Verification",
    "WaitingCall",
    "apply_tool_output_limits",
    "backtest",
    "check_file",
    "dry_run",
    "example_event",
    "explain",
    "export_test",
    "filter_tools",
    "find_masks",
    "find_suggestions",
    "fork",
    "from_script",
    "load_policy",
    "prefix_tools",
    "read_export",
    "read_recorded_calls",
    "rename_tools",
    "render_for_model",
    "render_for_user",
    "render_untrusted_tool_message",
    "replay_model",
    "skills",
    "to_json",
    "to_ndjson",
    "to_run_events",
    "to_script",
    "tool",
    "tool_call",
    "tool_result",
    "verify",
    "with_retries",
]
