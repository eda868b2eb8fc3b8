"""Check the options of `ToolRuntime`, `Runner` and `App` when they are constructed."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from os import PathLike
from typing import Any, ParamSpec

from .agent.agent import Agent, describe_type, has_method
from .domain.decision import FailSafeConfig
from .domain.errors import ConfigurationError
from .domain.tool import PermissionMode, ToolDefinition
from .pipeline.parts import Clock, Limits
from .registry.interface import Toolbox
from .rendering.text import describe_unknown

_P = ParamSpec("_P")

DEFAULT_DEPTH, MAX_DEPTH = 5, 9


def _is_a(*types: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types)


#: An option, what it may be, and an example of it for the error message.
_EXPECTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "agent": (_is_a(str), '"support", a name'),
    "approve": (lambda value: callable(value) and not isinstance(value, type), "a function of the Question"),
    "artifacts": (has_method("keep"), 'FileArtifacts("artifacts")'),
    "clock": (_is_a(Clock), "Clock(now=...)"),
    "consents": (has_method("token"), "an object with `can_ask` and `token`"),
    "fail_safe": (_is_a(FailSafeConfig), "FailSafeConfig(...)"),
    "interaction": (has_method("ask"), "CallbackInteractionProvider(function)"),
    "limits": (_is_a(Limits), "Limits(approval_seconds=3600)"),
    "log": (has_method("append"), 'SqliteLog("runs.db")'),
    "on_output": (callable, "a function of the RunOutput"),
    "on_progress": (callable, "a function of call id and message"),
    "policy": (has_method("evaluate"), 'RulePolicy([Rule(...)]) or load_policy("policy.yaml")'),
    "record_rule": (callable, "an async function of the RuleChange"),
    "redactor": (has_method("redact"), "an object with the methods of `Redactor`"),
    "requester": (_is_a(str), '"user:ana", a name'),
    "run_id": (_is_a(str), '"run-45", a name'),
    "sandbox": (has_method("start"), "an object with the methods of `Sandbox`"),
    "scheduler": (has_method("enqueue"), "LocalScheduler(8)"),
    "secrets": (_is_a(Mapping), '{"API_KEY": "..."}'),
    "task_phase": (_is_a(str), '"plan", a name'),
    "telemetry": (has_method("agent_span"), "OtelTelemetry()"),
    "tools": (lambda value: isinstance(value, Iterable) and not isinstance(value, str | bytes | type), "[search]"),
    "workspace": (_is_a(str, PathLike), '"project", a folder'),
}


def checked_options(init: Callable[_P, None]) -> Callable[_P, None]:
    """Raise `ConfigurationError` for a keyword that the constructor does not have, with the one that was meant, and for
    an option of the wrong type.
    """
    parameters = signature(init).parameters
    names = tuple(parameters)[1:]
    checks = {
        name: fits
        for name, (fits, _) in _EXPECTED.items()
        if name in names and parameters[name].kind is Parameter.KEYWORD_ONLY
    }

    @wraps(init)
    def checked(*args: _P.args, **options: _P.kwargs) -> None:
        for name, value in options.items():
            fits = checks.get(name)
            if fits is None:
                if name not in names:
                    raise ConfigurationError(describe_unknown("option", name, names))
            elif value is not None and not fits(value):  # None is the default of each
                example = _EXPECTED[name][1]
                raise ConfigurationError(f"{name} is {describe_type(value)}. Give something like {example}.")
        init(*args, **options)

    return checked


def check_agent(value: object) -> None:
    """Raise `ConfigurationError` when a Runner is given something else than an agent."""
    if not isinstance(value, Agent):
        raise ConfigurationError(f"A Runner is given an Agent, and this is {describe_type(value)}: Runner(Agent(...)).")


def check_tool(item: object) -> None:
    """Raise `ConfigurationError` for an item of `tools` that is no tool."""
    if isinstance(item, type) or not (callable(item) or isinstance(item, Toolbox | ToolDefinition)):
        raise ConfigurationError(
            f"tools has something {describe_type(item)}. Give functions, what @tool made of them, or LocalTools."
        )


def check_alternatives(first: str, first_value: object, second: str, second_value: object) -> None:
    """Raise `ConfigurationError` when two options were given of which one replaces the other."""
    if first_value is not None and second_value is not None:
        raise ConfigurationError(f"Give {first}= or {second}=, not both: {first} replaces what {second} sets up.")


def check_max_concurrency(value: object) -> None:
    """Raise `ConfigurationError` if a concurrency limit is not a positive integer."""
    if type(value) is not int or value < 1:
        raise ConfigurationError(f"max_concurrency is {value!r:.40}, and has to be a number from 1 on.")


def check_max_depth(value: object) -> None:
    """Raise `ConfigurationError` if a depth limit is out of range."""
    if type(value) is not int or not 0 <= value <= MAX_DEPTH:
        raise ConfigurationError(f"max_depth is {value!r:.40}, and has to be a number from 0 to {MAX_DEPTH}.")


def parse_mode(word: PermissionMode | str) -> PermissionMode:
    """Return the permission mode of that name."""
    if type(word) is PermissionMode:
        return word
    try:
        return PermissionMode(word)
    except ValueError:
        raise ConfigurationError(describe_unknown("mode", word, PermissionMode)) from None
