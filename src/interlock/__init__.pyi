"""The public names, for type checkers and readers. `__init__.py` loads them on first use."""

from collections.abc import Iterable, Mapping
from re import Pattern
from typing import Any

from . import audit as audit
from . import client as client
from . import errors as errors
from . import models as models
from . import policy as policy
from . import replay as replay
from . import storage as storage
from .agent.agent import Agent
from .agent.agent import AgentTool as AgentTool
from .agent.context import AttachmentLimits as AttachmentLimits
from .agent.context import ContextPolicy
from .agent.next_step import Budgets
from .audit.export import read_export as read_export
from .audit.export import to_json as to_json
from .audit.export import to_ndjson as to_ndjson
from .audit.verify import (
    ChainFlaw as ChainFlaw,
)
from .audit.verify import (
    ChainVerification as ChainVerification,
)
from .audit.verify import (
    Checkpoint as Checkpoint,
)
from .audit.verify import (
    verify as verify,
)
from .domain.attachments import Attachment
from .domain.call import Answer, Question
from .domain.call import ToolIntent as ToolIntent
from .domain.call import WaitingCall as WaitingCall
from .domain.decision import Decision as Decision
from .domain.decision import Decision as PolicyDecision
from .domain.decision import FailSafeConfig
from .domain.decision import Verdict as Verdict
from .domain.errors import (
    AgentExecutionError as AgentExecutionError,
)
from .domain.errors import (
    AnswerRefusedError as AnswerRefusedError,
)
from .domain.errors import (
    ArtifactError as ArtifactError,
)
from .domain.errors import (
    ConfigurationError as ConfigurationError,
)
from .domain.errors import (
    ConsentError as ConsentError,
)
from .domain.errors import (
    DecisionConflictError as DecisionConflictError,
)
from .domain.errors import (
    DuplicateToolError as DuplicateToolError,
)
from .domain.errors import (
    InterlockError,
)
from .domain.errors import (
    LogCorruptError as LogCorruptError,
)
from .domain.errors import (
    LogError as LogError,
)
from .domain.errors import (
    LogFencedError as LogFencedError,
)
from .domain.errors import (
    LogWriteError as LogWriteError,
)
from .domain.errors import (
    ModelError as ModelError,
)
from .domain.errors import (
    PreconditionError as PreconditionError,
)
from .domain.errors import (
    RunClaimedError as RunClaimedError,
)
from .domain.errors import (
    RunEndedError as RunEndedError,
)
from .domain.errors import (
    RunPausedError as RunPausedError,
)
from .domain.errors import (
    SandboxDeniedError as SandboxDeniedError,
)
from .domain.errors import (
    SandboxSetupError as SandboxSetupError,
)
from .domain.errors import (
    ToolDeclarationError as ToolDeclarationError,
)
from .domain.errors import (
    ToolError as ToolError,
)
from .domain.errors import (
    ToolExecutionError as ToolExecutionError,
)
from .domain.errors import (
    ToolTimeoutError as ToolTimeoutError,
)
from .domain.errors import (
    ToolValidationError as ToolValidationError,
)
from .domain.errors import (
    UnknownToolError as UnknownToolError,
)
from .domain.event import Event as Event
from .domain.event import LogEntry as LogEntry
from .domain.messages import (
    AssistantMessage as AssistantMessage,
)
from .domain.messages import (
    ProposedCall as ProposedCall,
)
from .domain.messages import (
    ToolMessage as ToolMessage,
)
from .domain.messages import (
    Usage as Usage,
)
from .domain.messages import (
    UserMessage as UserMessage,
)
from .domain.observation import (
    Observation,
)
from .domain.observation import (
    ToolExecutionRecord as ToolExecutionRecord,
)
from .domain.observation import (
    ToolResult as ToolResult,
)
from .domain.observation import (
    tool_result as tool_result,
)
from .domain.outcome import ERROR_CODES as ERROR_CODES
from .domain.outcome import Failure as Failure
from .domain.outcome import Phase as Phase
from .domain.outcome import SideEffect as SideEffect
from .domain.payload import (
    ApprovalBinding as ApprovalBinding,
)
from .domain.payload import (
    BindingChange as BindingChange,
)
from .domain.payload import (
    ExecutionEnvironment as ExecutionEnvironment,
)
from .domain.payload import (
    FileOperand as FileOperand,
)
from .domain.rendering import (
    render_for_model as render_for_model,
)
from .domain.rendering import (
    render_for_user as render_for_user,
)
from .domain.rendering import (
    render_untrusted_tool_message as render_untrusted_tool_message,
)
from .domain.state.lifecycle import RunState
from .domain.state.verification import Verification as Verification
from .domain.tool import (
    CallContext as CallContext,
)
from .domain.tool import (
    CheckProblem as CheckProblem,
)
from .domain.tool import (
    Consent as Consent,
)
from .domain.tool import (
    ConsentBinding as ConsentBinding,
)
from .domain.tool import (
    Diagnostics as Diagnostics,
)
from .domain.tool import (
    Mask as Mask,
)
from .domain.tool import (
    Middleware as Middleware,
)
from .domain.tool import (
    NormalizedOutput as NormalizedOutput,
)
from .domain.tool import (
    PermissionMode,
    ToolContext,
    ToolDefinition,
)
from .domain.tool import (
    PostHook as PostHook,
)
from .domain.tool import (
    PreHook as PreHook,
)
from .domain.tool import (
    Risk as Risk,
)
from .domain.tool import (
    SandboxScope as SandboxScope,
)
from .domain.tool import (
    ToolCatalog as ToolCatalog,
)
from .domain.tool import (
    ToolSpec as ToolSpec,
)
from .domain.trial import (
    Trial as Trial,
)
from .domain.trial import (
    TrialRunner as TrialRunner,
)
from .domain.trial import (
    TriedChange as TriedChange,
)
from .gate.gate import AnsweredQuestion as AnsweredQuestion
from .gate.gate import Gate
from .gate.gate import Judged as Judged
from .gate.gate import Settled as Settled
from .history.actions import Action as Action
from .history.run_handle_view import AgentRunEvent as AgentRunEvent
from .history.run_view import RunEvent as RunEvent
from .history.run_view import to_run_events as to_run_events
from .interaction.interface import InteractionProvider
from .interaction.providers import CallbackInteractionProvider, HeadlessInteractionProvider
from .interaction.terminal import TerminalInteractionProvider
from .local import LocalTools
from .models.anthropic_messages import AnthropicMessages
from .models.connection import Timeouts as Timeouts
from .models.interface import (
    ModelEvent as ModelEvent,
)
from .models.interface import (
    ModelProvider as ModelProvider,
)
from .models.interface import (
    ModelRequest as ModelRequest,
)
from .models.interface import (
    StreamFinished as StreamFinished,
)
from .models.interface import (
    StreamRestarted as StreamRestarted,
)
from .models.interface import (
    TextDelta as TextDelta,
)
from .models.interface import (
    ToolCallDelta as ToolCallDelta,
)
from .models.openai_chat import OpenAIChat
from .models.provider_factory import with_retries as with_retries
from .models.scripted import (
    ModelRecorder as ModelRecorder,
)
from .models.scripted import (
    ScriptedFault as ScriptedFault,
)
from .models.scripted import (
    ScriptedModel,
    tool_call,
)
from .models.scripted import (
    ScriptedTurn as ScriptedTurn,
)
from .models.scripted import (
    from_script as from_script,
)
from .models.scripted import (
    to_script as to_script,
)
from .models.usage import Prices as Prices
from .oauth.interface import ConsentProvider as ConsentProvider
from .pipeline.parts import Clock as Clock
from .pipeline.parts import Limits
from .policy.analysis.backtest import Backtest as Backtest
from .policy.analysis.backtest import backtest as backtest
from .policy.analysis.explain import Explanation as Explanation
from .policy.analysis.explain import explain as explain
from .policy.analysis.explain import find_masks as find_masks
from .policy.analysis.recorded_calls import RecordedCall as RecordedCall
from .policy.analysis.recorded_calls import read_recorded_calls as read_recorded_calls
from .policy.analysis.suggestions import RuleSuggestion as RuleSuggestion
from .policy.analysis.suggestions import find_suggestions as find_suggestions
from .policy.engine.example_event import example_event as example_event
from .policy.engine.rule import (
    ArgumentGlob as ArgumentGlob,
)
from .policy.engine.rule import (
    ArgumentIs as ArgumentIs,
)
from .policy.engine.rule import (
    ArgumentRegex as ArgumentRegex,
)
from .policy.engine.rule import (
    CommandPattern as CommandPattern,
)
from .policy.engine.rule import (
    ResourceDeclaration as ResourceDeclaration,
)
from .policy.engine.rule import (
    Rule,
)
from .policy.engine.rule_policy import RulePolicy
from .policy.files.policy_files import PolicyFiles as PolicyFiles
from .policy.files.policy_files import check_file as check_file
from .policy.files.policy_files import load_policy
from .policy.files.problems import PolicyFileError as PolicyFileError
from .policy.interface import PolicyEngine
from .policy.interface import PolicyEvent as PolicyEvent
from .registry.decorator import tool
from .registry.json_schema import tool_from_schema as tool_from_schema
from .registry.memory import ToolRegistry as ToolRegistry
from .registry.toolsets import filter_tools as filter_tools
from .registry.toolsets import prefix_tools as prefix_tools
from .registry.toolsets import rename_tools as rename_tools
from .rendering.excerpt import apply_tool_output_limits as apply_tool_output_limits
from .replay.dry_run import DryRun as DryRun
from .replay.dry_run import dry_run as dry_run
from .replay.export_test import export_test as export_test
from .replay.model import ModelReplay as ModelReplay
from .replay.model import replay_model as replay_model
from .replay.trace import Replay as Replay
from .runs.attachments import attach as attach
from .runs.fork import fork as fork
from .runs.handle import RunHandle
from .runs.inbox import Inbox
from .runs.result import AgentResult
from .runs.runner import Runner
from .runtime import BatchResult, ToolRuntime
from .sandbox.interface import (
    CommandLimits as CommandLimits,
)
from .sandbox.interface import (
    CommandSandbox as CommandSandbox,
)
from .sandbox.interface import (
    Confinement as Confinement,
)
from .server.core.runs.served_agent import ServedAgent as ServedAgent
from .storage.event_log import EventLog as EventLog
from .storage.file_artifacts import FileArtifacts
from .storage.memory import MemoryLog
from .storage.memory_artifacts import MemoryArtifacts as MemoryArtifacts
from .storage.sqlite.log import SqliteLog
from .tools.skills.skill_tools import skills

__version__: str

def lazy_module(name: str, package: str | None = None) -> Any: ...
def lazy_pattern(pattern: str, flags: int = 0) -> Pattern[str]: ...
def lazy_package(name: str, modules: Mapping[str, Iterable[str]], listed: Iterable[str] = ()) -> None: ...

__all__ = [
    "Agent",
    "AgentResult",
    "Answer",
    "AnthropicMessages",
    "Attachment",
    "BatchResult",
    "Budgets",
    "CallbackInteractionProvider",
    "ContextPolicy",
    "FailSafeConfig",
    "FileArtifacts",
    "Gate",
    "HeadlessInteractionProvider",
    "Inbox",
    "InteractionProvider",
    "InterlockError",
    "Limits",
    "LocalTools",
    "MemoryLog",
    "Observation",
    "OpenAIChat",
    "PermissionMode",
    "PolicyDecision",
    "PolicyEngine",
    "Question",
    "Rule",
    "RulePolicy",
    "RunHandle",
    "RunState",
    "Runner",
    "ScriptedModel",
    "SqliteLog",
    "TerminalInteractionProvider",
    "ToolContext",
    "ToolDefinition",
    "ToolRuntime",
    "load_policy",
    "skills",
    "tool",
    "tool_call",
]
