"""The public names, for type checkers and readers. `__init__.py` loads them on first use."""

from .agent.agent import Agent, AgentTool
from .agent.next_step import Budgets
from .audit.export import read_export, to_json, to_ndjson
from .audit.verify import ChainVerification, Checkpoint, ChainFlaw, verify
from .domain.call import Answer, Question, ToolIntent, WaitingCall
from .domain.chain import LogEntry
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
from .domain.event import Event
from .domain.messages import AssistantMessage, ProposedCall, ToolMessage, Usage, UserMessage
from .domain.observation import Observation, ToolExecutionRecord, ToolResult, tool_result
from .domain.outcome import ERROR_CODES, Failure, Phase, SideEffect
from .domain.payload import ApprovalBinding, BindingChange, FileOperand, ExecutionEnvironment
from .domain.rendering import render_for_model, render_for_user, render_untrusted_tool_message
from .domain.resources import Mask
from .domain.state.lifecycle import RunState
from .domain.state.verification import Verification
from .domain.tool import (
    Consent,
    ConsentBinding,
    ToolCatalog,
    Middleware,
    PermissionMode,
    NormalizedOutput,
    PostHook,
    PreHook,
    CheckProblem,
    SandboxScope,
    Risk,
    CallContext,
    ToolContext,
    ToolDefinition,
    ToolSpec,
)
from .history.actions import Action
from .history.run_handle_view import AgentRunEvent
from .history.run_view import RunEvent, to_run_events
from .interaction.callback import CallbackInteractionProvider
from .interaction.headless import HeadlessInteractionProvider
from .interaction.interface import InteractionProvider
from .interaction.terminal import TerminalInteractionProvider
from .local import LocalTools
from .models.anthropic.messages import AnthropicMessages
from .models.connection import Timeouts
from .models.interface import (
    ToolCallDelta,
    StreamFinished,
    ModelEvent,
    ModelProvider,
    ModelRequest,
    StreamRestarted,
    TextDelta,
)
from .models.openai.chat import OpenAIChat
from .models.recorder import ModelRecorder as ModelRecorder
from .models.retry import with_retries
from .models.scripted import ScriptedFault, ScriptedModel, ScriptedTurn, from_script, tool_call, to_script
from .models.usage import Prices
from .oauth.interface import ConsentProvider
from .pipeline.parts import Clock, Limits
from .policy.analysis.backtest import Backtest, backtest
from .policy.analysis.example_event import hypothetical
from .policy.analysis.explain import Explanation, explain, find_masks
from .policy.analysis.recorded import RecordedCall, read_recorded_calls
from .policy.analysis.suggest import RuleSuggestion, find_suggestions
from .policy.engine.rule import ArgumentGlob, ArgumentIs, ArgumentRegex, CommandPattern, ResourceDeclaration, Rule
from .policy.engine.rule_policy import RulePolicy
from .policy.files.places import PolicyFileError
from .policy.files.policy_files import PolicyFiles, check_file, load_policy
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
from .server.core.runs.agents import ServedAgent
from .storage.event_log import EventLog
from .storage.file_artifacts import FileArtifacts
from .storage.memory import MemoryLog
from .storage.memory_artifacts import MemoryArtifacts
from .storage.sqlite.log import SqliteLog
from .tools.skills.tools import skills

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
    "ArgumentGlob",
    "ArgumentIs",
    "ArgumentRegex",
    "ArtifactError",
    "AssistantMessage",
    "ChainVerification",
    "Backtest",
    "BatchResult",
    "ApprovalBinding",
    "Budgets",
    "ToolCallDelta",
    "CallbackInteractionProvider",
    "BindingChange",
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
    "Inbox",
    "DryRun",
    "DuplicateToolError",
    "LogEntry",
    "Event",
    "EventLog",
    "Explanation",
    "FailSafeConfig",
    "Failure",
    "ScriptedFault",
    "FileArtifacts",
    "FileOperand",
    "StreamFinished",
    "ChainFlaw",
    "HeadlessInteractionProvider",
    "InteractionProvider",
    "InterlockError",
    "Limits",
    "LocalTools",
    "LogCorruptError",
    "LogError",
    "LogFencedError",
    "LogWriteError",
    "Mask",
    "MemoryArtifacts",
    "MemoryLog",
    "ToolCatalog",
    "Middleware",
    "PermissionMode",
    "ModelError",
    "ModelEvent",
    "ModelProvider",
    "ModelRecorder",
    "ModelReplay",
    "ModelRequest",
    "NormalizedOutput",
    "Observation",
    "OpenAIChat",
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
    "CheckProblem",
    "ProposedCall",
    "Question",
    "SandboxScope",
    "RecordedCall",
    "Replay",
    "ResourceDeclaration",
    "StreamRestarted",
    "Risk",
    "Rule",
    "RulePolicy",
    "RunClaimedError",
    "RunEndedError",
    "RunEvent",
    "RunHandle",
    "RunPausedError",
    "RunState",
    "Runner",
    "SandboxDeniedError",
    "SandboxSetupError",
    "ScriptedModel",
    "ServedAgent",
    "SideEffect",
    "CallContext",
    "SqliteLog",
    "RuleSuggestion",
    "ExecutionEnvironment",
    "TerminalInteractionProvider",
    "TextDelta",
    "Timeouts",
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
    "ScriptedTurn",
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
    "explain",
    "export_test",
    "filter_tools",
    "fork",
    "from_script",
    "hypothetical",
    "load_policy",
    "find_masks",
    "prefix_tools",
    "tool_call",
    "read_export",
    "read_recorded_calls",
    "rename_tools",
    "render_for_model",
    "render_for_user",
    "render_untrusted_tool_message",
    "replay_model",
    "with_retries",
    "to_run_events",
    "skills",
    "find_suggestions",
    "to_json",
    "to_ndjson",
    "to_script",
    "tool",
    "tool_result",
    "verify",
]
