"""What a final answer claims is held against the facts: recorded, told to the model once, shown to people."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock import (
    CallbackInteractionProvider,
    LocalTools,
    MemoryLog,
    NormalizedOutput,
    Question,
    ToolContext,
    ToolDefinition,
    tool,
)
from interlock.agent.agent import Agent
from interlock.agent.next_step import Budgets
from interlock.domain.event import CallObserved, ClaimContradicted, ModelResponded
from interlock.domain.messages import UserMessage
from interlock.models.scripted import ScriptedTurn, tool_call

from .support import agent_of, asked_of, calls, facts_of, run_of

CLAIM = "Fixed. All tests pass."


def checks(ok: bool) -> ToolDefinition:
    @tool(risk="read", name="check", normalize=_normalized)
    def check() -> bool:
        """Run the tests."""
        return ok

    return check


def _normalized(ok: bool) -> NormalizedOutput:
    return NormalizedOutput(summary="Checked.", kind="verification", facts={"ok": ok, "goal": "the tests"})


@tool(risk="read")
def edit(ctx: ToolContext) -> str:
    """Change a file."""
    ctx.side_effect("modified", "src/a.py")
    return "edited"


CHECKED, EDITED = calls(("c", "check", {})), calls(("e", "edit", {}))


@pytest.mark.requirement("P14", "R268")
@pytest.mark.parametrize(
    ("turns", "ok", "status"),
    [([CHECKED], False, "failed"), ([CHECKED, EDITED], True, "stale"), ([], True, "none")],
    ids=["failed", "edited since", "never ran"],
)
async def test_a_claim_against_the_facts_is_told_to_the_model_once_and_shown_to_people(
    turns: list[ScriptedTurn], ok: bool, status: str
) -> None:
    log, agent = MemoryLog(), agent_of(*turns, CLAIM, CLAIM, tools=[checks(ok), edit])

    result = await run_of(agent, log=log)

    first, second = await facts_of(ClaimContradicted, log, result.run_id)
    assert (first.status, first.told, second.told) == (status, True, False)
    assert first.claim in CLAIM
    assert asked_of(agent)[-1].messages[-1] == UserMessage(first.message)
    assert (result.status, result.text) == ("COMPLETED", CLAIM)
    assert (result.verification.status, result.conflict) == (status, second.message)


@pytest.mark.requirement("P14")
async def test_a_model_that_takes_its_claim_back_leaves_no_conflict() -> None:
    agent = agent_of(CHECKED, CLAIM, "The tests still fail.", tools=[checks(False)])

    result = await run_of(agent)

    assert (result.text, result.conflict, result.verification.status) == ("The tests still fail.", "", "failed")


async def test_a_claim_that_the_facts_bear_out_stands() -> None:
    log, agent = MemoryLog(), agent_of(EDITED, CHECKED, CLAIM, tools=[checks(True), edit])

    result = await run_of(agent, log=log)

    assert (result.text, result.conflict, result.verification.status) == (CLAIM, "", "passed")
    assert not await facts_of(ClaimContradicted, log, result.run_id)


async def test_claims_are_not_looked_at_where_nobody_wants_it() -> None:
    result = await run_of(agent_of(CLAIM, check_claims=False))

    assert (result.text, result.conflict) == (CLAIM, "")


async def test_a_claim_is_shown_at_once_when_the_model_cannot_be_asked_again() -> None:
    log, agent = MemoryLog(), agent_of(CLAIM, budgets=Budgets(max_model_calls=1))

    result = await run_of(agent, log=log)

    assert (result.status, result.text) == ("COMPLETED", CLAIM)
    assert [fact.told for fact in await facts_of(ClaimContradicted, log, result.run_id)] == [False]
    assert result.conflict


@pytest.mark.requirement("R267")
async def test_what_the_model_says_about_a_call_is_recorded_apart_and_changes_no_fact() -> None:
    log, said = MemoryLog(), "The edit failed, and nothing was changed."
    before = await run_of(agent_of(EDITED, "Done.", tools=[edit]), log=log)

    result = await run_of(agent_of(EDITED, said, tools=[edit]), log=log)

    (told,) = [fact for fact in await facts_of(ModelResponded, log, result.run_id) if fact.text]
    (fact,) = await facts_of(CallObserved, log, result.run_id)
    assert told.text == said
    assert (fact.observation.ok, fact.observation.side_effects) == (True, before.observations[0].side_effects)
    assert result.observations == (fact.observation,)


async def yes(question: Question) -> bool:
    return True


def project(folder: Path) -> Path:
    (folder / "prices.py").write_text("def total(prices):\n    return sum(prices) + 1\n")
    (folder / "test_prices.py").write_text("from prices import total\n\n\ndef test_it():\n    assert total([2]) == 2\n")
    return folder


def run_tests(call_id: str) -> Any:
    return tool_call("bash", command="python3 -m pytest -q -p no:cacheprovider", call_id=call_id)


def mend(folder: Path) -> Agent:
    read = tool_call("read_file", path="prices.py", call_id="r")
    edit = tool_call("edit_file", path="prices.py", old_string=" + 1", new_string="", call_id="e")
    turns = (
        ScriptedTurn(calls=(run_tests("t1"), read)),
        ScriptedTurn(calls=(edit,)),
        CLAIM,
        ScriptedTurn(calls=(run_tests("t2"),)),
        CLAIM,
    )
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {"PATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return agent_of(*turns, tools=[LocalTools(folder, environment=environment)])


@pytest.mark.requirement("P14", "R268", "R271")
async def test_a_real_project_is_mended_and_the_claim_counts_only_after_the_tests_ran_again(tmp_path: Path) -> None:
    has_pytest = [sys.executable, "-I", "-c", "import pytest"]
    if (await asyncio.to_thread(subprocess.run, has_pytest, capture_output=True, check=False)).returncode:
        pytest.skip("the interpreter has no pytest")
    log = MemoryLog()

    result = await run_of(mend(project(tmp_path)), log=log, interaction=CallbackInteractionProvider(yes))

    (conflict,) = await facts_of(ClaimContradicted, log, result.run_id)
    assert (conflict.status, conflict.told) == ("failed", True)
    assert [seen.code for seen in result.observations] == ["command_failed", "ok", "ok", "ok"]
    assert (result.status, result.verification.status, result.conflict) == ("COMPLETED", "passed", "")
    assert "1 passed" in result.verification.message
