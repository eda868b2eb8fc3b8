"""The agents alone, without Interlock: what the other tests of this folder stand on."""

import pytest

from tests.coding_agents.agents import AGENTS
from tests.coding_agents.world import World


@pytest.mark.agents
@pytest.mark.parametrize("name", AGENTS)
def test_agent_runs_commands_and_calls_only_the_model(world: World, name: str) -> None:
    agent = AGENTS[name]
    agent.configure(world)
    world.model.teach(world.keyword, agent.shell, agent.shell_call("echo ran >> ran.txt"))

    options = ("--allowedTools", "Bash") if name == "claude" else ()
    reply = agent.ask(world, f"{world.keyword} append a line", options=options)

    assert (reply.said, world.effects) == ("MODEL SAW RESULT", ["ran"])
