"""A dry run says what would be decided now about every call of then, and executes nothing."""

from typing import Any

import msgspec
import pytest

from interlock import FailSafeConfig, Rule, tool
from interlock.agent.agent import Agent
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from interlock.replay.dry_run import DryRunRow, dry_run
from tests.replay.replayed import World, agent, policy, record


def verdicts(rows: tuple[DryRunRow, ...]) -> dict[str, tuple[str, str]]:
    return {row.call_id: (row.was.verdict, row.now.verdict) for row in rows}


@pytest.mark.requirement("R269")
async def test_with_the_same_tools_and_policy_every_call_is_judged_as_it_was() -> None:
    recorded = await record(agent())
    world = World()

    judged = await dry_run(recorded.entries, agent(tools=world.tools()), recorded.artifacts)

    assert judged.changed == ()
    assert world.done == []
    assert [(row.was.verdict, row.said, row.ran) for row in judged.rows] == [
        ("allow", "none", True),
        ("allow", "none", True),
        ("allow", "none", True),
        ("invalid", "none", False),
        ("refused", "none", False),
        ("refused", "none", False),
        ("ask", "granted", True),
        ("ask", "rejected", False),
        ("deny", "none", False),
        ("invalid", "none", False),
        ("ask", "granted", True),
        ("allow", "none", True),
    ]


async def test_what_the_policy_of_today_says_stands_beside_what_was_said() -> None:
    recorded = await record(agent())
    free = policy(Rule(id="mail", verdict="allow", tools="send"), Rule(id="no-edits", verdict="deny", tools="edit"))

    judged = await dry_run(recorded.entries, agent(policy=free), recorded.artifacts)

    changed = {row.call_id: row for row in judged.changed}
    assert verdicts(judged.changed) == {
        "call_7": ("ask", "allow"),
        "call_8": ("ask", "allow"),
        "call_11": ("ask", "deny"),
    }
    assert (changed["call_8"].looser, changed["call_8"].said) == (True, "rejected")
    assert not changed["call_11"].looser
    assert changed["call_11"].now.rules == ("no-edits",)


async def test_a_schema_that_changed_and_a_tool_that_came_are_seen() -> None:
    recorded = await record(agent())

    @tool(name="add", risk="read")
    def add_many(numbers: list[int]) -> int:
        """Add numbers."""
        return sum(numbers)

    @tool(risk="read")
    def missing(a: int) -> int:
        """It was not there."""
        return a

    tools = [add_many, missing, *World().tools()[1:]]
    judged = await dry_run(recorded.entries, agent(tools=tools), recorded.artifacts)

    assert verdicts(judged.changed) == {"call_1": ("allow", "invalid"), "call_5": ("refused", "allow")}
    assert "input.numbers is required" in judged.changed[0].now.reason


async def test_a_call_that_would_end_the_run_does_not_keep_others_from_being_judged() -> None:
    strict = FailSafeConfig(tool_failure_policy="fail", approval_denial_policy="fail")
    recorded = await record(agent())
    raising = [msgspec.structs.replace(each, raise_on_error=True) for each in World().tools()]

    judged = await dry_run(recorded.entries, agent(tools=raising, fail_safe=strict), recorded.artifacts)

    assert judged.changed == ()
    assert len(judged.rows) == 12


async def test_a_call_whose_arguments_are_not_in_the_log_says_so() -> None:
    turns = (ScriptedTurn(calls=(tool_call("send", to="bob", text="x" * 9000),)), ScriptedTurn(text="Done."))
    recorded = await record(agent(turns=turns))

    (row,) = (await dry_run(recorded.entries, agent())).rows

    assert (row.changed, row.lost) == (False, "its arguments are too large for the log")


async def test_a_call_of_an_agent_that_the_run_was_handed_to_is_judged_as_its_call() -> None:
    def first() -> Agent:
        turns: Any = (
            ScriptedTurn(calls=(tool_call("handoff_to_second"),)),
            ScriptedTurn(calls=(tool_call("send", to="root"),)),
            ScriptedTurn(text="Done."),
        )
        model = ScriptedModel(turns, by_position=True)
        second = Agent(provider=model, name="second", tools=World().tools())
        return Agent(provider=model, name="first", handoffs=(second,), policy=policy())

    recorded = await record(first())

    judged = await dry_run(recorded.entries, first(), recorded.artifacts)

    assert verdicts(judged.rows) == {"call_1": ("allow", "allow"), "call_2": ("deny", "deny")}
