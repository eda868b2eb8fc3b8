"""What may be chosen beside the agent of a `Runner`, and whether it can be that."""

from collections.abc import Awaitable, Callable, Mapping
from os import PathLike
from typing import Any, TypedDict

from ..agent.agent import Agent, kind_of
from ..domain.errors import ConfigurationError
from ..domain.tool import Mode
from ..interaction.interface import InteractionProvider
from ..oauth.interface import Consents
from ..pipeline.parts import Clock, Limits, RuleChange
from ..storage.artifacts import Artifacts
from ..storage.event_log import EventLog

_DEFAULT_DEPTH, _MAX_DEPTH = 5, 9


class ForWhom(TypedDict, total=False):
    #: Who a run acts for.
    requester: str
    #: Who made it, where that is somebody else.
    created_by: str


class RunnerOptions(TypedDict, total=False):
    """What may be chosen beside the agent. Everything has a default; the meanings are those of `app.Options`."""

    #: Who is asked in this process. Default: nobody; the run waits, and whoever answers goes on with it.
    interaction: InteractionProvider
    log: EventLog
    artifacts: Artifacts
    consents: Consents
    secrets: Mapping[str, str]
    limits: Limits
    max_concurrency: int
    on_progress: Callable[[str, str], None]
    record_rule: Callable[[RuleChange], Awaitable[None]]
    clock: Clock
    mode: Mode | str
    workspace: str | PathLike[str]
    #: Who the runs act for.
    requester: str
    #: A person goes on talking when an answer is final: the run ends when they say so.
    chat: bool
    #: How deep agents may ask agents, which ask others. Default: 5.
    max_depth: int


#: What the runner itself needs; the rest is for the parts.
_ABOUT = frozenset({"mode", "workspace", "requester", "chat", "max_depth"})
#: A part, what it must be able to do, and what to give instead of something else.
_PARTS = (
    ("interaction", "ask", "CallbackInteractionProvider(function)"),
    ("log", "append", 'SqliteLog("runs.db")'),
    ("artifacts", "keep", 'FileArtifacts("artifacts")'),
)


def check_options(agent: object, given: Mapping[str, Any]) -> None:
    """`ConfigurationError`, in words, for what could only fail later."""
    if not isinstance(agent, Agent):
        raise ConfigurationError(f"A Runner is given an Agent, and this is {kind_of(agent)}: Runner(Agent(...)).")
    unknown = sorted(set(given) - set(RunnerOptions.__annotations__))
    if unknown:
        known = ", ".join(RunnerOptions.__annotations__)
        raise ConfigurationError(f"There is no option {', '.join(unknown)}. The options are {known}.")
    for name, method, instead in _PARTS:
        if given.get(name) is not None and not callable(getattr(given[name], method, None)):
            raise ConfigurationError(f"{name} is {kind_of(given[name])}. Give something like {instead}.")


def for_parts(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in _ABOUT}


def depth_in(given: Mapping[str, Any]) -> int:
    depth = given.get("max_depth", _DEFAULT_DEPTH)
    if type(depth) is not int or not 0 <= depth <= _MAX_DEPTH:
        raise ConfigurationError(f"max_depth is {depth!r:.40}, and has to be a number from 0 to {_MAX_DEPTH}.")
    return depth


def mode_in(given: Mapping[str, Any]) -> Mode:
    word = given.get("mode", Mode.DEFAULT)
    try:
        return Mode(word)
    except ValueError:
        raise ConfigurationError(f"There is no mode {word!r}. The modes are {', '.join(Mode)}.") from None
