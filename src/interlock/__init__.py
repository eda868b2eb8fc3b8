"""Interlock: the tool runtime for Python agents. A model proposes; Interlock decides, executes and remembers.

Importing this package loads nothing else: a public name is loaded when it is first used, so a program pays for what it
takes. `__init__.pyi` has the same names for type checkers; a test holds the two together.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_NAMES = {
    "approvals.callback": ("CallbackInteractionProvider",),
    "approvals.headless": ("HeadlessInteractionProvider",),
    "approvals.terminal": ("TerminalInteractionProvider",),
    "approvals.interface": ("InteractionProvider",),
    "artifacts.files": ("FileArtifacts",),
    "artifacts.memory": ("MemoryArtifacts",),
    "domain.chain": ("Entry",),
    "domain.call": ("Answer", "Question", "ToolIntent", "Waiting"),
    "domain.decision": ("Decision", "Verdict"),
    "domain.effects": ("SideEffect",),
    "domain.envelope": ("render_for_model", "render_for_user", "render_untrusted_tool_message"),
    "domain.errors": (
        "AgentExecutionError",
        "AnswerRefusedError",
        "ArtifactError",
        "ConfigurationError",
        "DecisionConflictError",
        "DuplicateToolError",
        "InterlockError",
        "LogCorruptError",
        "LogError",
        "LogFencedError",
        "LogWriteError",
        "PreconditionError",
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
    "domain.excerpt": ("apply_tool_output_limits",),
    "domain.execution": ("ToolExecutionRecord", "ToolResult", "tool_result"),
    "domain.fail_safe": ("FailSafeConfig",),
    "domain.failure": ("CODES", "Failure"),
    "domain.lifecycle": ("RunState",),
    "domain.observation": ("Observation",),
    "domain.payload": ("Bound", "Change", "FileOperand", "Surroundings"),
    "domain.phase": ("Phase",),
    "domain.resources": ("Mask",),
    "domain.tool": (
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
    "history.export": ("read_export", "to_json", "to_ndjson"),
    "history.replay": ("Replay",),
    "history.run_handle_view": ("AgentRunEvent",),
    "history.run_view": ("RunEvent", "run_events"),
    "history.verify": ("Audit", "Checkpoint", "Flaw", "verify"),
    "local": ("LocalTools",),
    "log.interface": ("EventLog",),
    "log.memory": ("MemoryLog",),
    "log.sqlite": ("SqliteLog",),
    "pipeline.parts": ("Clock", "Limits"),
    "policy.backtest": ("Backtest", "backtest"),
    "policy.explain": ("Explanation", "explain", "masks"),
    "policy.files.policy_files": ("PolicyFiles", "check_file", "load_policy"),
    "policy.hypothetical": ("hypothetical",),
    "policy.interface": ("PolicyEngine", "PolicyEvent"),
    "policy.rule": ("ArgumentGlob", "ArgumentIs", "ArgumentRegex", "CommandPattern", "ResourceDeclaration", "Rule"),
    "policy.rules": ("RulePolicy",),
    "policy.recorded": ("RecordedCall", "recorded_calls"),
    "policy.files.places": ("PolicyFileError",),
    "policy.suggest": ("Suggestion", "suggest"),
    "registry.decorator": ("tool",),
    "registry.memory": ("ToolRegistry",),
    "registry.toolsets": ("filtered", "prefixed", "renamed"),
    "runtime": ("BatchResult", "ToolRuntime"),
    "sandbox.interface": ("CommandLimits", "CommandSandbox", "Confinement"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names} | {"PolicyDecision": "domain.decision"}
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
