"""Live events for everybody who follows: one look at the log for all of them.

While somebody follows or listens, one task looks every few milliseconds whether anybody wrote to the log, in whichever
process, and lets the index catch up; the index tells of every page, and each reader is given its part of it. Nobody
waits for a reader (`live_reader`).
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager

from ....domain.errors import InterlockError
from ..index.index import Index, Listener
from ..index.lists import sees
from ..index.rows import RunRow
from .event import LiveEvent, live
from .reader import Pick, Reader

MAX_READERS = 100
#: One key or person has at most one in so many of the places.
_SHARES = 2
LOOK_SECONDS = 0.02
#: After a look that failed.
_REST_SECONDS = 1.0
_MAX_KNOWN_RUNS = 10_000
_MAX_SEQ = (1 << 63) - 1


class TooManyReadersError(InterlockError):
    """As many as may follow events at once do so already. Try again later, or read them page by page."""


class Hub:
    def __init__(self, index: Index, *, max_readers: int = MAX_READERS, look_seconds: float = LOOK_SECONDS) -> None:
        #: Why the last look failed; empty: it did not.
        self.trouble = ""
        self._index = index
        self._max_readers = max_readers
        self._look_seconds = look_seconds
        #: By the run that they follow; None: all of them.
        self._readers: dict[str | None, set[Reader]] = {}
        #: By whose they are.
        self._places: Counter[str] = Counter()
        self._listening = 0
        self._looking: asyncio.Task[None] | None = None
        #: With those that were told to end and have not yet.
        self._looks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._end_told = index.on_change(self._tell)
        #: Of runs seen lately, whose they are. It does not change.
        self._known: OrderedDict[str, RunRow] = OrderedDict()

    @property
    def reader_count(self) -> int:
        return sum(map(len, self._readers.values()))

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """As `Index.on_change`, and the log is looked at for as long. Calling what is returned ends it."""
        end_told = self._index.on_change(listener)
        self._listening += 1
        self._look_or_not()
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                end_told()
                self._listening -= 1
                self._look_or_not()

        return end

    @asynccontextmanager
    async def reader(
        self,
        run_id: str | None = None,
        after: int | None = None,
        *,
        agents: Collection[str] | None = None,
        person: str | None = None,
        owner: str = "",
    ) -> AsyncGenerator[Reader]:
        """Follow one run after that `seq` (default: from its first event), or all runs after that position (default:
        from now on); of all runs only those of these agents or of this person, as in lists. `TooManyReadersError` when
        there are as many as there may be, in all or of this owner."""
        await self._index.catch_up()
        self._check_room(owner)
        new = self._of_run(run_id, after) if run_id is not None else self._of_all(after, agents, person)
        self._readers.setdefault(run_id, set()).add(new)
        self._places[owner] += 1
        self._look_or_not()
        if self._is_closed:
            new.end()
        try:
            yield new
        finally:
            new.end()
            self._readers[run_id].discard(new)
            if not self._readers[run_id]:
                del self._readers[run_id]
            self._places -= Counter((owner,))  # and those with none are gone from it
            self._look_or_not()

    async def close(self) -> None:
        """Readers come to their end, and nobody is told of anything by it any more."""
        self._is_closed = True
        self._end_told()
        for readers in self._readers.values():
            for reader in readers:
                reader.end()
        self._look_or_not()
        if self._looks:
            await asyncio.wait(self._looks)

    def _check_room(self, owner: str) -> None:
        share = max(1, self._max_readers // _SHARES)
        if self.reader_count >= self._max_readers:
            full = f"{self._max_readers} readers follow events already, which is as many as there may be."
        elif owner and self._places[owner] >= share:
            full = f"{owner} follows events {share} times already, which is as often as one may."
        else:
            return
        raise TooManyReadersError(f"{full} Nothing was lost: try again later, or read the events page by page.")

    def _look_or_not(self) -> None:
        wanted = (self._readers or self._listening) and not self._is_closed
        if wanted and self._looking is None:
            self._looking = asyncio.create_task(self._look())
            self._looks.add(self._looking)
            self._looking.add_done_callback(self._looks.discard)
        elif not wanted and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look(self) -> None:
        while True:
            try:
                await self._index.catch_up()
                self.trouble = ""
            except Exception as error:  # it may pass, and whoever follows would never know that nobody looks
                self.trouble = f"{type(error).__name__}: {error}"
            await asyncio.sleep(_REST_SECONDS if self.trouble else self._look_seconds)

    def _tell(self, page: Sequence[LiveEvent]) -> None:
        for reader in self._readers.get(None, ()):
            reader.push(page)
        if not self._readers.keys() - {None}:
            return
        by_run: dict[str, list[LiveEvent]] = {}
        for told in page:
            if told.entry.run_id in self._readers:
                by_run.setdefault(told.entry.run_id, []).append(told)
        for run_id, events in by_run.items():
            for reader in self._readers[run_id]:
                reader.push(events)

    def _of_run(self, run_id: str, after: int | None) -> Reader:
        async def read_after(seq: int, limit: int) -> list[LiveEvent]:
            return [LiveEvent(0, entry) for entry in await self._index.log.read(run_id, seq, limit)]

        start = -1 if after is None else max(-1, min(after, _MAX_SEQ))
        return Reader(start, lambda told: told.entry.seq, read_after, _all)

    def _of_all(self, after: int | None, agents: Collection[str] | None, person: str | None) -> Reader:
        async def read_after(position: int, limit: int) -> list[LiveEvent]:
            return [live(placed) for placed in await self._index.log.feed(position, limit)]

        async def visible(events: list[LiveEvent]) -> list[LiveEvent]:
            return [told for told in events if await self._sees(agents, person, told.entry.run_id)]

        now = self._index.position
        start = now if after is None else max(0, min(after, now))
        pick: Pick = _all if agents is None and person is None else visible
        return Reader(start, lambda told: told.position, read_after, pick)

    async def _sees(self, agents: Collection[str] | None, person: str | None, run_id: str) -> bool:
        row = self._known.get(run_id) or await self._index.run(run_id)
        if row is None:
            return False
        self._known[run_id] = row
        self._known.move_to_end(run_id)
        if len(self._known) > _MAX_KNOWN_RUNS:
            self._known.popitem(last=False)
        return sees(agents, person, row)


async def _all(events: list[LiveEvent]) -> list[LiveEvent]:
    return events
