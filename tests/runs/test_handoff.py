"""A run that is handed to another agent: the conversation goes on, the tools change."""

from pathlib import Path
from typing import Any

import pytest

from interlock import MemoryLog, Rule, RulePolicy, ToolDefinition, tool
from interlock.agent.agent import Agent
from interlock.agent.next_step import Budgets
from interlock.domain.errors import ConfigurationError
from interlock.domain.event import ModelRequested
from interlock.domain.tool import NormalizedOutput
from interlock.runs.runner import Runner
from tests.logs import open_log

from .support import agent_of, asked_of, calls, facts_of, in_words, run_of, start

HANDED = calls(("h", "handoff_to_writer", {"reason": "You write better."}))


def noting(changes: list[str], name: str) -> ToolDefinition:
    @tool(risk="write", name=name)
    def change(what: str) -> str:
        """A person is asked."""
        changes.append(f"{name} {what}")
        return f"changed {what}"

    return change


@tool(risk="read")
def look() -> str:
    """Look."""
    return "seen"


@tool(risk="read")
def shared() -> str:
    """Both have it."""
    return "shared"


def pair(*said: Any, tools: tuple[Any, ...] = (), **writer: Any) -> tuple[Agent, Agent]:
    """An agent that hands the run over at once, and one whose answers these are."""
    second = agent_of("", *said, tools=[shared, *tools], name="writer", instructions="Write.", **writer)
    first = agent_of(HANDED, tools=[look, shared], name="reader", instructions="Read.", handoffs=(second,))
    return first, second


async def test_the_conversation_goes_on_with_the_other_agent_its_instructions_and_its_tools() -> None:
    first, second = pair("Written.")
    log = MemoryLog()

    result = await run_of(first, "Do it.", log=log)

    assert (result.status, result.text) == ("COMPLETED", "Written.")
    (request,) = asked_of(second)
    assert in_words(request.messages) == ["user: Do it.", "model: ['h']", "tool: h"]
    assert "You write better." in request.messages[-1].text
    assert request.instructions == "Write."
    assert {spec.name for spec in request.tools} == {"shared", "read_artifact"}
    assert {spec.name for spec in asked_of(first)[0].tools} == {"look", "shared", "handoff_to_writer", "read_artifact"}
    assert [fact.agent for fact in await facts_of(ModelRequested, log, result.run_id)] == ["reader", "writer"]


async def test_a_tool_of_the_other_agent_is_refused_and_the_run_goes_on() -> None:
    first, _ = pair(calls(("a", "look", {}), ("b", "shared", {})), "Written.")

    result = await run_of(first)

    assert [seen.code for seen in result.observations] == ["ok", "tool_not_visible", "ok"]
    assert "not for the agent writer" in result.observations[1].summary
    assert result.text == "Written."


async def test_the_type_of_the_answer_is_that_of_the_agent_who_gives_it() -> None:
    first, _ = pair("7", output_type=int)

    assert (await run_of(first)).output == 7


@pytest.mark.usefixtures("log_backend")
async def test_a_process_that_goes_on_after_a_handoff_judges_calls_for_the_agent_that_asked(tmp_path: Path) -> None:
    changes: list[str] = []

    def agents() -> Agent:
        return pair(calls(("a", "alter", {"what": "x"})), "Written.", tools=(noting(changes, "alter"),))[0]

    async with open_log(tmp_path / "log") as log:
        async with Runner(agents(), log=log) as runner:
            waiting = await runner.run("Do it.")
        assert [question.agent for question in waiting.questions] == ["writer"]
        async with Runner(agents(), log=log) as runner:
            handle = await runner.open(waiting.run_id)
            await handle.result()
            await handle.decide(waiting.questions[0].action_id, approved=True)
            await handle.resume()
            result = await handle.result()

    assert (result.status, result.text, changes) == ("COMPLETED", "Written.", ["alter x"])


@pytest.mark.usefixtures("log_backend")
async def test_calls_beside_a_handoff_stay_those_of_the_agent_that_made_them(tmp_path: Path) -> None:
    changes: list[str] = []

    def agents() -> Agent:
        second = agent_of("", "Written.", name="writer")
        both = calls(("h", "handoff_to_writer", {}), ("a", "alter", {"what": "x"}))
        return agent_of(both, tools=[noting(changes, "alter")], name="reader", handoffs=(second,))

    async with open_log(tmp_path / "log") as log:
        async with Runner(agents(), log=log) as runner:
            waiting = await runner.run("Do it.")
        async with Runner(agents(), log=log) as runner:
            handle = await runner.open(waiting.run_id)
            await handle.result()
            await handle.decide(waiting.questions[0].action_id, approved=True)
            await handle.resume()
            result = await handle.result()

    assert (result.status, result.text, changes) == ("COMPLETED", "Written.", ["alter x"])


async def test_the_budgets_are_those_that_the_run_began_with_whoever_speaks() -> None:
    writer = agent_of("", calls(("a", "shared", {})), "Written.", tools=[shared], name="writer")
    reader = agent_of(HANDED, handoffs=(writer,), name="reader", budgets=Budgets(max_steps=2))

    result = await run_of(reader)

    assert result.message == "The run has used its budget of 2 steps."


async def test_a_run_of_agents_that_are_gone_says_so() -> None:
    log = MemoryLog()
    first, _ = pair(calls(("a", "alter", {"what": "x"})), "Written.", tools=(noting([], "alter"),))
    runner, handle = await start(first, log)
    await handle.result()
    await runner.close()

    async with Runner(agent_of("x", name="reader"), log=log) as other:
        with pytest.raises(ConfigurationError, match=r"turn of the agent 'writer'.*only reader.*Nothing was executed"):
            await other.open(handle.run_id)
        assert await other.recover() == []


def test_one_run_has_one_policy() -> None:
    second = agent_of("x", name="writer", policy=RulePolicy([Rule(id="no", verdict="deny", tools="*")]))

    with pytest.raises(ConfigurationError, match="under the policy of reader"):
        Runner(agent_of("x", name="reader", handoffs=(second,)))


def test_two_tools_of_one_name_are_refused() -> None:
    second = agent_of("x", tools=[noting([], "alter")], name="writer")

    with pytest.raises(ConfigurationError, match="different tools named 'alter'"):
        Runner(agent_of("x", tools=[noting([], "alter")], name="reader", handoffs=(second,)))


@pytest.mark.parametrize("name", ["agent", "interlock:agent"])
async def test_only_a_handoff_decides_who_speaks_whatever_other_tools_remember(name: str) -> None:
    @tool(risk="read", normalize=lambda value: NormalizedOutput(state={name: "ghost"}))
    def remember() -> str:
        """Remember."""
        return "x"

    result = await run_of(agent_of(calls(("a", "remember", {})), "Done.", tools=[remember], name="reader"))

    assert (result.status, result.text) == ("COMPLETED", "Done.")
    codes = {"agent": "ok", "interlock:agent": "normalize_failed"}
    assert [seen.code for seen in result.observations] == [codes[name]]
