"""Final answers that have to be of a type, instructions, and tool choice."""

from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from interlock import CallContext, MemoryLog, PermissionMode, SqliteLog, tool
from interlock.agent.agent import Agent
from interlock.agent.next_step import Budgets
from interlock.domain.errors import ConfigurationError
from interlock.domain.event import FinalAnswerRejected
from interlock.domain.messages import UserMessage
from interlock.runs.runner import Runner
from tests.runs.support import agent_of, asked_of, calls, facts_of, run_of


class Report(BaseModel):
    title: str
    lines: int


@tool(risk="read")
def look() -> str:
    """Look."""
    return "seen"


@tool(risk="write")
def change() -> str:
    """A person is asked."""
    return "changed"


@pytest.mark.parametrize(
    "text", ['{"title": "a", "lines": 2}', '```json\n{"title": "a", "lines": 2}\n```', ' {"title": "a", "lines": "2"} ']
)
async def test_a_typed_answer_comes_back_as_its_type(text: str) -> None:
    agent = agent_of(text, output_type=Report)

    result = await run_of(agent)

    assert result.output == Report(title="a", lines=2)
    assert asked_of(agent)[0].output_schema == Report.model_json_schema()


async def test_an_answer_of_another_form_is_corrected_by_the_model() -> None:
    log = MemoryLog()
    agent = agent_of("Two lines.", '{"title": "a"}', '{"title": "a", "lines": 2}', output_type=Report)

    result = await run_of(agent, log=log)

    assert (result.status, result.output) == ("COMPLETED", Report(title="a", lines=2))
    refused = await facts_of(FinalAnswerRejected, log, result.run_id)
    assert "lines: Field required" in refused[1].message
    assert asked_of(agent)[2].messages[-1] == UserMessage(refused[1].message)


async def test_a_model_that_never_finds_the_form_ends_the_run_in_words() -> None:
    agent = agent_of("One.", "Two.", "Three.", output_type=Report)

    result = await run_of(agent)

    assert (result.status, result.output) == ("FAILED", None)
    assert result.message.startswith("After 2 corrections: The answer does not have the form that was asked for")


async def test_how_often_a_model_is_corrected_can_be_chosen() -> None:
    result = await run_of(agent_of("One.", "2", output_type=int, budgets=Budgets(max_corrections=0)))

    assert result.status == "FAILED"


@pytest.mark.parametrize(
    ("output_type", "text", "output"),
    [(str, "{}", "{}"), (int, "7", 7), (list[int], "[1, 2]", [1, 2]), (Annotated[int, Field(gt=1)], "3", 3)],
)
async def test_a_type_is_whatever_pydantic_knows(output_type: object, text: str, output: object) -> None:
    assert (await run_of(agent_of(text, output_type=output_type))).output == output


@pytest.mark.parametrize("text", ["", "[" * 100_000, '{"title": 1e999, "lines": 1}', '{"\ud800": 1}', "NaN", "null"])
async def test_no_text_of_a_model_raises(text: str) -> None:
    result = await run_of(agent_of(text, text, text, output_type=Report))

    assert result.status == "FAILED"
    assert len(result.message) < 5_000


async def test_instructions_may_be_a_function_of_the_situation() -> None:
    def instructions(situation: CallContext) -> str:
        return f"You are {situation.agent}, in {situation.mode}."

    agent = agent_of("Done.", instructions=instructions, name="ada")

    await run_of(agent, mode=PermissionMode.ACCEPT_EDITS)

    assert asked_of(agent)[0].instructions == "You are ada, in accept_edits."


@pytest.mark.requirement("R116", "R117")
async def test_a_forced_tool_choice_is_lifted_after_the_agent_used_a_tool_and_stays_declared() -> None:
    agent = agent_of(calls(("a", "look", {})), "Done.", tools=[look], tool_choice="required")

    await run_of(agent)
    await run_of(agent)

    assert [request.tool_choice for request in asked_of(agent)] == ["required", "auto"] * 2
    assert agent.tool_choice == "required"


@pytest.mark.requirement("R116")
@pytest.mark.parametrize(
    ("choice", "reset", "seen"),
    [
        ("look", True, ["look", "auto"]),
        ("look", False, ["look", "look"]),
        ("none", True, ["none", "none"]),
        ("hidden", True, ["auto", "auto"]),
    ],
)
async def test_what_a_tool_choice_becomes(choice: str, reset: bool, seen: list[str]) -> None:
    agent = agent_of(calls(("a", "look", {})), "Done.", tools=[look], tool_choice=choice, reset_tool_choice=reset)

    await run_of(agent)

    assert [request.tool_choice for request in asked_of(agent)] == seen


async def test_without_tools_no_choice_is_forced() -> None:
    @tool(risk="read", visible=lambda situation: False)
    def hidden() -> str:
        """Nobody sees it."""
        return ""

    agent = agent_of("Done.", tools=[hidden], tool_choice="none")
    await run_of(agent)

    assert asked_of(agent)[0].tool_choice == "none"  # `read_artifact` is there


@pytest.mark.requirement("R115", "R118")
async def test_tool_use_is_tracked_per_agent_across_an_interruption_even_where_agents_share_a_name(
    tmp_path: object,
) -> None:
    def agents() -> tuple[Agent, Agent]:
        second = agent_of(
            "",  # the answers before it are the other agent's
            "",
            calls(("c", "change", {})),
            "Done.",
            tools=[change],
            name="ada",
            tool_choice="required",
        )
        first = agent_of(
            calls(("a", "look", {})),
            calls(("b", "handoff_to_ada_2", {})),
            tools=[look],
            name="ada",
            tool_choice="required",
            handoffs=(second,),
        )
        return first, second

    async with SqliteLog(f"{tmp_path}/log") as log:
        first, second = agents()
        async with Runner(first, log=log) as runner:
            waiting = await runner.run("Do it.")
        assert [request.tool_choice for request in asked_of(first)] == ["required", "auto"]
        assert [request.tool_choice for request in asked_of(second)] == ["required"]

        first, second = agents()
        async with Runner(first, log=log) as runner:
            handle = await runner.open(waiting.run_id)
            await handle.decide(waiting.questions[0].action_id, approved=True)
            await handle.result()
            await handle.resume()
            result = await handle.result()

    assert (result.status, result.text) == ("COMPLETED", "Done.")
    assert [request.tool_choice for request in asked_of(second)] == ["auto"]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 300])
def test_an_agent_needs_a_name_that_can_be_written_down(name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name"):
        agent_of(name=name)
