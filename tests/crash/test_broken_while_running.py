"""The log breaks while handlers run: what started is unknown, what did not start never does, and nobody waits."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import (
    EventLog,
    Limits,
    LogError,
    LogWriteError,
    MemoryLog,
    SqliteLog,
    ToolDefinition,
    ToolRuntime,
    tool,
)
from interlock.domain.event import InvocationStarted
from tests.each import each
from tests.patience import HANG_SECONDS
from tests.storage.watched import watched
from tests.support import call, facts

from .faults import FaultyLog

LIMITS = Limits(drain_seconds=0.02)


def runtime_on(log: EventLog, *tools: ToolDefinition | Callable[..., Any]) -> ToolRuntime:
    return ToolRuntime(run_id="run_broken", tools=tools, log=log, limits=LIMITS)


async def codes_after_reopening(log: EventLog, turn: list[Any], *tools: ToolDefinition) -> dict[str, str]:
    runtime = runtime_on(log, *tools)
    result = await runtime.execute(turn)
    assert (await runtime.verify()).ok
    return {seen.call_id: seen.code for seen in result.observations}


class World:
    """Effects that are counted, and handlers that hang until they are released."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.running = asyncio.Event()
        self.release = asyncio.Event()
        self.thread_release = threading.Event()
        self._loop = asyncio.get_running_loop()

        @tool
        async def send(what: str) -> str:
            """One effect."""
            self.effects.append(what)
            return "sent"

        @tool
        async def hang(what: str) -> str:
            """One effect, and no end."""
            self.effects.append(what)
            self.running.set()
            await self.release.wait()
            return "never"

        @tool
        async def cling(what: str) -> str:
            """One effect, and cancelling it does not help."""
            self.effects.append(what)
            self.running.set()
            while not self.release.is_set():
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    continue
            return "never"

        @tool
        def block(what: str) -> str:
            """One effect, and a thread that cannot be stopped."""
            self.effects.append(what)
            self._loop.call_soon_threadsafe(self.running.set)
            assert self.thread_release.wait(2 * HANG_SECONDS)
            return "never"

        self.tools = (send, hang, cling, block)

    def end(self) -> None:
        self.release.set()
        self.thread_release.set()


@pytest.mark.requirement("P15")
@pytest.mark.parametrize("fault", ["refused", "lost"])
async def test_a_handler_whose_start_cannot_be_written_does_not_run(fault: str) -> None:
    world, memory = World(), MemoryLog()
    runtime = runtime_on(FaultyLog(memory, fault, 0), *world.tools)

    async with asyncio.timeout(HANG_SECONDS):
        for _ in range(2):
            with pytest.raises(LogError):
                await runtime.execute([call("1", "send", what="once")])

    assert world.effects == []
    assert await memory.run_ids() == []
    assert await codes_after_reopening(memory, [call("1", "send", what="once")], *world.tools) == {"1": "ok"}
    assert world.effects == ["once"]


@pytest.mark.requirement("P15", "D15")
async def test_a_start_that_was_written_after_all_is_unknown_and_not_run() -> None:
    world, memory = World(), MemoryLog()
    with pytest.raises(LogError):
        await runtime_on(FaultyLog(memory, "lied", 0), *world.tools).execute([call("1", "send", what="once")])

    codes = await codes_after_reopening(memory, [call("1", "send", what="once")], *world.tools)

    assert codes == {"1": "outcome_unknown"}, "it might have run, as far as the log can tell"
    assert world.effects == []


@pytest.mark.requirement("P07", "D15")
@pytest.mark.parametrize("fault", ["refused", "lost"])
@pytest.mark.parametrize("handler", ["hang", "block", "cling"])
async def test_a_handler_that_runs_when_the_log_breaks_is_unknown_after_reopening(handler: str, fault: str) -> None:
    world, memory = World(), MemoryLog()
    turn = [call("1", handler, what="first"), call("2", "send", what="second")]
    # The first append holds the start of the first call, the second one that of the second.
    runtime = runtime_on(FaultyLog(memory, fault, 1), *world.tools)
    try:
        async with asyncio.timeout(HANG_SECONDS):
            with pytest.raises(LogError):
                await runtime.execute(turn)
            await world.running.wait()
        assert world.effects == ["first"]
        codes = await codes_after_reopening(memory, turn, *world.tools)
    finally:
        world.end()

    assert codes == {"1": "outcome_unknown", "2": "ok"}
    assert world.effects == ["first", "second"]


async def test_nobody_waits_for_a_call_that_had_not_begun_when_the_log_broke() -> None:
    world, memory = World(), MemoryLog()
    turn = [call(f"{number}", "send", what=f"{number}") for number in range(5)]
    runtime = runtime_on(FaultyLog(memory, "refused", 0), *world.tools)

    async with asyncio.timeout(HANG_SECONDS):
        with pytest.raises(LogError):
            await runtime.execute(turn)
        await runtime.close()

    assert world.effects == []


@each("fault", ["refused", "lost", "lied"])
@each("handler", ["hang", "block", "cling"])
async def test_a_broken_log_is_reported_once_and_leaves_no_error_behind(handler: str, fault: str) -> None:
    world, memory = World(), MemoryLog()
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(context))
    runtime = runtime_on(FaultyLog(memory, fault, 1), *world.tools)

    try:
        async with asyncio.timeout(HANG_SECONDS):
            with pytest.raises(LogError):
                await runtime.execute([call("1", handler, what="first"), call("2", "send", what="second")])
            with pytest.raises(LogError):
                await runtime.resume()
            await runtime.close()
    finally:
        world.end()
    del runtime

    assert unseen == []


async def test_a_hanging_batch_ends_when_the_log_broke_in_front_of_somebody_else() -> None:
    world, memory = World(), MemoryLog()

    @tool(risk="read")
    async def look() -> str:
        """Change nothing, and be recorded with the next commit."""
        return "seen"

    cling = msgspec.structs.replace(world.tools[2], timeout_seconds=0.02)
    runtime = runtime_on(FaultyLog(memory, "refused", 1), cling, look)
    batch = asyncio.ensure_future(runtime.execute([call("1", "cling", what="first"), call("2", "look")]))
    try:
        async with asyncio.timeout(HANG_SECONDS):
            # On a machine that stalls, the start is in the second append: then the batch ends without it.
            running = asyncio.ensure_future(world.running.wait())
            await asyncio.wait((running, batch), return_when=asyncio.FIRST_COMPLETED)
            running.cancel()
            with pytest.raises(LogError):
                await runtime.replay()
            with pytest.raises(LogError):
                await batch
    finally:
        world.end()


@pytest.mark.requirement("P15")
async def test_what_reads_only_has_no_outcome_that_the_log_does_not_have() -> None:
    @tool(risk="read")
    async def look() -> str:
        """Change nothing."""
        return "seen"

    memory = MemoryLog()
    with pytest.raises(LogError):
        await runtime_on(FaultyLog(memory, "refused", 0), look).execute([call("1", "look")])

    assert await memory.run_ids() == []
    assert await codes_after_reopening(memory, [call("1", "look")], look) == {"1": "ok"}


def sync_fails(sql: str) -> None:
    if sql == "COMMIT":
        raise sqlite3.OperationalError("disk I/O error")


def disk_is_full(sql: str) -> None:
    if sql == "COMMIT":
        raise sqlite3.OperationalError("database or disk is full")


def out_of_memory(sql: str) -> None:
    if sql == "BEGIN IMMEDIATE":
        raise MemoryError


@pytest.mark.requirement("P15")
@pytest.mark.parametrize("fail", [sync_fails, disk_is_full, out_of_memory])
async def test_a_sqlite_log_that_cannot_write_stops_the_run_and_keeps_what_it_told(
    tmp_path: Path, fail: Callable[[str], None]
) -> None:
    world, armed = World(), threading.Event()
    factory = watched(lambda connection, sql: fail(sql) if armed.is_set() else None)
    runtime = runtime_on(SqliteLog(tmp_path / "log", factory=factory), *world.tools)
    first, second = [call("1", "send", what="first")], [call("2", "send", what="second")]
    told = await runtime.execute(first)
    armed.set()

    async with asyncio.timeout(HANG_SECONDS):
        for turn in (second, first, second):
            with pytest.raises(LogError):
                await runtime.execute(turn)
    await runtime.close()
    assert world.effects == ["first"]

    reopened = runtime_on(SqliteLog(tmp_path / "log"), *world.tools)
    assert (await reopened.execute(first)).observations == told.observations
    assert [seen.code for seen in (await reopened.execute(second)).observations] == ["ok"]
    assert (await reopened.verify()).ok
    await reopened.close()
    assert world.effects == ["first", "second"]


@pytest.mark.requirement("P15", "D15")
async def test_a_database_that_fills_up_keeps_every_outcome_that_was_told(tmp_path: Path) -> None:
    class Small(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql == "BEGIN IMMEDIATE":
                super().execute("PRAGMA max_page_count = 24")
            return super().execute(sql, parameters)

    world = World()
    turns = [[call(f"{number}", "send", what=f"{number}-" + "x" * 1000)] for number in range(200)]
    runtime = runtime_on(SqliteLog(tmp_path / "log", factory=Small), *world.tools)
    told: list[Any] = []

    async def fill() -> None:
        for turn in turns:
            told.extend((await runtime.execute(turn)).observations)

    with pytest.raises(LogWriteError, match="full"):
        await fill()
    await runtime.close()
    assert 0 < len(told) <= len(world.effects) <= len(told) + 1

    reopened = runtime_on(SqliteLog(tmp_path / "log"), *world.tools)
    for turn, before in zip(turns, told, strict=False):
        assert (await reopened.execute(turn)).observations == (before,)
    [stopped] = (await reopened.execute(turns[len(told)])).observations
    starts = [fact.call_id for fact in await facts(reopened) if isinstance(fact, InvocationStarted)]
    await reopened.close()

    assert stopped.code in ("ok", "outcome_unknown")
    assert len(world.effects) == len(set(world.effects)) == len(told) + 1
    assert len(starts) == len(set(starts)) == len(told) + 1
