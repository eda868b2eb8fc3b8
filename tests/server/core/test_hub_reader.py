"""A reader between the log and what comes live: the moments at which an event could slip through."""

import asyncio

import pytest

from interlock import MemoryLog
from interlock.domain.event import WarningRaised
from interlock.server.core.live.event_reader import EventReader
from interlock.server.core.live.live_event import LiveEvent, to_live_event
from interlock.server.core.live.outputs import LiveOutput
from tests.patience import HANG_SECONDS

from .index_runs import begun, events_of


class Slow:
    """A log that is read, and a choice that is made, only when the test says so."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.run = begun(self.log, "run_1")
        self.is_reading, self.may_read = asyncio.Event(), asyncio.Event()
        self.is_picking, self.may_pick = asyncio.Event(), asyncio.Event()
        self.may_read.set()
        self.may_pick.set()
        self.reader = EventReader(0, lambda told: told.position, self._read_after, self._pick)

    async def _read_after(self, position: int, limit: int) -> list[LiveEvent]:
        found = [to_live_event(placed) for placed in await self.log.feed(position, limit)]
        self.is_reading.set()
        await self.may_read.wait()
        return found

    async def _pick(self, events: list[LiveEvent]) -> list[LiveEvent]:
        self.is_picking.set()
        await self.may_pick.wait()
        return events

    async def write(self) -> None:
        """One event, told to the reader when it is durable."""
        self.run.add(WarningRaised(message="Look."))
        self.reader.push([to_live_event(placed) for placed in (await self.log.feed())[-1:]])

    async def take(self) -> list[int]:
        async with asyncio.timeout(HANG_SECONDS):
            return [told.position for told in events_of(await anext(self.reader))]


async def test_what_is_told_while_the_log_is_read_follows_what_was_read() -> None:
    slow = Slow()
    slow.may_read.clear()
    first = asyncio.create_task(slow.take())
    await slow.is_reading.wait()
    await slow.write()
    slow.may_read.set()

    assert await first == [1, 2]
    assert await slow.take() == [3]


async def test_what_was_read_and_is_then_told_is_not_given_twice() -> None:
    slow = Slow()
    assert await slow.take() == [1, 2]
    slow.reader.push([to_live_event(placed) for placed in await slow.log.feed()])
    await slow.write()

    assert await slow.take() == [3]


@pytest.mark.parametrize("from_queue", [False, True])
async def test_an_item_that_nobody_waits_for_any_more_is_in_the_next_one(from_queue: bool) -> None:
    slow = Slow()
    if from_queue:
        assert await slow.take() == [1, 2]
        await slow.write()
    slow.is_picking.clear()
    slow.may_pick.clear()
    given_up = asyncio.create_task(slow.take())
    await slow.is_picking.wait()
    given_up.cancel()
    await asyncio.wait([given_up])
    slow.may_pick.set()

    assert await slow.take() == ([3] if from_queue else [1, 2])


async def test_giving_up_while_the_log_is_read_loses_nothing() -> None:
    slow = Slow()
    slow.may_read.clear()
    given_up = asyncio.create_task(slow.take())
    await slow.is_reading.wait()
    given_up.cancel()
    await asyncio.wait([given_up])
    await slow.write()
    slow.may_read.set()

    assert await slow.take() == [1, 2, 3]


async def test_outputs_between_two_reads_are_read() -> None:
    slow = Slow()
    assert await slow.take() == [1, 2]
    early, late = (LiveOutput("run_1", seq, "model.delta", {"offset": 0, "text": "Hello"}) for seq in (2, 3))
    slow.reader.push_output(early)

    async with asyncio.timeout(HANG_SECONDS):
        assert await anext(slow.reader) == [early]
    slow.reader.push_output(late)  # it follows an event that the reader does not have yet
    reading = asyncio.create_task(anext(slow.reader))
    await slow.write()

    async with asyncio.timeout(HANG_SECONDS):
        items = await reading
    assert (len(events_of(items)), items[-1]) == (1, late)
