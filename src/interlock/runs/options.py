"""Options of a `Runner` beside the agent, and their validation."""

from collections.abc import Awaitable, Callable, Mapping
from os import PathLike
from typing import Any, TypedDict

from ..agent.agent import Agent, describe_type
from ..domain.errors import ConfigurationError
from ..domain.tool import PermissionMode
from ..interaction.interface import InteractionProvider
from ..oauth.interface import ConsentProvider
from ..pipeline.parts import Clock, Limits, RuleChange
from ..storage.artifacts import ArtifactStore
from ..storage.event_log import EventLog

_DEFAULT_DEPTH, _MAX_DEPTH = 5, 9


class RunIdentity(TypedDict, total=False):
    """Who a run acts for, and who created it."""

    #: The user that a run acts for.
    requester: str
    #: Who created it, where that is not the requester.
    created_by: str


class RunnerOptions(TypedDict, total=False):
    """Options beside the agent. Everything has a default; the meanings are those of `app.Options`."""

    #: The interaction provider of this process. Default: none; the run waits, and the process that answers resumes it.
    interaction: InteractionProvider
    log: EventLog
    artifacts: ArtifactStore
    consents: ConsentProvider
    secrets: Mapping[str, str]
    limits: Limits
    max_concurrency: int
    on_progress: Callable[[str, str], None]
    record_rule: Callable[[RuleChange], Awaitable[None]]
    clock: Clock
    mode: PermissionMode | str
    workspace: str | PathLike[str]
    #: The user that the runs act for.
    requester: str
    #: Conversational: the user may reply to a final answer, and ends the run.
    chat: bool
    #: Maximum depth of nested agents. Default: 5.
    max_depth: int


#: What the runner itself needs; the rest is for the parts.
_RUNNER_OPTIONS = frozenset({"mode", "workspace", "requester", "chat", "max_depth"})
#: A part, what it must be able to do, and what to give instead of something else.
_REQUIRED_METHODS = (
    ("interaction", "ask", "CallbackInteractionProvider(function)"),
    ("log", "append", 'SqliteLog("runs.db")'),
    ("artifacts", "keep", 'FileArtifacts("artifacts")'),
)


def check_options(agent: object, given: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` for options that could only fail later."""
    if not isinstance(agent, Agent):
        raise ConfigurationError(f"A Runner is given an Agent, and this is {describe_type(agent)}: Runner(Agent(...)).")
    unknown = sorted(set(given) - set(RunnerOptions.__annotations__))
    if unknown:
        known = ", ".join(RunnerOptions.__annotations__)
        raise ConfigurationError(f"There is no option {', '.join(unknown)}. The options are {known}.")
    for name, method, instead in _REQUIRED_METHODS:
        if given.get(name) is not None and not callable(getattr(given[name], method, None)):
            raise ConfigurationError(f"{name} is {describe_type(given[name])}. Give something like {instead}.")


def select_app_options(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in _RUNNER_OPTIONS}


def read_max_depth(given: Mapping[str, Any]) -> int:
    depth = given.get("max_depth", _DEFAULT_DEPTH)
    if type(depth) is not int or not 0 <= depth <= _MAX_DEPTH:
        raise ConfigurationError(f"max_depth is {depth!r:.40}, and has to be a number from 0 to {_MAX_DEPTH}.")
    return depth


def read_mode(given: Mapping[str, Any]) -> PermissionMode:
    word = given.get("mode", PermissionMode.DEFAULT)
    try:
        return PermissionMode(word)
    except ValueError:
        raise ConfigurationError(f"There is no mode {word!r}. The modes are {', '.join(PermissionMode)}.") from None
