"""Runs inside calls that nobody waits for any more, and runs that cannot be read: start-up leaves order behind."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from interlock import CallContext, LogCorruptError, MemoryArtifacts, MemoryLog
from interlock.domain.event import LogEntry, RunCancelled
from interlock.domain.ids import child_run_id
from interlock.runs.runner import Runner
from interlock.storage.event_log import Lease
from interlock.testing.log_entries import append_entries

from .support import agent_of, calls, facts_of, start
from .test_children import World, boss_of, pair
from .test_stopping import Long

HOLDS = calls(("a", "long", {}))


async def test_a_run_inside_is_ended_at_start_up_when_whoever_ended_the_one_around_it_died() -> None:
    world, log = World(), MemoryLog()
    runner, handle = await start(pair(world), log)
    (question,) = (await handle.result()).questions
    await runner.app.cancel(await runner.app.open(CallContext(run_id=handle.run_id)), "Enough.")
    await runner.close()

    async with Runner(pair(world), log=log, artifacts=MemoryArtifacts()) as again:
        assert await again.recover() == []

    (ended,) = await facts_of(RunCancelled, log, question.run_id)
    assert ended.message == "The run around it is over."


class Begun(MemoryLog):
    """Tells when the events of a run inside a call are being written, and takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    def append(self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None) -> Any:
        super().append(run_id, entries, lease)
        if "." not in run_id or self.begun.is_set():
            return None
        self.begun.set()
        return asyncio.get_running_loop().create_future()


async def test_nothing_goes_on_of_a_run_inside_a_call_that_is_cancelled_as_it_begins() -> None:
    log = Begun()
    runner, handle = await start(boss_of(agent_of("Fine.", name="helper")), log)
    await log.begun.wait()

    await handle.cancel("Enough.")

    (ended,) = await facts_of(RunCancelled, log, child_run_id(handle.run_id, "out"))
    assert ended.message == "The call around it was stopped."
    await runner.close()


def altered(entry: LogEntry) -> LogEntry:
    body = entry.body.replace(b"Do it.", b"Do ill.") if entry.run_id == "damaged" else entry.body
    return LogEntry(entry.run_id, entry.seq, body, entry.hash)


async def test_a_damaged_run_does_not_keep_others_from_being_recovered() -> None:
    log, damaged = MemoryLog(), MemoryLog()
    for run_id in ("first", "damaged", "last"):
        runner = Runner(agent_of(HOLDS, "Done.", tools=[(long := Long()).tool]), log=log)
        await runner.start("Do it.", run_id=run_id)
        await long.running.wait()
        await runner.close()
        await append_entries(damaged, run_id, [altered(entry) for entry in await log.read(run_id)])

    async with Runner(agent_of(HOLDS, "Done.", tools=[Long().tool]), log=damaged) as again:
        handles = await again.recover()
        assert {handle.run_id: (await handle.result()).text for handle in handles} == {
            "first": "Done.",
            "last": "Done.",
        }
        with pytest.raises(LogCorruptError):
            await again.open("damaged")
