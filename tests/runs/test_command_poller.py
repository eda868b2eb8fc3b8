"""When commands of other processes are looked for, and delivered."""

import asyncio

import pytest

from interlock import LogError, MemoryLog
from interlock.runs.command_poller import CommandPoller
from interlock.storage.event_log import QueuedCommand
from tests.patience import HANG_SECONDS


class Handler:
    """Take commands, and say when there was one."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.came = asyncio.Event()

    async def __call__(self, command: QueuedCommand) -> bool:
        self.taken.append(command.key)
        self.came.set()
        return True

    async def next(self) -> list[str]:
        async with asyncio.timeout(HANG_SECONDS):
            await self.came.wait()
        self.came.clear()
        return self.taken


class Log(MemoryLog):
    """Has the run, and fails as often as it is told to."""

    failures = 0

    def version(self) -> int:
        if self.failures:
            self.failures -= 1
            raise LogError("cannot read the log")
        return super().version()

    async def leave(self, key: str) -> None:
        self._runs.setdefault("run_1", [])
        await self.enqueue("run_1", QueuedCommand(key, b"{}"))


async def test_commands_are_delivered_once_and_in_order() -> None:
    log, handler = Log(), Handler()
    poller = CommandPoller(log)
    await log.leave("before")
    await poller.subscribe("run_1", handler)
    await log.leave("after")

    await handler.next()
    while handler.taken[-1] != "after":
        await handler.next()

    assert handler.taken == ["before", "after"]
    poller.unsubscribe("run_1")


async def test_a_notified_poller_looks_at_once() -> None:
    log, handler = Log(), Handler()
    poller = CommandPoller(log, poll_seconds=HANG_SECONDS * 10)
    await poller.subscribe("run_1", handler)
    await log.leave("now")
    poller.notify()

    assert await handler.next() == ["now"]
    poller.unsubscribe("run_1")


async def test_what_comes_during_a_delivery_is_delivered_after_it() -> None:
    log, handler = Log(), Handler()
    poller = CommandPoller(log, poll_seconds=HANG_SECONDS * 10)

    async def take(command: QueuedCommand) -> bool:
        if command.key == "first":
            await log.leave("second")
            poller.notify()
        return await handler(command)

    await poller.subscribe("run_1", take)
    await log.leave("first")
    poller.notify()
    while (await handler.next())[-1] != "second":
        pass

    assert handler.taken == ["first", "second"]
    poller.unsubscribe("run_1")


@pytest.mark.parametrize("failing", [True, False])
async def test_polling_continues_after_a_failure(failing: bool) -> None:
    """Of the log, or of what takes the command."""
    log, handler = Log(), Handler()
    poller = CommandPoller(log)

    async def take(command: QueuedCommand) -> bool:
        if not failing and not handler.taken:
            await handler(command)
            raise LogError("cannot write the log")
        return await handler(command)

    await poller.subscribe("run_1", take)
    log.failures = 2 if failing else 0
    await log.leave("one")
    await handler.next()
    if not failing:
        await handler.next()

    assert set(handler.taken) == {"one"}
    poller.unsubscribe("run_1")


async def test_nothing_is_polled_without_a_run() -> None:
    log, handler = Log(), Handler()
    poller = CommandPoller(log)
    await poller.subscribe("run_1", handler)
    poller.unsubscribe("run_1")
    await log.leave("late")
    poller.notify()

    assert (handler.taken, len(asyncio.all_tasks())) == ([], 1)
