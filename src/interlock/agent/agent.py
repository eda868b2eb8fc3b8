"""The declaration of an agent: its name, model, tools, policy and budgets. Data only."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, cast

import msgspec

from ..domain.decision import FailSafeConfig
from ..domain.errors import ConfigurationError
from ..domain.ids import is_valid_name
from ..domain.tool import CallContext, Guardrail, ToolDefinition, Visibility
from ..models.interface import ModelProvider, ToolChoice
from ..policy.interface import PolicyEngine
from ..registry.interface import Toolbox
from .context import AttachmentLimits, ContextPolicy
from .next_step import Budgets

_FieldCheck = Callable[[Any], bool]


def has_method(method: str) -> _FieldCheck:
    """Return a check whether a value is an object with this method. A class that was not called is none."""
    return lambda value: not isinstance(value, type) and callable(getattr(value, method, None))


_can_evaluate = has_method("evaluate")


def _is_policy(value: Any) -> bool:
    return value is None or _can_evaluate(value)


def _is_instructions(value: Any) -> bool:
    return isinstance(value, str) or callable(value)


#: A field, what it may be, and what to write instead of something else.
_FIELDS: tuple[tuple[str, type | _FieldCheck, str], ...] = (
    ("provider", has_method("stream"), 'Give who has the model: OpenAIChat("gpt-5"), AnthropicMessages("..."), ...'),
    ("model", str, "Give the name of the model, as text."),
    (
        "instructions",
        _is_instructions,
        "Give text, or a function of the Situation that returns text.",
    ),
    (
        "policy",
        _is_policy,
        'Give RulePolicy([Rule(...)]), or load_policy("policy.yaml").',
    ),
    ("fail_safe", FailSafeConfig, "Give FailSafeConfig(...)."),
    ("budgets", Budgets, "Give Budgets(max_steps=..., ...)."),
    ("context", ContextPolicy, "Give ContextPolicy(window_tokens=...)."),
    ("attachments", AttachmentLimits, "Give AttachmentLimits(media_types=...)."),
    ("tool_choice", str, 'Give "auto", "none", "required", or the name of a tool.'),
)


def validate_agent(agent: "Agent") -> None:
    """Raise `ConfigurationError` if the name or a field of the agent is invalid."""
    if not is_valid_name(agent.name):
        raise ConfigurationError(f"{agent.name!r} cannot be the name of an agent.")
    for name, fits, instead in _FIELDS:
        value = getattr(agent, name)
        if not (isinstance(value, fits) if isinstance(fits, type) else fits(value)):
            raise _field_error(agent, name, value, instead)


def normalize_tools(agent: "Agent") -> Iterable[Any]:
    """Return the tools as given. An iterator is stored as a list, since every runner asks for it."""
    given = (agent.tools,) if isinstance(agent.tools, Toolbox) and agent.tools.is_dynamic else agent.tools
    items = _make_reiterable(agent, "tools", given, "Give a list: tools=[...].")
    for item in items:
        if type(item) is ToolDefinition:
            continue
        if hasattr(item, "as_tool"):
            raise _field_error(
                agent, "tools", item, "Give agent.as_tool(), or make it one of the handoffs.", inside=True
            )
        if not (isinstance(item, ToolDefinition | Toolbox) or hasattr(item, "agent") or _is_function(item)):
            raise _field_error(
                agent, "tools", item, "Give functions, what @tool made of them, or LocalTools.", inside=True
            )
    return items


def normalize_handoffs(agent: "Agent") -> "Iterable[Agent]":
    """Return the handoff targets as an iterable that can be read twice. Raise if one is not an agent."""
    instead = "Give a list of agents: handoffs=[other]."
    items = _make_reiterable(agent, "handoffs", agent.handoffs, instead)
    for item in items:
        if not isinstance(item, type(agent)):
            raise _field_error(agent, "handoffs", item, instead, inside=True)
    return items


def _make_reiterable(agent: "Agent", name: str, value: Any, instead: str) -> Iterable[Any]:
    if type(value) is tuple or type(value) is list:
        return cast(Iterable[Any], value)
    if isinstance(value, str | bytes | type) or not isinstance(value, Iterable):
        raise _field_error(agent, name, value, instead)
    items = cast(Iterable[Any], value)
    return tuple(items) if isinstance(items, Iterator) else items


def _is_function(item: Any) -> bool:
    return callable(item) and not isinstance(item, type)


def describe_type(value: object) -> str:
    """Describe the type of a rejected value for an error message."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


def _field_error(agent: "Agent", name: str, value: Any, instead: str, *, inside: bool = False) -> ConfigurationError:
    has = "has something" if inside else "is"
    return ConfigurationError(f"In the agent {agent.name!r}, {name} {has} {describe_type(value)}. {instead}")


Instructions: TypeAlias = str | Callable[[CallContext], str]


class Agent(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Declare an agent: the model, the tools, and the limits. A `Runner` runs it.

        Agent(provider=OpenAIChat("gpt-5"), instructions="Be brief.", tools=[search], policy=policy)

    Args:
        provider: The model: `OpenAIChat(...)`, `AnthropicMessages(...)`, `ScriptedModel([...])` or your own.
        model: The name of the model. Default: the provider's choice.
        name: The name of the agent, for rules, records and other agents.
        instructions: The system prompt, or a function of the `CallContext` that returns it.
        tools: Functions, definitions, toolboxes such as `LocalTools`, and other agents (`agent.as_tool()`).
        handoffs: Agents that the run may be handed to. They work under the same policy.
        handoff_description: What other agents read about this one.
        policy: Decides which calls may run. Default: no rules, so the declared risk of a tool decides.
        fail_safe: What failures do to the run.
        budgets: Limits of the run: steps, calls, time, tokens, cost.
        context: The window of the model, and what is left out of a long conversation.
        attachments: Which images and files the model is sent.
        tool_choice: `auto`, `none`, `required`, or the name of a tool.
        reset_tool_choice: Lift a forced tool choice once a tool was used.
        output_type: The type of the final answer, as pydantic knows it. Default: text.
        check_claims: Compare what the final answer claims about tests and checks with the recorded facts.
        max_output_tokens: Maximum length of one answer.
        temperature: Sampling temperature, where the provider takes one.
    """

    provider: ModelProvider
    #: As the provider names it; empty takes the provider's own choice.
    model: str = ""
    name: str = "agent"
    instructions: Instructions = ""
    #: Functions, definitions, toolboxes such as `LocalTools`, and other agents: see `as_tool`.
    tools: "Iterable[ToolDefinition | Callable[..., Any] | Toolbox | AgentTool] | Toolbox" = ()
    #: Agents that this one may hand the run to. They work under the same policy.
    handoffs: "Iterable[Agent]" = ()
    #: The description for other agents that may hand the run over.
    handoff_description: str = ""
    #: Default: no rules, so a tool's declared risk decides.
    policy: PolicyEngine | None = None
    fail_safe: FailSafeConfig = FailSafeConfig()
    budgets: Budgets = Budgets()
    context: ContextPolicy = ContextPolicy()
    attachments: AttachmentLimits = AttachmentLimits()
    tool_choice: ToolChoice = "auto"
    #: A choice that forces a tool is lifted once this agent has used one; else the model could never end.
    reset_tool_choice: bool = True
    #: What the final answer must be, as a type that pydantic knows; None is text.
    output_type: Any = None
    #: Whether claims about tests and checks in the final answer are compared with the facts.
    check_claims: bool = True
    max_output_tokens: int | None = None
    temperature: float | None = None

    def __post_init__(self) -> None:
        validate_agent(self)
        msgspec.structs.force_setattr(self, "tools", normalize_tools(self))
        msgspec.structs.force_setattr(self, "handoffs", normalize_handoffs(self))

    def as_tool(
        self,
        name: str = "",
        description: str = "",
        *,
        policy: PolicyEngine | None = None,
        input_guardrails: tuple[Guardrail, ...] = (),
        output_guardrails: tuple[Guardrail, ...] = (),
    ) -> "AgentTool":
        """Return this agent as a tool of another one.

        Every call is a child run with its own loop, approvals and state; approvals of the other agent do not cover it.
        """
        return AgentTool(
            agent=self,
            name=name or f"ask_{self.name}",
            description=description or f"Give a task to the agent {self.name}. It answers when it is done.",
            policy=policy,
            input_guardrails=input_guardrails,
            output_guardrails=output_guardrails,
        )


class AgentTool(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An agent as a tool of another agent."""

    agent: Agent
    name: str
    description: str
    #: Default: the agent's policy, else that of the parent run.
    policy: PolicyEngine | None = None
    #: Guardrails of its task and of its answer. Those of other tools do not cover it.
    input_guardrails: tuple[Guardrail, ...] = ()
    output_guardrails: tuple[Guardrail, ...] = ()


def collect_team(first: Agent) -> dict[str, Agent]:
    """Return all agents reachable by handoff or as tools, by name, in the order in which they are reached."""
    if not first.handoffs:
        return {first.name: first}
    known: dict[str, Agent] = {}
    waiting = deque([first])
    while waiting:
        agent = waiting.popleft()
        if known and any(agent is one for one in known.values()):
            continue
        if agent is not first and agent.policy is not None and agent.policy is not first.policy:
            raise ConfigurationError(
                f"The run is handed to {agent.name} under the policy of {first.name}. Give the policy to {first.name}."
            )
        known[_unique_name(agent.name, known)] = agent
        waiting.extend(agent.handoffs)
    return known


def find_agent_name(agents: Mapping[str, Agent], target: Agent) -> str:
    """Return the name under which an agent is registered."""
    return next(name for name, agent in agents.items() if agent is target)


def restrict_to_agents(tool: ToolDefinition, names: frozenset[str]) -> ToolDefinition:
    """Return the tool, for these agents."""
    return msgspec.structs.replace(tool, visible=_visible_to(names, tool.visible))


def _visible_to(names: frozenset[str], original: Visibility | None) -> Callable[[CallContext], bool | str]:
    def visible(situation: CallContext) -> bool | str:
        if situation.agent not in names:
            return f"This tool is not for the agent {situation.agent}."
        return True if original is None else original(situation)

    return visible


def _unique_name(name: str, known: dict[str, Any]) -> str:
    if name not in known:
        return name
    names: Iterator[str] = (f"{name}#{number}" for number in range(2, len(known) + 2))
    return next(free for free in names if free not in known)
