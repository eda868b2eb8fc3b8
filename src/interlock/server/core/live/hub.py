"""Live events for all subscribers, with one reader of the log for all of them.

While there are subscribers, one task waits for changes of the log, lets the index catch up, and gives each reader its
part of every page. Nothing waits for a reader (`event_reader`).
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, nullcontext

from ....domain.errors import InterlockError
from ..index.rows import RunRow
from ..index.run_index import IndexListener, RunIndex
from ..index.statements import is_visible
from .event_reader import EventFilter, EventReader
from .live_event import LiveEvent, to_live_event
from .outputs import RunOutputs

MAX_READERS = 100
#: One key or person has at most one in so many of the places.
_MIN_OWNERS = 2
POLL_SECONDS = 0.02
#: While there is much to read, so many times as long as it took passes before the next look, but not more than this.
_BUSY_FACTOR = 4
_MAX_POLL_SECONDS = 0.1
_MAX_WAIT_SECONDS = 1.0
#: After a look that failed.
_RETRY_SECONDS = 1.0
_MAX_CACHED_RUNS = 10_000
_MAX_SEQ = (1 << 63) - 1


class TooManyReadersError(InterlockError):
    """The limit of concurrent readers is reached: of all, or of one owner. Try again later, or read page by page."""

    def __init__(self, problem: str, *, is_of_owner: bool) -> None:
        super().__init__(f"{problem} Nothing was lost: try again later, or read the events page by page.")
        self.is_of_owner = is_of_owner


class EventHub:
    """Distributes live events to readers and listeners."""

    def __init__(self, index: RunIndex, *, max_readers: int = MAX_READERS, poll_seconds: float = POLL_SECONDS) -> None:
        #: Why the last look failed; empty: it did not.
        self.last_error = ""
        self._index = index
        self._max_readers = max_readers
        self._poll_seconds = poll_seconds
        #: By the run that they follow; None: all of them.
        self._readers: dict[str | None, set[EventReader]] = {}
        #: By whose they are.
        self._readers_by_owner: Counter[str] = Counter()
        self._listener_count = 0
        self._poll_task: asyncio.Task[None] | None = None
        #: Including those that were asked to end and have not yet.
        self._poll_tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._unsubscribe = index.subscribe(self._dispatch)
        #: Owners of recently seen runs. They do not change.
        self._run_rows: OrderedDict[str, RunRow] = OrderedDict()
        #: What the runs of this process say while they run.
        self.outputs = RunOutputs()

    @property
    def reader_count(self) -> int:
        """Number of readers."""
        return sum(map(len, self._readers.values()))

    def subscribe(self, listener: IndexListener) -> Callable[[], None]:
        """Subscribe like `RunIndex.subscribe`, and poll the log meanwhile. Call the returned function to
        unsubscribe.
        """
        unsubscribe = self._index.subscribe(listener)
        self._listener_count += 1
        self._update_polling()
        is_ended = False

        def end() -> None:
            nonlocal is_ended
            if not is_ended:
                is_ended = True
                unsubscribe()
                self._listener_count -= 1
                self._update_polling()

        return end

    @asynccontextmanager
    async def open_reader(  # noqa: PLR0913 - every keyword is explicit
        self,
        run_id: str | None = None,
        after: int | None = None,
        *,
        agents: Collection[str] | None = None,
        person: str | None = None,
        owner: str = "",
        with_outputs: bool = False,
    ) -> AsyncGenerator[EventReader]:
        """Follow one run after that `seq` (default: from its first event), `with_outputs` too; or all runs after that
        position (default: from now on), filtered by agents or person as in lists. Raise `TooManyReadersError` when the
        limit is reached, in total or of this owner.
        """
        await self._index.catch_up()
        self._check_capacity(owner)
        new = (
            self._create_run_reader(run_id, after)
            if run_id is not None
            else self._create_feed_reader(after, agents, person)
        )
        self._readers.setdefault(run_id, set()).add(new)
        self._readers_by_owner[owner] += 1
        self._update_polling()
        if self._is_closed:
            new.close()
        outputs = self.outputs.attach(run_id, new) if with_outputs and run_id is not None else nullcontext()
        try:
            with outputs:
                yield new
        finally:
            new.close()
            self._readers[run_id].discard(new)
            if not self._readers[run_id]:
                del self._readers[run_id]
            self._readers_by_owner -= Counter((owner,))  # and those with none are gone from it
            self._update_polling()

    async def close(self) -> None:
        """End all readers and subscriptions."""
        self._is_closed = True
        self._unsubscribe()
        for readers in self._readers.values():
            for reader in readers:
                reader.close()
        self._update_polling()
        if self._poll_tasks:
            await asyncio.wait(self._poll_tasks)

    def _check_capacity(self, owner: str) -> None:
        share = max(1, self._max_readers // _MIN_OWNERS)
        if self.reader_count >= self._max_readers:
            problem = f"{self._max_readers} readers follow events already, which is as many as there may be."
            raise TooManyReadersError(problem, is_of_owner=False)
        if owner and self._readers_by_owner[owner] >= share:
            problem = f"{owner} follows events {share} times already, which is as often as one may."
            raise TooManyReadersError(problem, is_of_owner=True)

    def _update_polling(self) -> None:
        is_needed = (self._readers or self._listener_count) and not self._is_closed
        if is_needed and self._poll_task is None:
            self._poll_task = asyncio.create_task(self._poll())
            self._poll_tasks.add(self._poll_task)
            self._poll_task.add_done_callback(self._poll_tasks.discard)
        elif not is_needed and self._poll_task is not None:
            self._poll_task.cancel()
            self._poll_task = None

    async def _poll(self) -> None:
        """Catch up when something was written, and again at the earliest after `poll_seconds`; later when that took
        long, so that more events share a pass.
        """
        log, loop = self._index.log, asyncio.get_running_loop()
        while True:
            seen, began = log.version(), loop.time()
            pause = self._poll_seconds
            try:
                await self._index.catch_up()
                self.last_error = ""
                pause = max(pause, min(_BUSY_FACTOR * (loop.time() - began), _MAX_POLL_SECONDS))
                await log.wait_for_change(seen, _MAX_WAIT_SECONDS)
            except Exception as error:  # it may pass, and subscribers would not notice that polling stopped
                self.last_error = f"{type(error).__name__}: {error}"
                await asyncio.sleep(_RETRY_SECONDS)
            await asyncio.sleep(max(0.0, began + pause - loop.time()))

    def _dispatch(self, page: Sequence[LiveEvent]) -> None:
        for reader in self._readers.get(None, ()):
            reader.push(page)
        if not self._readers.keys() - {None}:
            return
        by_run: dict[str, list[LiveEvent]] = {}
        for event in page:
            if event.entry.run_id in self._readers:
                by_run.setdefault(event.entry.run_id, []).append(event)
        for run_id, events in by_run.items():
            for reader in self._readers[run_id]:
                reader.push(events)

    def _create_run_reader(self, run_id: str, after: int | None) -> EventReader:
        async def read_after(seq: int, limit: int) -> list[LiveEvent]:
            return [LiveEvent(0, entry) for entry in await self._index.log.read(run_id, seq, limit)]

        start = -1 if after is None else max(-1, min(after, _MAX_SEQ))
        return EventReader(start, lambda told: told.entry.seq, read_after, _keep_all)

    def _create_feed_reader(self, after: int | None, agents: Collection[str] | None, person: str | None) -> EventReader:
        async def read_after(position: int, limit: int) -> list[LiveEvent]:
            return [to_live_event(placed) for placed in await self._index.log.feed(position, limit)]

        async def visible(events: list[LiveEvent]) -> list[LiveEvent]:
            return [event for event in events if await self._is_visible(agents, person, event.entry.run_id)]

        now = self._index.position
        start = now if after is None else max(0, min(after, now))
        filter_events: EventFilter = _keep_all if agents is None and person is None else visible
        return EventReader(start, lambda told: told.position, read_after, filter_events)

    async def _is_visible(self, agents: Collection[str] | None, person: str | None, run_id: str) -> bool:
        row = self._run_rows.get(run_id) or await self._index.get_run(run_id)
        if row is None:
            return False
        self._run_rows[run_id] = row
        self._run_rows.move_to_end(run_id)
        if len(self._run_rows) > _MAX_CACHED_RUNS:
            self._run_rows.popitem(last=False)
        return is_visible(agents, person, row)


async def _keep_all(events: list[LiveEvent]) -> list[LiveEvent]:
    return events
