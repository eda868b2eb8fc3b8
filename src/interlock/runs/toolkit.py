"""The tools of all agents that take part in a run, each restricted to the agents that have it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from ..agent.agent import Agent, AgentTool, find_agent_name, restrict_to_agents
from ..app import Tools
from ..domain.errors import ConfigurationError
from ..domain.tool import ToolDefinition
from ..registry.interface import Toolbox
from ..registry.memory import ToolRegistry
from ..tools.agents import AskAgent, agent_tool, handoff_tool


def build_toolkit(agents: Mapping[str, Agent], ask_of: Callable[[AgentTool], AskAgent]) -> Tools:
    """Collect the tools of all agents, each visible to its owners."""
    factory = _AgentToolFactory(agents, ask_of)
    if len(agents) == 1:
        [agent] = agents.values()
        return [*_declared_tools(agent, factory), *[box for box, _ in _find_dynamic_toolboxes(agents)]]
    owners: dict[str, tuple[ToolDefinition, set[str]]] = {}
    for name, agent in agents.items():
        for definition in ToolRegistry(_declared_tools(agent, factory)):
            known, names = owners.setdefault(definition.name, (definition, set()))
            if known.handler != definition.handler:
                raise ConfigurationError(f"Two agents of one run have different tools named {definition.name!r}.")
            names.add(name)
    all_names = set(agents)

    def restrict(tool: ToolDefinition, names: set[str]) -> ToolDefinition:
        return tool if names == all_names else restrict_to_agents(tool, frozenset(names))

    registry = ToolRegistry(restrict(tool, names) for tool, names in owners.values())
    for box, names in _find_dynamic_toolboxes(agents):
        registry.add_toolbox(box, partial(restrict, names=names))
    return registry


def _find_dynamic_toolboxes(agents: Mapping[str, Agent]) -> list[tuple[Toolbox, set[str]]]:
    """Return the toolboxes whose tools come and go, with the agents that have them."""
    found: dict[int, tuple[Toolbox, set[str]]] = {}
    for name, agent in agents.items():
        for item in agent.tools:
            if type(item) is not ToolDefinition and isinstance(item, Toolbox) and item.is_dynamic:
                found.setdefault(id(item), (item, set()))[1].add(name)
    return list(found.values())


class _AgentToolFactory:
    """Makes the tools that call other agents: one for each, shared by all agents that have it."""

    def __init__(self, agents: Mapping[str, Agent], ask_of: Callable[[AgentTool], AskAgent]) -> None:
        self._agents = agents
        self._ask_of = ask_of
        self._made: dict[tuple[object, ...], ToolDefinition] = {}

    def agent_tool_for(self, item: AgentTool) -> ToolDefinition:
        guards = item.input_guardrails, item.output_guardrails
        key = (item.name, item.description, id(item.agent), id(item.policy), guards)
        if key not in self._made:
            made = agent_tool(item.name, item.description, self._ask_of(item))
            self._made[key] = replace(made, input_guardrails=guards[0], output_guardrails=guards[1])
        return self._made[key]

    def handoff_tool_for(self, other: Agent) -> ToolDefinition:
        if (id(other),) not in self._made:
            self._made[id(other),] = handoff_tool(find_agent_name(self._agents, other), other.handoff_description)
        return self._made[id(other),]


def _declared_tools(agent: Agent, factory: _AgentToolFactory) -> list[ToolDefinition | Callable[..., Any]]:
    declared: list[ToolDefinition | Callable[..., Any]] = []
    for item in agent.tools:
        match item:
            case ToolDefinition():
                declared.append(item)
            case AgentTool():
                declared.append(factory.agent_tool_for(item))
            case Toolbox(is_dynamic=True):
                pass  # its tools are added where they come
            case Toolbox():
                declared += item
            case _:
                declared.append(item)
    declared += map(factory.handoff_tool_for, agent.handoffs)
    return declared
