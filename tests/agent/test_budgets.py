"""What a run may use: every budget ends it in words, and waiting for people uses none."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from interlock import CallbackInteractionProvider, Limits, MemoryLog, Question, tool
from interlock.agent.agent import Agent
from interlock.agent.next_step import Budgets
from interlock.domain.event import ModelRequested
from interlock.domain.messages import Usage
from interlock.models.interface import ModelEvent, ModelRequest, TextDelta
from interlock.models.scripted import ScriptedTurn, tool_call
from interlock.pipeline.parts import Clock
from interlock.runs import lease
from interlock.runs.runner import Runner
from tests.runs.support import agent_of, asked_of, calls, facts_of, run_of


@tool(risk="read")
def look(number: int) -> str:
    """Look."""
    return f"saw {number}"


@tool(risk="write")
def change() -> str:
    """A person is asked."""
    return "changed"


def turns(count: int) -> list[ScriptedTurn]:
    """Answers that always want something more."""
    usage = Usage(input_tokens=10, output_tokens=5, cost=0.25)
    return [
        ScriptedTurn(calls=tuple(tool_call("look", number=n, call_id=f"c{turn}-{n}") for n in range(2)), usage=usage)
        for turn in range(count)
    ]


@pytest.mark.parametrize(
    ("budgets", "requests", "words"),
    [
        (Budgets(max_steps=2), 2, "2 steps"),
        (Budgets(max_model_calls=3), 3, "3 requests to the model"),
        (Budgets(max_tool_calls=5), 3, "5 tool calls"),
        (Budgets(max_tokens=40), 3, "40 tokens"),
        (Budgets(max_cost=0.5), 2, "0.5 of cost"),
        (Budgets(max_steps=0), 0, "0 steps"),
    ],
)
async def test_a_run_ends_in_words_when_its_budget_is_used(budgets: Budgets, requests: int, words: str) -> None:
    agent = agent_of(*turns(9), tools=[look], budgets=budgets)

    result = await run_of(agent)

    assert (result.status, result.message) == ("FAILED", f"The run has used its budget of {words}.")
    assert len(asked_of(agent)) == requests
    assert len(result.observations) == 2 * requests, "what was asked for is done and told"


async def test_usage_is_in_the_result() -> None:
    result = await run_of(agent_of(*turns(2), "Done.", tools=[look]))

    assert result.usage == Usage(input_tokens=20, output_tokens=10, cost=0.5)


async def test_time_ends_a_tool_that_hangs() -> None:
    ended = asyncio.Event()

    @tool(risk="read")
    async def hang() -> str:
        """Never end."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    result = await run_of(agent_of(calls(("a", "hang", {})), "Done.", tools=[hang], budgets=Budgets(max_seconds=0.05)))

    assert (result.status, result.message) == ("FAILED", "The run has used its budget of 0.05 seconds.")
    # On a busy machine the time may be over before the tool began.
    assert [seen.code for seen in result.observations] == (["cancelled"] if ended.is_set() else [])


class Hanging:
    """A model that begins to speak and never ends."""

    name = "hanging"

    def __init__(self) -> None:
        self.speaking = asyncio.Event()
        self.left = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        try:
            yield TextDelta("Well,")
            self.speaking.set()
            await asyncio.Event().wait()
        finally:
            self.left.set()

    async def close(self) -> None:
        """There is nothing to close."""


class Reluctant(Hanging):
    """One that has to be told twice."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        try:
            async for event in super().stream(request):
                yield event
        finally:
            await asyncio.Event().wait()


async def test_time_ends_a_model_that_has_to_be_told_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_STOP_RETRY_SECONDS", 0.01)

    result = await run_of(Agent(provider=Reluctant(), budgets=Budgets(max_seconds=0.02)))

    assert (result.status, result.message) == ("FAILED", "The run has used its budget of 0.02 seconds.")


async def test_time_ends_a_model_that_hangs() -> None:
    model = Hanging()

    result = await run_of(Agent(provider=model, budgets=Budgets(max_seconds=0.05)))

    # On a busy machine the time may be over before the model was asked.
    assert model.left.is_set() or not model.speaking.is_set(), "the connection is closed"
    assert (result.status, result.message) == ("FAILED", "The run has used its budget of 0.05 seconds.")


class Ticking:
    """Time passes when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.clock = Clock(elapsed=lambda: int(self.seconds * 1e9))


async def test_while_nobody_moves_a_run_on_it_uses_no_time() -> None:
    log, time = MemoryLog(), Ticking()
    agent = agent_of(calls(("a", "change", {})), "Done.", tools=[change], budgets=Budgets(max_seconds=100))
    async with Runner(agent, log=log, clock=time.clock) as runner:
        time.seconds += 60
        waiting = await runner.run("Do it.")
        assert waiting.status == "PAUSED_APPROVAL"
    async with Runner(agent, log=log, clock=time.clock) as runner:
        time.seconds += 1000  # nobody moves it on meanwhile
        handle = await runner.open(waiting.run_id)
        await handle.result()
        await handle.decide(waiting.questions[0].action_id, approved=True)
        await handle.resume()
        result = await handle.result()

    assert result.status == "COMPLETED"


async def test_waiting_for_a_person_uses_no_time() -> None:
    time = Ticking()

    async def slow(question: Question) -> bool:
        time.seconds += 3600
        return True

    agent = agent_of(calls(("a", "change", {})), "Done.", tools=[change], budgets=Budgets(max_seconds=10))
    result = await run_of(agent, interaction=CallbackInteractionProvider(slow), clock=time.clock)

    assert (result.status, result.text) == ("COMPLETED", "Done.")


async def test_time_of_waiting_is_not_counted_twice() -> None:
    time, log = Ticking(), MemoryLog()
    time.seconds = 1000.0

    async def slow(question: Question) -> bool:
        time.seconds += 3600
        return True

    agent = agent_of(calls(("a", "change", {})), "Done.", tools=[change])
    async with Runner(agent, log=log, clock=time.clock, interaction=CallbackInteractionProvider(slow)) as runner:
        result = await runner.run("Do it.")

    assert [fact.active_ms for fact in await facts_of(ModelRequested, log, result.run_id)] == [0.0, 0.0]


async def test_working_uses_time_across_processes() -> None:
    time, log = Ticking(), MemoryLog()

    @tool(risk="read")
    def work() -> str:
        """Take a minute."""
        time.seconds += 60
        return "done"

    def agent() -> Agent:
        spent = [calls(("a", "work", {})), calls(("b", "change", {})), calls(("c", "work", {})), "Done."]
        return agent_of(*spent, tools=[work, change], budgets=Budgets(max_seconds=100))

    async with Runner(agent(), log=log, clock=time.clock) as runner:
        waiting = await runner.run("Do it.")
    async with Runner(agent(), log=log, clock=time.clock) as runner:
        handle = await runner.open(waiting.run_id)
        await handle.result()
        await handle.decide(waiting.questions[0].action_id, approved=True)
        await handle.resume()
        result = await handle.result()

    assert (result.status, result.message) == ("FAILED", "The run has used its budget of 100 seconds.")


async def test_a_stubborn_handler_is_left_behind_when_the_time_is_over() -> None:
    release = asyncio.Event()

    @tool(risk="read")
    async def stubborn() -> str:
        """Does not listen."""
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return ""

    agent = agent_of(calls(("a", "stubborn", {})), "Done.", tools=[stubborn], budgets=Budgets(max_seconds=0.02))
    result = await run_of(agent, limits=Limits(drain_seconds=0.05))
    release.set()

    assert result.message == "The run has used its budget of 0.02 seconds."
