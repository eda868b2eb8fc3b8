"""A subscriber of events: first what the log has after a position, then what comes, without loss, gap or duplicate.

A reader is *behind* while it reads from the log. Right before it reads, it begins to queue live events: later ones are
in its queue, earlier ones are durable and so in the log. Duplicates are recognised by their position and dropped. A
reader that is too slow for its queue loses the queue and is behind again: it continues from the log, at its own pace,
and holds up no other. The same happens when a wait for the next item is cancelled, by a timeout for instance: the next
one begins where the last one ended.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from .live_event import LiveEvent

if TYPE_CHECKING:
    from .outputs import LiveOutput

#: What is kept for one reader at most; the events are shared by all of them.
MAX_QUEUED = 1_000
MAX_QUEUED_BYTES = 2 << 20
#: Of outputs, which are kept nowhere else: of more than this, a slow reader loses the oldest.
MAX_OUTPUTS = 1_000
#: Read from the log at a time.
PAGE_EVENTS = 200

#: The events of the log after a position, up to a maximum number.
PageLoader: TypeAlias = Callable[[int, int], Awaitable[list[LiveEvent]]]
#: Those of them that may be shown.
EventFilter: TypeAlias = Callable[[list[LiveEvent]], Awaitable[list[LiveEvent]]]


class EventReader:
    """An iterator over lists of events and outputs in order, never empty. It ends when the hub closes. Iterate once."""

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
        self._outputs: deque[LiveOutput] = deque(maxlen=MAX_OUTPUTS)
        self._wake_event = asyncio.Event()

    @property
    def queue_size(self) -> int:
        """Number of events not read yet."""
        return len(self._queue)

    def push(self, page: Sequence[LiveEvent]) -> None:
        """Queue new events. Never blocks."""
        if self._is_behind:
            return
        self._queue += page
        self._queued_bytes += sum(len(live.entry.body) for live in page)
        if len(self._queue) > MAX_QUEUED or self._queued_bytes > MAX_QUEUED_BYTES:
            self._drop_queue()
        self._wake_event.set()

    def push_output(self, output: "LiveOutput") -> None:
        """Queue an output, to be read after the event that it follows. Never blocks."""
        self._outputs.append(output)
        self._wake_event.set()

    def close(self) -> None:
        """End the reader."""
        self._is_closed = True
        self._wake_event.set()

    def __aiter__(self) -> "EventReader":
        return self

    async def __anext__(self) -> "list[LiveEvent | LiveOutput]":
        while not self._is_closed:
            try:
                shown = await self._read_next()
            except BaseException:
                self._drop_queue()
                raise
            if items := self._add_outputs(shown):
                return items
        raise StopAsyncIteration

    def _add_outputs(self, shown: list[LiveEvent]) -> "list[LiveEvent | LiveOutput]":
        """Return the events, each after the outputs that came before it, and then the outputs that follow the last."""
        if not self._outputs:
            return list(shown)
        items: list[LiveEvent | LiveOutput] = []
        for event in shown:
            items += self._take_outputs(event.entry.seq - 1)
            items.append(event)
        return items + self._take_outputs(self.cursor)

    def _take_outputs(self, seq: int) -> "list[LiveOutput]":
        outputs, taken = self._outputs, list["LiveOutput"]()
        while outputs and outputs[0].seq <= seq:
            taken.append(outputs.popleft())
        return taken

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
        has_output = bool(self._outputs) and self._outputs[0].seq <= self.cursor
        if not self._queue and not has_output:
            self._wake_event.clear()
            await self._wake_event.wait()
        page, self._queue, self._queued_bytes = self._queue, [], 0
        return page

    def _drop_queue(self) -> None:
        self._is_behind = True
        self._queue, self._queued_bytes = [], 0
