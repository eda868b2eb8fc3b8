"""A process of its own that moves a run on: `python -m tests.runs.moving FOLDER`. It says what it does, one word per
line, and waits for a line on its standard input in the middle of an effect."""

import asyncio
import os
import sys
from pathlib import Path

from interlock import Rule, RulePolicy, ToolDefinition, tool
from interlock.agent.agent import Agent
from interlock.domain.errors import LogFencedError
from interlock.runs.runner import Runner
from tests.crash.points import Points
from tests.crash.scripted import World
from tests.logs import open_log

from .story import LOG, RUN_ID, TASK
from .support import agent_of, calls

POLICY = RulePolicy([Rule(id="change", verdict="ask", tools="change")], default="allow")
HELD = calls(("hold-1", "hold", {"what": "hold-1"}), ("change-1", "change", {"what": "change-1"}))


def say(word: object) -> None:
    os.write(1, f"{word}\n".encode())


def holding(world: World, *, waits: bool) -> Agent:
    """Its first answer has an effect that takes as long as a test wants, beside a change that a person is asked about;
    its second has another effect."""

    @tool(risk="network")
    async def hold(what: str) -> str:
        """Have an effect, and take long."""
        world.change(what)
        if waits:
            say("held")
            await asyncio.to_thread(sys.stdin.readline)
        return "held"

    return agent_of(
        HELD, calls(("send-1", "send", {"what": "send-1"})), "Done.", tools=[hold, *effects(world)], policy=POLICY
    )


def effects(world: World) -> list[ToolDefinition]:
    @tool(risk="network")
    async def send(what: str) -> str:
        """Have an effect."""
        return world.change(what)

    @tool(risk="write", concurrency="safe")
    async def change(what: str) -> str:
        """A person is asked."""
        return world.change(what)

    return [send, change]


async def hold(folder: Path) -> None:
    log = open_log(folder / LOG)
    async with Runner(holding(World(folder, Points()), waits=True), log=log) as runner:
        handle = await runner.start(TASK, run_id=RUN_ID)
        try:
            say((await handle.result()).status)
        except LogFencedError:
            say("fenced")
    await log.close()


if __name__ == "__main__":
    asyncio.run(hold(Path(sys.argv[1])))
