"""The tools of all agents that take part in a run, each for the agents that have it."""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from ..agent.agent import Agent, AgentTool
from ..agent.team import name_in, only_for
from ..domain.errors import ConfigurationError
from ..domain.tool import ToolDefinition
from ..registry.interface import Toolbox
from ..registry.memory import ToolRegistry
from ..tools.agents import Ask, agent_tool, handoff_tool


def toolkit(agents: Mapping[str, Agent], ask_of: Callable[[AgentTool], Ask]) -> ToolRegistry:
    owners: dict[str, tuple[ToolDefinition, set[str]]] = {}
    bringing = _Bringing(agents, ask_of)
    for name, agent in agents.items():
        for definition in _tools_of(agent, bringing):
            known, names = owners.setdefault(definition.name, (definition, set()))
            if known.handler != definition.handler:
                raise ConfigurationError(f"Two agents of one run have different tools named {definition.name!r}.")
            names.add(name)
    everybody = set(agents)
    return ToolRegistry(
        tool if names == everybody else only_for(tool, frozenset(names)) for tool, names in owners.values()
    )


class _Bringing:
    """The tools that bring other agents in: one for each, whoever has it."""

    def __init__(self, agents: Mapping[str, Agent], ask_of: Callable[[AgentTool], Ask]) -> None:
        self._agents = dict(agents)
        self._ask_of = ask_of
        self._made: dict[tuple[object, ...], ToolDefinition] = {}

    def asking(self, item: AgentTool) -> ToolDefinition:
        guards = item.input_guardrails, item.output_guardrails
        key = (item.name, item.description, id(item.agent), id(item.policy), guards)
        if key not in self._made:
            made = agent_tool(item.name, item.description, self._ask_of(item))
            self._made[key] = replace(made, input_guardrails=guards[0], output_guardrails=guards[1])
        return self._made[key]

    def handing_to(self, other: Agent) -> ToolDefinition:
        if (id(other),) not in self._made:
            self._made[id(other),] = handoff_tool(name_in(self._agents, other), other.handoff_description)
        return self._made[id(other),]


def _tools_of(agent: Agent, bringing: _Bringing) -> Iterable[ToolDefinition]:
    declared = ToolRegistry()
    for item in agent.tools:
        match item:
            case AgentTool():
                declared.register(bringing.asking(item))
            case Toolbox():
                for definition in item:
                    declared.register(definition)
            case _:
                declared.register(item)
    for other in agent.handoffs:
        declared.register(bringing.handing_to(other))
    return declared
