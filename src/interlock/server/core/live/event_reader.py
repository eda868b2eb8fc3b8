"""One who follows events: first what the log has after a place, then what comes, without loss, gap or duplicate.

A reader is *behind* while it reads from the log. The moment before it reads, it begins to collect what comes: whatever
is told from then on is in its queue, and whatever was told before is durable, so it is in what it reads. What is in
both is known by its place and left out. A reader that is too slow for its queue loses the queue and is behind again: it
goes on from the log, at its own pace, and nobody waits for it or keeps anything for it. The same happens when waiting
for the next item is given up, after a timeout for instance: the next one begins where the last one ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from .live_event import LiveEvent

#: What is kept for one reader at most; the events are shared by all of them.
MAX_QUEUED = 1_000
MAX_QUEUED_BYTES = 2 << 20
#: Read from the log at a time.
PAGE_EVENTS = 200

#: The events of the log after a place, so many at most.
PageLoader: TypeAlias = Callable[[int, int], Awaitable[list[LiveEvent]]]
#: Those of them that may be shown.
EventFilter: TypeAlias = Callable[[list[LiveEvent]], Awaitable[list[LiveEvent]]]


class EventReader:
    """Iterate over it once: each item is a list of events in their order, never empty. It ends when the hub closes."""

    def __init__(
        self, after: int, position_of: Callable[[LiveEvent], int], read_after: PageLoader, filter_events: EventFilter
    ) -> None:
        #: The place of the last event that was seen.
        self.cursor = after
        self._position_of = position_of
        self._read_after = read_after
        self._filter_events = filter_events
        self._is_behind = True
        self._is_closed = False
        self._queue: list[LiveEvent] = []
        self._queued_bytes = 0
        self._wake_event = asyncio.Event()

    @property
    def queue_size(self) -> int:
        return len(self._queue)

    def push(self, page: Sequence[LiveEvent]) -> None:
        """There is something new. Never waits."""
        if self._is_behind:
            return
        self._queue += page
        self._queued_bytes += sum(len(live.entry.body) for live in page)
        if len(self._queue) > MAX_QUEUED or self._queued_bytes > MAX_QUEUED_BYTES:
            self._drop_queue()
        self._wake_event.set()

    def close(self) -> None:
        self._is_closed = True
        self._wake_event.set()

    def __aiter__(self) -> "EventReader":
        return self

    async def __anext__(self) -> list[LiveEvent]:
        while not self._is_closed:
            try:
                shown = await self._read_next()
            except BaseException:
                self._drop_queue()
                raise
            if shown:
                return shown
        raise StopAsyncIteration

    async def _read_next(self) -> list[LiveEvent]:
        page = await (self._read_from_log() if self._is_behind else self._read_from_queue())
        new_events = [live for live in page if self._position_of(live) > self.cursor]
        shown = await self._filter_events(new_events) if new_events else []
        if new_events:
            self.cursor = self._position_of(new_events[-1])
        return shown

    async def _read_from_log(self) -> list[LiveEvent]:
        self._is_behind = False
        page = await self._read_after(self.cursor, PAGE_EVENTS)
        if len(page) == PAGE_EVENTS:
            self._drop_queue()
        return page

    async def _read_from_queue(self) -> list[LiveEvent]:
        if not self._queue:
            self._wake_event.clear()
            await self._wake_event.wait()
        page, self._queue, self._queued_bytes = self._queue, [], 0
        return page

    def _drop_queue(self) -> None:
        self._is_behind = True
        self._queue, self._queued_bytes = [], 0
