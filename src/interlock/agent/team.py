"""The agents that may take part in one run: the first one, and those it can be handed to, by the names that they have
in the log. Two agents of one name are told apart by their place, which is the same in every process."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ..domain.errors import ConfigurationError
from ..domain.tool import CallContext, ToolDefinition, Visibility
from .agent import Agent


def collect_team(first: Agent) -> dict[str, Agent]:
    """In the order in which they are reached."""
    known: dict[str, Agent] = {}
    waiting = deque([first])
    while waiting:
        agent = waiting.popleft()
        if any(agent is one for one in known.values()):
            continue
        if agent is not first and agent.policy is not None and agent.policy is not first.policy:
            raise ConfigurationError(
                f"The run is handed to {agent.name} under the policy of {first.name}. Give the policy to {first.name}."
            )
        known[_unique_name(agent.name, known)] = agent
        waiting.extend(agent.handoffs)
    return known


def find_agent_name(agents: dict[str, Agent], target: Agent) -> str:
    return next(name for name, agent in agents.items() if agent is target)


def restrict_to_agents(tool: ToolDefinition, names: frozenset[str]) -> ToolDefinition:
    """The tool, for these agents."""
    return msgspec.structs.replace(tool, visible=_visible_to(names, tool.visible))


def _visible_to(names: frozenset[str], original: Visibility | None) -> Callable[[CallContext], bool | str]:
    def visible(situation: CallContext) -> bool | str:
        if situation.agent not in names:
            return f"This tool is not for the agent {situation.agent}."
        return True if original is None else original(situation)

    return visible


def _unique_name(name: str, known: dict[str, Any]) -> str:
    names: Iterator[str] = (name if number == 1 else f"{name}#{number}" for number in range(1, len(known) + 2))
    return next(free for free in names if free not in known)
