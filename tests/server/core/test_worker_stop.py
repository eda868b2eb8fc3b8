"""A server stops: calls under way may end, runs are kept, and nothing of it is left in the process."""

import asyncio
import gc
import os
import threading
from pathlib import Path

import pytest

from interlock import SqliteLog, ToolDefinition, tool
from interlock.domain.event import CallObserved, InvocationCompleted, RunCancelled
from interlock.server.core.errors import UnavailableError
from interlock.server.core.runs.run_service import NewRun
from tests.runs.support import calls, facts

from .serving import (
    ADA,
    ASK_CHANGE,
    World,
    approve,
    asked,
    breath,
    create,
    kinds,
    scripted,
    serving,
    settings_of,
    status,
)


class Slow:
    """A tool that takes as long as a test wants."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.count = 0
        self.tool: ToolDefinition = tool(name="slow")(self._slow)

    async def _slow(self) -> str:
        """Take a while."""
        self.count += 1
        self.begun.set()
        await self.may_end.wait()
        return "done"


async def test_a_call_under_way_ends_and_its_run_goes_on_at_the_next_start(tmp_path: Path) -> None:
    slow = Slow()
    agent = scripted("slow", calls(("c1", "slow", {})), "Done.", tools=[slow.tool])
    async with SqliteLog(tmp_path / "runs.db") as log:
        async with serving(tmp_path, agent, log=log) as service:
            run_id = await create(service, "slow")
            await slow.begun.wait()
            stopping = asyncio.create_task(service.stop())
            while not service.worker.is_stopping:
                await breath()
            with pytest.raises(UnavailableError, match="about to stop"):
                await service.run_service.create(ADA, NewRun(agent="slow", task="One more."))
            slow.may_end.set()
            await stopping
        order = await kinds(log, run_id)
        assert order[-1] == "CallObserved"

        async with serving(tmp_path, agent, log=log) as service:
            await status(service, run_id, "COMPLETED")

    assert slow.count == 1


async def test_a_call_that_takes_too_long_is_cancelled_and_its_run_is_kept(tmp_path: Path) -> None:
    slow = Slow()
    agent = scripted("slow", calls(("c1", "slow", {})), "Done.", tools=[slow.tool])
    async with SqliteLog(tmp_path / "runs.db") as log:
        async with serving(tmp_path, agent, log=log, settings=settings_of(stop_seconds=0.05)) as service:
            run_id = await create(service, "slow")
            await slow.begun.wait()
        told = await facts(log, run_id)
        assert not any(isinstance(fact, RunCancelled) for fact in told)
        assert [fact.exit for fact in told if isinstance(fact, InvocationCompleted)] in ([], ["cancelled"])

        async with serving(tmp_path, agent, log=log) as service:
            await status(service, run_id, "COMPLETED")
            (observed,) = [fact for fact in await facts(log, run_id) if isinstance(fact, CallObserved)]

    assert not observed.observation.ok
    assert slow.count == 1


async def test_a_run_inside_a_call_is_kept_too(tmp_path: Path) -> None:
    slow = Slow()
    turns = (calls(("i1", "slow", {})), calls(("i2", "slow", {})), "Helped.")
    helper = scripted("helper", *turns, tools=[slow.tool])
    ask = calls(("out", "ask_helper", {"task": "Help."}))
    boss = scripted("boss", ask, "Done.", tools=[helper.as_tool()], policy=ASK_CHANGE)
    async with SqliteLog(tmp_path / "runs.db") as log:
        async with serving(tmp_path, boss, log=log) as service:
            run_id = await create(service, "boss")
            await slow.begun.wait()
            stopping = asyncio.create_task(service.stop())
            while not service.worker.is_stopping:
                await breath()
            slow.may_end.set()
            await stopping
            assert slow.count == 1

        async with serving(tmp_path, boss, log=log) as service:
            await status(service, run_id, "COMPLETED")

    assert slow.count == 2


async def test_a_server_that_stopped_leaves_no_task_no_thread_and_no_file(tmp_path: Path) -> None:
    world = World()
    async with SqliteLog(tmp_path / "runs.db") as log:
        await _serve_a_little(tmp_path, world, log)  # what is made once per process is made now
        before = _left()
        for _ in range(3):
            await _serve_a_little(tmp_path, world, log)
        after = _left()

    assert after == before


async def _serve_a_little(folder: Path, world: World, log: SqliteLog) -> None:
    async with serving(folder, world.one(), world.boss(), log=log) as service:
        (row,) = await asked(service, await create(service, "boss"))
        await approve(service, row)
        await asked(service, await create(service, "one"))


def _left() -> tuple[int, list[str], list[str]]:
    gc.collect()
    threads = [thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio_")]
    files = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name)]
    return len(asyncio.all_tasks()), sorted(threads), sorted(files)


def _is_open(name: str) -> bool:
    """The descriptor of the listing itself is gone already."""
    return os.path.lexists(f"/proc/self/fd/{name}")


async def test_a_server_that_never_started_stops_too(tmp_path: Path) -> None:
    async with SqliteLog(tmp_path / "runs.db") as log, serving(tmp_path, World().one(), log=log) as service:
        await service.stop()
        assert not service.is_started
