"""Interlock: the tool runtime for Python agents. A model proposes; Interlock decides, executes and remembers.

Importing this package loads nothing else: a public name is loaded when it is first used, so a program pays for what it
takes. `__init__.pyi` has the same names for type checkers; a test holds the two together.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_NAMES = {
    "agent.agent": (
        "Agent",
        "AgentTool",
    ),
    "agent.next_step": ("Budgets",),
    "audit.export": (
        "read_export",
        "to_json",
        "to_ndjson",
    ),
    "audit.verify": (
        "ChainFlaw",
        "ChainVerification",
        "Checkpoint",
        "verify",
    ),
    "domain.call": (
        "Answer",
        "Question",
        "ToolIntent",
        "WaitingCall",
    ),
    "domain.decision": (
        "Decision",
        "FailSafeConfig",
        "Verdict",
    ),
    "domain.errors": (
        "AgentExecutionError",
        "AnswerRefusedError",
        "ArtifactError",
        "ConfigurationError",
        "ConsentError",
        "DecisionConflictError",
        "DuplicateToolError",
        "InterlockError",
        "LogCorruptError",
        "LogError",
        "LogFencedError",
        "LogWriteError",
        "ModelError",
        "PreconditionError",
        "RunClaimedError",
        "RunEndedError",
        "RunPausedError",
        "SandboxDeniedError",
        "SandboxSetupError",
        "ToolDeclarationError",
        "ToolError",
        "ToolExecutionError",
        "ToolTimeoutError",
        "ToolValidationError",
        "UnknownToolError",
    ),
    "domain.event": (
        "Event",
        "LogEntry",
    ),
    "domain.messages": (
        "AssistantMessage",
        "ProposedCall",
        "ToolMessage",
        "Usage",
        "UserMessage",
    ),
    "domain.observation": (
        "Observation",
        "ToolExecutionRecord",
        "ToolResult",
        "tool_result",
    ),
    "domain.outcome": (
        "ERROR_CODES",
        "Failure",
        "Phase",
        "SideEffect",
    ),
    "domain.payload": (
        "ApprovalBinding",
        "BindingChange",
        "ExecutionEnvironment",
        "FileOperand",
    ),
    "domain.rendering": (
        "render_for_model",
        "render_for_user",
        "render_untrusted_tool_message",
    ),
    "domain.state.lifecycle": ("RunState",),
    "domain.state.verification": ("Verification",),
    "domain.tool": (
        "CallContext",
        "CheckProblem",
        "Consent",
        "ConsentBinding",
        "Mask",
        "Middleware",
        "NormalizedOutput",
        "PermissionMode",
        "PostHook",
        "PreHook",
        "Risk",
        "SandboxScope",
        "ToolCatalog",
        "ToolContext",
        "ToolDefinition",
        "ToolSpec",
    ),
    "history.actions": ("Action",),
    "history.run_handle_view": ("AgentRunEvent",),
    "history.run_view": (
        "RunEvent",
        "to_run_events",
    ),
    "interaction.interface": ("InteractionProvider",),
    "interaction.providers": (
        "CallbackInteractionProvider",
        "HeadlessInteractionProvider",
    ),
    "interaction.terminal": ("TerminalInteractionProvider",),
    "local": ("LocalTools",),
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
    "models.retry": ("with_retries",),
    "models.scripted": (
        "ScriptedFault",
        "ScriptedModel",
        "ScriptedTurn",
        "from_script",
        "to_script",
        "tool_call",
    ),
    "models.usage": ("Prices",),
    "oauth.interface": ("ConsentProvider",),
    "pipeline.parts": (
        "Clock",
        "Limits",
    ),
    "policy.analysis.backtest": (
        "Backtest",
        "backtest",
    ),
    "policy.analysis.explain": (
        "Explanation",
        "explain",
        "find_masks",
    ),
    "policy.analysis.recorded_calls": (
        "RecordedCall",
        "read_recorded_calls",
    ),
    "policy.analysis.suggestions": (
        "RuleSuggestion",
        "find_suggestions",
    ),
    "policy.engine.example_event": ("example_event",),
    "policy.engine.rule": (
        "ArgumentGlob",
        "ArgumentIs",
        "ArgumentRegex",
        "CommandPattern",
        "ResourceDeclaration",
        "Rule",
    ),
    "policy.engine.rule_policy": ("RulePolicy",),
    "policy.files.policy_files": (
        "PolicyFiles",
        "check_file",
        "load_policy",
    ),
    "policy.files.problems": ("PolicyFileError",),
    "policy.interface": (
        "PolicyEngine",
        "PolicyEvent",
    ),
    "registry.decorator": ("tool",),
    "registry.memory": ("ToolRegistry",),
    "registry.toolsets": (
        "filter_tools",
        "prefix_tools",
        "rename_tools",
    ),
    "rendering.excerpt": ("apply_tool_output_limits",),
    "replay.dry_run": (
        "DryRun",
        "dry_run",
    ),
    "replay.export_test": ("export_test",),
    "replay.model": (
        "ModelReplay",
        "replay_model",
    ),
    "replay.trace": ("Replay",),
    "runs.fork": ("fork",),
    "runs.handle": ("RunHandle",),
    "runs.inbox": ("Inbox",),
    "runs.result": ("AgentResult",),
    "runs.runner": ("Runner",),
    "runtime": (
        "BatchResult",
        "ToolRuntime",
    ),
    "sandbox.interface": (
        "CommandLimits",
        "CommandSandbox",
        "Confinement",
    ),
    "server.core.runs.served_agent": ("ServedAgent",),
    "storage.event_log": ("EventLog",),
    "storage.file_artifacts": ("FileArtifacts",),
    "storage.memory": ("MemoryLog",),
    "storage.memory_artifacts": ("MemoryArtifacts",),
    "storage.sqlite.log": ("SqliteLog",),
    "tools.skills.skill_tools": ("skills",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names} | {
    "ModelRecorder": "models.recorder",
    "PolicyDecision": "domain.decision",
}
_RENAMED = {"PolicyDecision": "Decision"}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'interlock' has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), _RENAMED.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])


__all__ = [*_MODULES]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll] - names from the table
