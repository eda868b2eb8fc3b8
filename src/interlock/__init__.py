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
        "Audit",
        "Checkpoint",
        "Flaw",
        "verify",
    ),
    "domain.call": (
        "Answer",
        "Question",
        "ToolIntent",
        "Waiting",
    ),
    "domain.chain": ("Entry",),
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
    "domain.event": ("Event",),
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
        "CODES",
        "Failure",
        "Phase",
        "SideEffect",
    ),
    "domain.payload": (
        "Bound",
        "Change",
        "FileOperand",
        "Surroundings",
    ),
    "domain.rendering": (
        "render_for_model",
        "render_for_user",
        "render_untrusted_tool_message",
    ),
    "domain.resources": ("Mask",),
    "domain.state.lifecycle": ("RunState",),
    "domain.state.verification": ("Verification",),
    "domain.tool": (
        "Consent",
        "ConsentBinding",
        "Menu",
        "Middleware",
        "Mode",
        "Normalized",
        "PostHook",
        "PreHook",
        "Problem",
        "Reach",
        "Risk",
        "Situation",
        "ToolContext",
        "ToolDefinition",
        "ToolSpec",
    ),
    "history.actions": ("Action",),
    "history.run_handle_view": ("AgentRunEvent",),
    "history.run_view": (
        "RunEvent",
        "run_events",
    ),
    "interaction.callback": ("CallbackInteractionProvider",),
    "interaction.headless": ("HeadlessInteractionProvider",),
    "interaction.interface": ("InteractionProvider",),
    "interaction.terminal": ("TerminalInteractionProvider",),
    "local": ("LocalTools",),
    "models.anthropic.messages": ("AnthropicMessages",),
    "models.connection": ("Timeouts",),
    "models.interface": (
        "CallWritten",
        "Finished",
        "ModelEvent",
        "ModelProvider",
        "ModelRequest",
        "Restarted",
        "TextPiece",
    ),
    "models.openai.chat": ("OpenAIChat",),
    "models.retry": ("retrying",),
    "models.scripted": (
        "Fault",
        "ScriptedProvider",
        "Turn",
        "from_script",
        "proposed",
        "to_script",
    ),
    "models.usage": ("Prices",),
    "oauth.interface": ("Consents",),
    "pipeline.parts": (
        "Clock",
        "Limits",
    ),
    "policy.analysis.backtest": (
        "Backtest",
        "backtest",
    ),
    "policy.analysis.example_event": ("hypothetical",),
    "policy.analysis.explain": (
        "Explanation",
        "explain",
        "masks",
    ),
    "policy.analysis.recorded": (
        "RecordedCall",
        "recorded_calls",
    ),
    "policy.analysis.suggest": (
        "Suggestion",
        "suggest",
    ),
    "policy.engine.rule": (
        "ArgumentGlob",
        "ArgumentIs",
        "ArgumentRegex",
        "CommandPattern",
        "ResourceDeclaration",
        "Rule",
    ),
    "policy.engine.rule_policy": ("RulePolicy",),
    "policy.files.places": ("PolicyFileError",),
    "policy.files.policy_files": (
        "PolicyFiles",
        "check_file",
        "load_policy",
    ),
    "policy.interface": (
        "PolicyEngine",
        "PolicyEvent",
    ),
    "registry.decorator": ("tool",),
    "registry.memory": ("ToolRegistry",),
    "registry.toolsets": (
        "filtered",
        "prefixed",
        "renamed",
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
    "runs.inbox": ("Desk",),
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
    "server.core.runs.agents": ("ServedAgent",),
    "storage.event_log": ("EventLog",),
    "storage.file_artifacts": ("FileArtifacts",),
    "storage.memory": ("MemoryLog",),
    "storage.memory_artifacts": ("MemoryArtifacts",),
    "storage.sqlite.log": ("SqliteLog",),
    "tools.skills.tools": ("skills",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names} | {
    "ModelRecorder": "models.recorder",
    "PolicyDecision": "domain.decision",
}
_RENAMED = {"ModelRecorder": "Recorder", "PolicyDecision": "Decision"}


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
