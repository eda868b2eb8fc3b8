"""Interlock: the tool runtime for Python agents. A model proposes; Interlock decides, executes and remembers.

    from interlock import Agent, LocalTools, OpenAIChat, Runner

    agent = Agent(provider=OpenAIChat("gpt-5"), tools=LocalTools("project"))
    with Runner(agent, approve=lambda question: input(f"{question.prompt} [y/N] ") == "y") as runner:
        print(runner.run_sync("Find out why the tests fail, and fix it.").text)

`Runner` runs an `Agent`; `ToolRuntime` executes the tool calls of your own loop; `Gate` governs the tools of another
framework's agent. More names are in `interlock.audit`, `interlock.client`,
`interlock.errors`, `interlock.models`, `interlock.policy`, `interlock.replay` and `interlock.storage`.

Importing this package loads nothing else: a name is loaded when it is first used. Some need an extra, such as
`pip install 'interlock[openai]'`; without it they raise `ConfigurationError` when they are used.
"""

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import re

__version__ = "0.1.0"

#: A package that may be missing, and the extra that installs it.
_EXTRAS = {
    "anthropic": "anthropic",
    "cel": "policy",
    "httpx2": "openai",
    "jsonschema_rs": "gate",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "openai": "openai",
    "re2": "policy",
    "rich": "cli",
    "starlette": "server",
    "tree_sitter": "policy",
    "tree_sitter_bash": "policy",
    "yaml": "policy",
}


class _Package(ModuleType):
    """A package that loads its public names on first use."""

    _modules: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        module = self._modules.get(name)
        if module is None and self.__name__ == _ROOT and name in _PUBLIC_MODULES:
            return import_module(f"{_ROOT}.{name}")
        if module is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(f"{_ROOT}.{module}"), _RENAMED.get(name, name))
        except Exception as error:
            extra = _find_missing_extra(error, module)
            if extra is None:
                raise
            return _make_stand_in(name, extra)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing a submodule binds its name in the package. A public name that is spelt the same keeps its meaning:
        # `interlock.replay.dry_run` is the function.
        if not (isinstance(value, ModuleType) and name in self._modules):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*(name for name in self.__dict__ if name.startswith("__")), *self.__dict__["__all__"]})


class _LazyModule(ModuleType):
    """A stand-in for a module that is loaded when one of its names is first used."""

    def __init__(self, name: str, package: str | None) -> None:
        super().__init__(name)
        self.__package__ = package
        self._module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            self._module = import_module(self.__name__, self.__package__)
        return getattr(self._module, name)


def lazy_module(name: str, package: str | None = None) -> Any:
    """Return a stand-in for a module that few programs need. The module is loaded when one of its names is first used.

    Import it for the type checker and for import-linter as well, under `if TYPE_CHECKING`.

    Args:
        name: The module; with a leading dot, relative to `package`.
        package: `__package__` of the module that uses it.
    """
    return _LazyModule(name, package)


class _LazyPattern:
    """A stand-in for a regular expression that is compiled when one of its methods is first called."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            method = self.__dict__.get(name)  # this function is all that a caller kept
            if method is None:
                self.__dict__[name] = method = getattr(_re.compile(*self._given), name)
            return method(*args, **options)

        return call


def lazy_pattern(pattern: str, flags: int = 0) -> "re.Pattern[str]":
    """Return a regular expression that few programs need. It is compiled when one of its methods is first called."""
    return cast("re.Pattern[str]", _LazyPattern(pattern, flags))


def lazy_package(name: str, modules: Mapping[str, Iterable[str]], listed: Iterable[str] = ()) -> None:
    """Make a package load its public names on first use.

    Args:
        name: The package, as `__name__` of its `__init__.py`.
        modules: Names by the module that defines them, from the root package on.
        listed: The names for `__all__`. Default: all.
    """
    package = sys.modules[name]
    places = {public: module for module, names in modules.items() for public in names}
    package.__dict__["_modules"] = places
    package.__dict__["__all__"] = sorted(listed or places)
    package.__class__ = _Package


def _find_missing_extra(error: BaseException | None, module: str) -> str | None:
    """Return the extra that installs what could not be imported; None when that is not why it failed."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError):
            extra = _EXTRAS.get((error.name or "").partition(".")[0])
            return "client" if extra and module.startswith("client.") else extra
        error = error.__cause__
    return None


def _make_stand_in(name: str, extra: str) -> type:
    """Return a class of that name that says what to install when it is called."""
    advice = f"{name} needs an extra that is not installed: pip install 'interlock[{extra}]'"

    def refuse(kind: type, *args: object, **options: object) -> None:
        raise import_module(f"{_ROOT}.domain.errors").ConfigurationError(advice)

    return type(name, (), {"__doc__": advice + ".", "__module__": _ROOT, "__new__": refuse})


_ROOT = __name__
_re = lazy_module("re")
_PUBLIC_MODULES = ("audit", "client", "errors", "mcp", "models", "policy", "replay", "storage")
_RENAMED = {"PolicyDecision": "Decision"}

#: Those in `__all__`, and older flat names that now also have a place in a subpackage.
_NAMES = {
    "agent.agent": ("Agent", "AgentTool"),
    "agent.context": ("AttachmentLimits", "ContextPolicy"),
    "agent.next_step": ("Budgets",),
    "audit.export": ("read_export", "to_json", "to_ndjson"),
    "audit.verify": ("ChainFlaw", "ChainVerification", "Checkpoint", "verify"),
    "domain.attachments": ("Attachment",),
    "domain.call": ("Answer", "Question", "ToolIntent", "WaitingCall"),
    "domain.decision": ("Decision", "FailSafeConfig", "PolicyDecision", "Verdict"),
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
    "domain.event": ("Event", "LogEntry"),
    "domain.messages": ("AssistantMessage", "ProposedCall", "ToolMessage", "Usage", "UserMessage"),
    "domain.observation": ("Observation", "ToolExecutionRecord", "ToolResult", "tool_result"),
    "domain.outcome": ("ERROR_CODES", "Failure", "Phase", "SideEffect"),
    "domain.payload": ("ApprovalBinding", "BindingChange", "ExecutionEnvironment", "FileOperand"),
    "domain.rendering": ("render_for_model", "render_for_user", "render_untrusted_tool_message"),
    "domain.state.lifecycle": ("RunState",),
    "domain.state.verification": ("Verification",),
    "domain.tool": (
        "CallContext",
        "CheckProblem",
        "Consent",
        "ConsentBinding",
        "Diagnostics",
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
    "domain.trial": ("Trial", "TrialRunner", "TriedChange"),
    "gate.gate": ("AnsweredQuestion", "Gate", "Judged", "Settled"),
    "history.actions": ("Action",),
    "history.run_handle_view": ("AgentRunEvent",),
    "history.run_view": ("RunEvent", "to_run_events"),
    "interaction.interface": ("InteractionProvider",),
    "interaction.providers": ("CallbackInteractionProvider", "HeadlessInteractionProvider"),
    "interaction.terminal": ("TerminalInteractionProvider",),
    "local": ("LocalTools",),
    "models.anthropic_messages": ("AnthropicMessages",),
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
    "models.openai_chat": ("OpenAIChat",),
    "models.provider_factory": ("with_retries",),
    "models.scripted": (
        "ModelRecorder",
        "ScriptedFault",
        "ScriptedModel",
        "ScriptedTurn",
        "from_script",
        "to_script",
        "tool_call",
    ),
    "models.usage": ("Prices",),
    "oauth.interface": ("ConsentProvider",),
    "pipeline.parts": ("Clock", "Limits"),
    "policy.analysis.backtest": ("Backtest", "backtest"),
    "policy.analysis.explain": ("Explanation", "explain", "find_masks"),
    "policy.analysis.recorded_calls": ("RecordedCall", "read_recorded_calls"),
    "policy.analysis.suggestions": ("RuleSuggestion", "find_suggestions"),
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
    "policy.files.policy_files": ("PolicyFiles", "check_file", "load_policy"),
    "policy.files.problems": ("PolicyFileError",),
    "policy.interface": ("PolicyEngine", "PolicyEvent"),
    "registry.decorator": ("tool",),
    "registry.json_schema": ("tool_from_schema",),
    "registry.memory": ("ToolRegistry",),
    "registry.toolsets": ("filter_tools", "prefix_tools", "rename_tools"),
    "rendering.excerpt": ("apply_tool_output_limits",),
    "replay.dry_run": ("DryRun", "dry_run"),
    "replay.export_test": ("export_test",),
    "replay.model": ("ModelReplay", "replay_model"),
    "replay.trace": ("Replay",),
    "runs.attachments": ("attach",),
    "runs.fork": ("fork",),
    "runs.handle": ("RunHandle",),
    "runs.inbox": ("Inbox",),
    "runs.result": ("AgentResult",),
    "runs.runner": ("Runner",),
    "runtime": ("BatchResult", "ToolRuntime"),
    "sandbox.interface": ("CommandLimits", "CommandSandbox", "Confinement"),
    "server.core.runs.served_agent": ("ServedAgent",),
    "storage.event_log": ("EventLog",),
    "storage.file_artifacts": ("FileArtifacts",),
    "storage.memory": ("MemoryLog",),
    "storage.memory_artifacts": ("MemoryArtifacts",),
    "storage.sqlite.log": ("SqliteLog",),
    "tools.skills.skill_tools": ("skills",),
}

#: The names that programs use most, by subject.
_LISTED = (
    # Agents and runs
    "Agent",
    "AgentResult",
    "Attachment",
    "Budgets",
    "ContextPolicy",
    "Inbox",
    "RunHandle",
    "RunState",
    "Runner",
    # Your own loop, or another framework's
    "BatchResult",
    "Gate",
    "Observation",
    "ToolRuntime",
    # Tools
    "LocalTools",
    "PermissionMode",
    "ToolContext",
    "ToolDefinition",
    "skills",
    "tool",
    # Policy
    "PolicyDecision",
    "PolicyEngine",
    "Rule",
    "RulePolicy",
    "load_policy",
    # People
    "Answer",
    "CallbackInteractionProvider",
    "HeadlessInteractionProvider",
    "InteractionProvider",
    "Question",
    "TerminalInteractionProvider",
    # Limits and failures
    "FailSafeConfig",
    "InterlockError",
    "Limits",
    # Storage
    "FileArtifacts",
    "MemoryLog",
    "SqliteLog",
    # Models
    "AnthropicMessages",
    "OpenAIChat",
    "ScriptedModel",
    "tool_call",
)

lazy_package(__name__, _NAMES, _LISTED)
