"""What an agent is declared with, looked at before anything runs: a mistake is told where it was made, in words."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from ..domain.decision import FailSafeConfig
from ..domain.errors import ConfigurationError
from ..domain.ids import is_name
from ..domain.tool import ToolDefinition
from ..registry.interface import Toolbox
from .steps import Budgets

if TYPE_CHECKING:
    from .agent import Agent

_Fits = Callable[[Any], bool]


def _can(method: str) -> _Fits:
    """Is it an object that does this? A class that was not called does not."""
    return lambda value: not isinstance(value, type) and callable(getattr(value, method, None))


#: A field, what it may be, and what to write instead of something else.
_FIELDS: tuple[tuple[str, _Fits, str], ...] = (
    ("provider", _can("stream"), 'Give who has the model: OpenAIChat("gpt-5"), AnthropicMessages("..."), ...'),
    ("model", lambda value: isinstance(value, str), "Give the name of the model, as text."),
    (
        "instructions",
        lambda value: isinstance(value, str) or callable(value),
        "Give text, or a function of the Situation that returns text.",
    ),
    (
        "policy",
        lambda value: value is None or _can("evaluate")(value),
        'Give RulePolicy([Rule(...)]), or load_policy("policy.yaml").',
    ),
    ("fail_safe", lambda value: isinstance(value, FailSafeConfig), "Give FailSafeConfig(...)."),
    ("budgets", lambda value: isinstance(value, Budgets), "Give Budgets(max_steps=..., ...)."),
    ("tool_choice", lambda value: isinstance(value, str), 'Give "auto", "none", "required", or the name of a tool.'),
)


def check_fields(agent: "Agent") -> None:
    if not is_name(agent.name):
        raise ConfigurationError(f"{agent.name!r} cannot be the name of an agent.")
    for name, fits, instead in _FIELDS:
        value = getattr(agent, name)
        if not fits(value):
            raise _wrong(agent, name, value, instead)


def tools_of(agent: "Agent") -> Iterable[Any]:
    """As they were given. What can be gone through only once is kept, since it is asked for by every runner."""
    items = _kept(agent, "tools", agent.tools, "Give a list: tools=[...].")
    for item in items:
        if hasattr(item, "as_tool"):
            raise _wrong(agent, "tools", item, "Give agent.as_tool(), or make it one of the handoffs.", inside=True)
        if not (isinstance(item, ToolDefinition | Toolbox) or hasattr(item, "agent") or _is_function(item)):
            raise _wrong(agent, "tools", item, "Give functions, what @tool made of them, or LocalTools.", inside=True)
    return items


def handoffs_of(agent: "Agent") -> "Iterable[Agent]":
    instead = "Give a list of agents: handoffs=[other]."
    items = _kept(agent, "handoffs", agent.handoffs, instead)
    for item in items:
        if not isinstance(item, type(agent)):
            raise _wrong(agent, "handoffs", item, instead, inside=True)
    return items


def _kept(agent: "Agent", name: str, value: Any, instead: str) -> Iterable[Any]:
    if isinstance(value, str | bytes | type) or not isinstance(value, Iterable):
        raise _wrong(agent, name, value, instead)
    items = cast(Iterable[Any], value)
    return tuple(items) if isinstance(items, Iterator) else items


def _is_function(item: Any) -> bool:
    return callable(item) and not isinstance(item, type)


def kind_of(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


def _wrong(agent: "Agent", name: str, value: Any, instead: str, *, inside: bool = False) -> ConfigurationError:
    has = "has something" if inside else "is"
    return ConfigurationError(f"In the agent {agent.name!r}, {name} {has} {kind_of(value)}. {instead}")
