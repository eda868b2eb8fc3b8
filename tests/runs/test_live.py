"""What a call does is in the log while it runs, for read-only calls, too."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from interlock import MemoryLog, Runner, ToolDefinition, ToolRuntime, tool
from interlock.domain.event import InvocationStarted, ModelRequested
from interlock.storage.event_log import EventLog
from tests.logs import open_log, wait_until_free
from tests.patience import HANG_SECONDS

from .support import agent_of, calls, facts, facts_of

ROOT = Path(__file__).parents[2]
CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}


class Looking:
    """A read-only tool that runs until it is released."""

    def __init__(self) -> None:
        self.release = asyncio.Event()

    @property
    def tool(self) -> ToolDefinition:
        @tool(risk="read")
        async def look() -> str:
            await self.release.wait()
            return "seen"

        return look


async def wait_for_start(log: EventLog, run_id: str) -> list[str]:
    """Return the types of the events up to the first that says that a call runs."""
    seen = log.version()
    while not await facts_of(InvocationStarted, log, run_id):
        assert await log.wait_for_change(seen, HANG_SECONDS)
        seen = log.version()
    return [type(fact).__name__ for fact in await facts(log, run_id)]


@pytest.mark.usefixtures("log_backend")
@pytest.mark.requirement("P24")
@pytest.mark.parametrize("durable", [False, True])
async def test_a_read_is_in_the_log_while_it_runs(tmp_path: Path, durable: bool) -> None:
    log, looking = open_log(tmp_path / "log") if durable else MemoryLog(), Looking()
    async with Runner(agent_of(calls(("a", "look", {})), "Done.", tools=[looking.tool]), log=log) as runner:
        handle = await runner.start("Look.", run_id="one")
        seen = await wait_for_start(log, "one")
        async for event in handle.events():
            if event.type == "tool_batch_started":
                looking.release.set()  # else this would wait for ever
        assert (await handle.result()).text == "Done."
    await log.close()
    assert seen[-5:] == ["BatchStarted", "CallProposed", "CallValidated", "PolicyEvaluated", "InvocationStarted"]


@pytest.mark.requirement("P24")
async def test_events_of_a_runtime_are_live() -> None:
    looking = Looking()
    async with ToolRuntime(tools=[looking.tool]) as runtime:
        running = asyncio.create_task(runtime.execute([CALL]))
        async for event in runtime.log_events():
            if isinstance(event.fact, InvocationStarted):
                break
        assert not running.done()
        looking.release.set()
        assert (await running).observations[0].ok


@pytest.mark.usefixtures("log_backend")
@pytest.mark.requirement("P24")
async def test_a_read_that_was_killed_is_in_the_log(tmp_path: Path) -> None:
    """The resumed run runs the call again, and does not ask the model again."""
    command = [sys.executable, "-m", "tests.runs.test_live", str(tmp_path / "log")]
    with subprocess.Popen(  # noqa: ASYNC220 - it starts at once
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "runs\n"
        async with open_log(tmp_path / "log") as log:
            await wait_for_start(log, "one")
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            await wait_until_free(log, "one")
            looking = Looking()
            looking.release.set()
            async with Runner(agent_of(calls(("a", "look", {})), "Done.", tools=[looking.tool]), log=log) as runner:
                (handle,) = await runner.recover()
                assert (await handle.result()).text == "Done."
            assert len(await facts_of(ModelRequested, log, "one")) == 2


async def main(path: str) -> None:
    looking = Looking()
    agent = agent_of(calls(("a", "look", {})), "Done.", tools=[looking.tool])
    async with Runner(agent, log=open_log(path)) as runner:
        handle = await runner.start("Look.", run_id="one")
        print("runs", flush=True)
        await handle.result()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
