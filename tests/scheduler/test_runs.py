"""Queues belong to runs and folders; the limit on handlers belongs to the process."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from interlock import Agent, HeadlessInteractionProvider, LocalTools, RulePolicy, Runner, ScriptedModel, tool, tool_call
from interlock.scheduler import HandlerSlots
from tests.patience import HANG_SECONDS
from tests.pipeline.batch.stage import Stage, others_ran

ALLOW = RulePolicy(default="allow")


class Meeting:
    """A tool that ends only when a number of its calls run at the same time."""

    def __init__(self, expected: int) -> None:
        self.running = 0
        self.most = 0
        self._expected = expected
        self._complete = asyncio.Event()

    async def meet(self) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        if self.running >= self._expected:
            self._complete.set()
        await self._complete.wait()
        self.running -= 1
        return "met"


def agent_with(work: Any) -> Agent:
    meet = tool(work, name="meet", risk="write")
    return Agent(provider=ScriptedModel([tool_call("meet"), "done"], by_position=True), tools=[meet], policy=ALLOW)


async def test_exclusive_calls_of_different_runs_run_together() -> None:
    meeting = Meeting(20)

    async with Runner(agent_with(meeting.meet)) as runner, asyncio.timeout(HANG_SECONDS):
        results = await asyncio.gather(*(runner.run("go") for _ in range(20)))

    assert {result.status for result in results} == {"COMPLETED"}
    assert meeting.most == 20


async def test_runners_share_the_limit_of_their_slots() -> None:
    meeting, slots = Meeting(2), HandlerSlots(2)

    async with (
        Runner(agent_with(meeting.meet), max_concurrency=slots) as one,
        Runner(agent_with(meeting.meet), max_concurrency=slots) as other,
        asyncio.timeout(HANG_SECONDS),
    ):
        results = await asyncio.gather(*(runner.run("go") for runner in (one, other) for _ in range(3)))

    assert {result.status for result in results} == {"COMPLETED"}
    assert (meeting.most, slots.active_count) == (2, 0)


async def test_a_call_that_waits_for_a_child_run_takes_no_slot() -> None:
    @tool(risk="write")
    def change() -> str:
        return "changed"

    helper = Agent(provider=ScriptedModel([tool_call("change"), "done"]), name="helper", tools=[change], policy=ALLOW)
    parent = Agent(
        provider=ScriptedModel([tool_call("ask_helper", task="change it"), "done"]),
        tools=[helper.as_tool()],
        policy=ALLOW,
    )

    async with Runner(parent, max_concurrency=HandlerSlots(1)) as runner, asyncio.timeout(HANG_SECONDS):
        result = await runner.run("go")

    assert (result.status, [seen.ok for seen in result.observations]) == ("COMPLETED", [True])


async def test_local_tools_of_runs_in_one_folder_take_turns(tmp_path: Path) -> None:
    stage = Stage()
    held = tool(stage.play, name="held", risk="write")

    def agent(name: str) -> Agent:
        turns = [tool_call("held", name=name), "done"]
        return Agent(
            provider=ScriptedModel(turns),
            tools=[msgspec.structs.replace(held, toolbox=LocalTools(tmp_path))],
            policy=ALLOW,
            name=name,
        )

    approve = HeadlessInteractionProvider("approve")
    async with Runner(agent("a"), interaction=approve) as one, Runner(agent("b"), interaction=approve) as other:
        first = await one.start("go")
        await stage.started("a")
        second = await other.start("go")
        await others_ran()
        assert stage.starts() == ["a"]
        stage.let_go("a", "b")
        async with asyncio.timeout(HANG_SECONDS):
            assert [(await handle.result()).status for handle in (first, second)] == ["COMPLETED"] * 2

    assert stage.most_running == 1
