"""A mistake in the declaration of an agent is told where it is made, in words that say what to write."""

from collections.abc import Callable
from typing import Any

import pytest

from interlock import Agent, Budgets, Rule, Runner, ScriptedModel, ScriptedTurn, tool
from interlock.domain.errors import ConfigurationError
from tests.each import each
from tests.runs.support import agent_of, asked_of, calls


@tool(risk="read")
def look() -> str:
    """Look."""
    return "seen"


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a model instead of a provider": ({"provider": "gpt-5"}, "provider is of type str.*OpenAIChat"),
    "a class instead of a provider": ({"provider": ScriptedModel}, "provider is the class ScriptedModel"),
    "no provider": ({"provider": None}, "provider is of type NoneType"),
    "no instructions": ({"instructions": None}, "instructions is of type NoneType. Give text"),
    "one tool": ({"tools": look}, r"tools is of type ToolDefinition. Give a list: tools=\[\.\.\.\]"),
    "the name of a tool": ({"tools": "look"}, "tools is of type str"),
    "names of tools": ({"tools": ["look"]}, "tools has something of type str. Give functions"),
    "an agent among the tools": ({"tools": [agent_of()]}, r"tools has something of type Agent. Give agent.as_tool\(\)"),
    "one handoff": ({"handoffs": agent_of()}, "handoffs is of type Agent. Give a list"),
    "the name of a handoff": ({"handoffs": ["billing"]}, "handoffs has something of type str"),
    "rules instead of a policy": (
        {"policy": [Rule(id="a", verdict="allow")]},
        "policy is of type list. Give RulePolicy",
    ),
    "a file instead of a policy": ({"policy": "policy.yaml"}, "policy is of type str.*load_policy"),
    "a table instead of budgets": ({"budgets": {"max_steps": 3}}, "budgets is of type dict. Give Budgets"),
    "a number as the tool choice": ({"tool_choice": 1}, "tool_choice is of type int"),
}


@each("name", MISTAKES)
def test_what_cannot_be_part_of_an_agent_is_refused_with_what_to_write_instead(name: str) -> None:
    mistaken, words = MISTAKES[name]
    fields: dict[str, Any] = {"provider": ScriptedModel([]), "name": "shop"} | mistaken
    with pytest.raises(ConfigurationError, match=f"In the agent 'shop', {words}"):
        Agent(**fields)


@pytest.mark.parametrize("most", ["3", None, float("nan")])
def test_a_budget_that_is_no_number_is_refused_since_it_would_be_no_limit(most: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"max_steps is .*, and has to be a number"):
        Budgets(max_steps=most)


@pytest.mark.parametrize("kind", [list, tuple, iter])
async def test_tools_and_handoffs_come_in_anything_that_can_be_gone_through_and_serve_every_runner(
    kind: Callable[..., Any],
) -> None:
    other = agent_of("Done.", name="other")
    agent = agent_of(calls(("a", "look", {})), "Done.", tools=kind([look]), handoffs=kind([other]))

    for _ in range(2):
        async with Runner(agent) as runner:
            result = await runner.run("Look.")
        assert [record.output for record in result.tool_executions] == ["seen"]
    assert {spec.name for spec in asked_of(agent)[-1].tools} == {"look", "handoff_to_other", "read_artifact"}


async def test_a_function_of_the_situation_may_give_the_instructions() -> None:
    agent = Agent(provider=ScriptedModel([ScriptedTurn(text="Hi.")]), instructions=lambda situation: situation.run_id)
    async with Runner(agent) as runner:
        assert (await runner.run("Hello.")).text == "Hi."
