"""Runs inside calls that nobody waits for any more, and runs that cannot be read: start-up leaves order behind."""

import asyncio

from interlock import MemoryArtifacts, MemoryLog
from interlock.domain.chain import Entry
from interlock.domain.event import RunCancelled
from interlock.domain.ids import child_run_id
from interlock.log.interface import Claim
from interlock.runs.runner import Runner

from .support import agent_of, facts_of, start
from .test_children import World, boss_of, pair


async def test_a_run_inside_is_ended_at_start_up_when_whoever_ended_the_one_around_it_died() -> None:
    world, log = World(), MemoryLog()
    runner, handle = await start(pair(world), log)
    (question,) = (await handle.result()).questions
    around = await runner.app.open(handle._situation)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    await runner.app.cancel(around, "Enough.")
    await runner.close()

    async with Runner(pair(world), log=log, artifacts=MemoryArtifacts()) as again:
        assert await again.recover() == []

    (ended,) = await facts_of(RunCancelled, log, question.run_id)
    assert ended.message == "The run around it is over."


class Begun(MemoryLog):
    """The first entries of one run take as long to write as a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = ""
        self.writing = asyncio.Event()

    def append(self, run_id: str, entries: "list[Entry] | tuple[Entry, ...]", claim: Claim | None = None) -> None:  # type: ignore[override]
        super().append(run_id, entries, claim)

    async def release(self, claim: Claim) -> None:
        await super().release(claim)

    async def claim(self, run_id: str, *, force: bool = False) -> Claim:
        made = await super().claim(run_id, force=force)
        return made


async def test_nothing_is_left_of_a_run_inside_a_call_that_is_cancelled_as_it_begins() -> None:
    log = MemoryLog()
    begun = asyncio.Event()
    helper = agent_of("Fine.", name="helper")
    boss = boss_of(helper)
    runner, handle = await start(boss, log)
    inside = child_run_id(handle.run_id, "out")
    del begun

    await handle.cancel("Enough.")

    assert (await handle.result()).cancelled
    if await log.read(inside, limit=1):
        assert await facts_of(RunCancelled, log, inside)
    await runner.close()
