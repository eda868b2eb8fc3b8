"""What a hostile model, a careless provider or a tidy person may do to a run: it ends, and in words."""

from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from interlock import Answer, FileArtifacts, MemoryLog, tool
from interlock.agent.agent import Agent
from interlock.agent.next_step import Budgets
from interlock.domain.event import CallProposed, FinalAnswerRejected, RunFailed
from interlock.domain.messages import Usage
from interlock.history.fold import load_run
from interlock.models.scripted import ScriptedTurn
from interlock.runs.result import AgentResult
from interlock.runs.runner import Runner
from tests.runs.support import agent_of, asked_of, calls, facts_of, run_of

SECRET = "sk-live-1234567890abcdef"


class Post:
    """A tool that a person is asked about, and what was sent with it."""

    def __init__(self) -> None:
        self.sent: list[str] = []

        @tool(risk="write")
        def send(to: str) -> str:
            """Send."""
            self.sent.append(to)
            return "sent"

        self.tool = send


async def answered(agent: Agent, log: MemoryLog, *, yes: bool, **options: Any) -> AgentResult:
    """A run that pauses, is answered, and goes on from the log alone."""
    async with Runner(agent, log=log, **options) as runner:
        paused = await runner.run("Do it.")
    async with Runner(agent, log=log, **options) as runner:
        answer = {paused.questions[0].action_id: Answer(approved=yes, by="ann")}
        return await (await runner.open(paused.run_id, answers=answer)).result()


@pytest.mark.parametrize(("yes", "code"), [(True, "payload_changed"), (False, "user_denied")], ids=["yes", "no"])
async def test_a_call_whose_arguments_held_a_secret_cannot_be_gone_on_with_and_the_run_goes_on(
    yes: bool, code: str
) -> None:
    post = Post()
    agent = agent_of(calls(("a", "send", {"to": f"bob {SECRET}"})), "I give up.", tools=[post.tool])

    result = await answered(agent, MemoryLog(), yes=yes, secrets={"key": SECRET})

    assert (result.status, result.text) == ("COMPLETED", "I give up.")
    assert [observation.code for observation in result.observations] == [code]
    assert post.sent == []


async def test_a_call_whose_arguments_were_deleted_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    post, log = Post(), MemoryLog()
    agent = agent_of(calls(("a", "send", {"to": "b" * 6000})), "Gone.", tools=[post.tool])
    artifacts = FileArtifacts(tmp_path / "kept")
    async with Runner(agent, log=log, artifacts=artifacts) as runner:
        paused = await runner.run("Do it.")
    rmtree(tmp_path / "kept")

    answer = {paused.questions[0].action_id: Answer(approved=True)}
    async with Runner(agent, log=log, artifacts=FileArtifacts(tmp_path / "kept")) as runner:
        result = await (await runner.open(paused.run_id, answers=answer)).result()

    assert (result.status, [observation.code for observation in result.observations]) == (
        "COMPLETED",
        ["payload_changed"],
    )
    assert post.sent == []


async def test_an_answer_with_more_calls_than_the_budget_has_left_starts_none_of_them() -> None:
    post, log = Post(), MemoryLog()
    many = calls(*((f"c{number}", "send", {"to": "bob"}) for number in range(9)))
    agent = agent_of(many, "Done.", tools=[post.tool], budgets=Budgets(max_tool_calls=5))

    result = await run_of(agent, log=log)

    assert result.status == "FAILED"
    assert {observation.code for observation in result.observations} == {"skipped"}
    assert "9 tool calls, and 5 are left" in result.observations[0].summary
    assert len(await facts_of(CallProposed, log, result.run_id)) == 9
    assert post.sent == []


async def test_the_budgets_of_the_first_agent_hold_after_a_handoff() -> None:
    costly = Usage(cost=1.0)
    endless = [ScriptedTurn(calls=calls((f"c{n}", "look", {})).calls, usage=costly) for n in range(30)]

    @tool(risk="read")
    def look() -> str:
        """Look."""
        return "seen"

    other = agent_of(*[calls(("h", "look", {})), *endless], name="other", tools=[look])
    first = agent_of(calls(("h", "handoff_to_other", {})), handoffs=(other,), budgets=Budgets(max_cost=3.0))

    result = await run_of(first)

    assert result.message == "The run has used its budget of 3 of cost."
    assert result.usage.cost == 3.0


@pytest.mark.parametrize("number", [float("inf"), float("nan"), -5, 10**400, "many", None])
async def test_whatever_a_provider_says_that_it_cost_the_run_can_be_read_again(number: Any) -> None:
    log = MemoryLog()
    usage = Usage(input_tokens=number, output_tokens=number, cached_tokens=number, cost=number)

    result = await run_of(agent_of(ScriptedTurn(text="Hello.", usage=usage)), log=log)
    again = (await load_run(log, result.run_id)).ledger.dialogue.usage

    assert result.status == "COMPLETED"
    assert 0 <= again.input_tokens <= 10**12
    assert 0 <= again.cost <= 10**9


async def test_an_answer_that_was_cut_is_not_final() -> None:
    log, agent = MemoryLog(), agent_of(ScriptedTurn(text="The first half of", reason="length"), "Short.")

    result = await run_of(agent, log=log)

    assert result.text == "Short."
    assert len(await facts_of(FinalAnswerRejected, log, result.run_id)) == 1
    assert len(asked_of(agent)) == 2


async def test_no_answer_at_all_is_a_failure_in_words() -> None:
    log = MemoryLog()
    agent = agent_of(*[ScriptedTurn(reason="refused")] * 3)

    result = await run_of(agent, log=log)

    assert result.status == "FAILED"
    assert "There is no answer (refused)" in (await facts_of(RunFailed, log, result.run_id))[0].message
