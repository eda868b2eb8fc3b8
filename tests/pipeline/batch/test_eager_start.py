"""A call starts at once, in a task of its own: one that never waits needs no turn of the event loop."""

import asyncio
from contextvars import ContextVar

import pytest

from interlock import ToolRuntime, tool
from tests.patience import HANG_SECONDS
from tests.pipeline.batch.stage import codes, others_ran
from tests.support import call

SET = ContextVar("SET", default="by the caller")


async def test_calls_that_never_wait_need_no_turn_of_the_event_loop() -> None:
    turns = list[str]()

    @tool
    async def act() -> str:
        return "done"

    async with ToolRuntime(tools=[act]) as runtime:
        await runtime.execute([call("c0", "act")])
        asyncio.get_running_loop().call_soon(turns.append, "turn")
        await runtime.execute([call("c1", "act"), call("c2", "act")])
    assert turns == []


@pytest.mark.requirement("R106")
async def test_a_call_keeps_its_own_task_and_context() -> None:
    seen = list[object]()

    @tool
    async def look() -> str:
        SET.set("by the call")
        task = asyncio.current_task()
        assert task is not None
        seen.extend([task, bool(task.get_coro()), bool(task.get_name()), bool(repr(task)), task.done()])
        await others_ran(1)
        return f"{asyncio.current_task() is task} {SET.get()}"

    async with ToolRuntime(tools=[look]) as runtime:
        result = await runtime.execute([call("c1", "look")])
    assert "True by the call" in result.messages[0]["content"]
    assert seen[0] is not asyncio.current_task()
    assert seen[1:] == [True, True, True, False]
    assert SET.get() == "by the caller"


@pytest.mark.requirement("R102")
async def test_a_timeout_that_begins_before_the_first_wait_ends_that_wait() -> None:
    @tool
    async def wait() -> str:
        try:
            async with asyncio.timeout(0.001), asyncio.TaskGroup() as group:
                group.create_task(asyncio.Event().wait())
                await asyncio.Event().wait()
        except TimeoutError:
            return "it took too long"
        return "never"

    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=[wait]) as runtime:
        result = await runtime.execute([call("c1", "wait"), call("c2", "wait")])
    assert [observation.content.text for observation in result.observations if observation.content] == [
        "it took too long"
    ] * 2


@pytest.mark.requirement("R100")
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("through", ["task", "runtime"])
async def test_a_call_that_cancels_itself_before_it_waits_is_cancelled(through: str, waits: bool) -> None:
    @tool
    async def give_up() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel() if through == "task" else runtime.cancel_call("c1")
        if waits:
            await asyncio.Event().wait()
        return "done"

    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=[give_up]) as runtime:
        result = await runtime.execute([call("c1", "give_up")])
        assert codes(result) == {"c1": "cancelled" if waits or through == "runtime" else "ok"}
