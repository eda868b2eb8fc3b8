"""The public names, for type checkers and readers. `__init__.py` loads them on first use."""

from .agent.agent import Agent, AgentTool
from .agent.next_step import Budgets
from .audit.export import read_export, to_json, to_ndjson
from .audit.verify import Audit, Checkpoint, Flaw, verify
from .domain.call import Answer, Question, ToolIntent, Waiting
from .domain.chain import Entry
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
from .domain.outcome import CODES, Failure, Phase, SideEffect
from .domain.payload import Bound, Change, FileOperand, Surroundings
from .domain.rendering import render_for_model, render_for_user, render_untrusted_tool_message
from .domain.resources import Mask
from .domain.state.lifecycle import RunState
from .domain.state.verification import Verification
from .domain.tool import (
    Consent,
    ConsentBinding,
    Menu,
    Middleware,
    Mode,
    Normalized,
    PostHook,
    PreHook,
    Problem,
    Reach,
    Risk,
    Situation,
    ToolContext,
    ToolDefinition,
    ToolSpec,
)
from .history.actions import Action
from .history.run_handle_view import AgentRunEvent
from .history.run_view import RunEvent, run_events
from .interaction.callback import CallbackInteractionProvider
from .interaction.headless import HeadlessInteractionProvider
from .interaction.interface import InteractionProvider
from .interaction.terminal import TerminalInteractionProvider
from .local import LocalTools
from .models.anthropic.messages import AnthropicMessages
from .models.connection import Timeouts
from .models.interface import CallWritten, Finished, ModelEvent, ModelProvider, ModelRequest, Restarted, TextPiece
from .models.openai.chat import OpenAIChat
from .models.recorder import Recorder as ModelRecorder
from .models.retry import retrying
from .models.scripted import Fault, ScriptedProvider, Turn, from_script, proposed, to_script
from .models.usage import Prices
from .oauth.interface import Consents
from .pipeline.parts import Clock, Limits
from .policy.analysis.backtest import Backtest, backtest
from .policy.analysis.example_event import hypothetical
from .policy.analysis.explain import Explanation, explain, masks
from .policy.analysis.recorded import RecordedCall, recorded_calls
from .policy.analysis.suggest import Suggestion, suggest
from .policy.engine.rule import ArgumentGlob, ArgumentIs, ArgumentRegex, CommandPattern, ResourceDeclaration, Rule
from .policy.engine.rule_policy import RulePolicy
from .policy.files.places import PolicyFileError
from .policy.files.policy_files import PolicyFiles, check_file, load_policy
from .policy.interface import PolicyEngine, PolicyEvent
from .registry.decorator import tool
from .registry.memory import ToolRegistry
from .registry.toolsets import filtered, prefixed, renamed
from .rendering.excerpt import apply_tool_output_limits
from .replay.dry_run import DryRun, dry_run
from .replay.export_test import export_test
from .replay.model import ModelReplay, replay_model
from .replay.trace import Replay
from .runs.fork import fork
from .runs.handle import RunHandle
from .runs.inbox import Desk
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
    "CODES",
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
    "Audit",
    "Backtest",
    "BatchResult",
    "Bound",
    "Budgets",
    "CallWritten",
    "CallbackInteractionProvider",
    "Change",
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
    "Consents",
    "Decision",
    "DecisionConflictError",
    "Desk",
    "DryRun",
    "DuplicateToolError",
    "Entry",
    "Event",
    "EventLog",
    "Explanation",
    "FailSafeConfig",
    "Failure",
    "Fault",
    "FileArtifacts",
    "FileOperand",
    "Finished",
    "Flaw",
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
    "Menu",
    "Middleware",
    "Mode",
    "ModelError",
    "ModelEvent",
    "ModelProvider",
    "ModelRecorder",
    "ModelReplay",
    "ModelRequest",
    "Normalized",
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
    "Problem",
    "ProposedCall",
    "Question",
    "Reach",
    "RecordedCall",
    "Replay",
    "ResourceDeclaration",
    "Restarted",
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
    "ScriptedProvider",
    "ServedAgent",
    "SideEffect",
    "Situation",
    "SqliteLog",
    "Suggestion",
    "Surroundings",
    "TerminalInteractionProvider",
    "TextPiece",
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
    "Turn",
    "UnknownToolError",
    "Usage",
    "UserMessage",
    "Verdict",
    "Verification",
    "Waiting",
    "apply_tool_output_limits",
    "backtest",
    "check_file",
    "dry_run",
    "explain",
    "export_test",
    "filtered",
    "fork",
    "from_script",
    "hypothetical",
    "load_policy",
    "masks",
    "prefixed",
    "proposed",
    "read_export",
    "recorded_calls",
    "renamed",
    "render_for_model",
    "render_for_user",
    "render_untrusted_tool_message",
    "replay_model",
    "retrying",
    "run_events",
    "skills",
    "suggest",
    "to_json",
    "to_ndjson",
    "to_script",
    "tool",
    "tool_result",
    "verify",
]
