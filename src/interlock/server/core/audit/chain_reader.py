"""The events of a run from its first to its last, a page at a time: a run of any length costs a page of memory, and the
hashes of its events while they are compared with what was signed."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence

from ....audit.export import event_line
from ....domain.chain import Entry, genesis, link
from ....storage.event_log import EventLog

PAGE_EVENTS = 200
PIECE_BYTES = 64 * 1024


class Trail:
    """How far a run is, and whether its events follow from each other."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        #: Of each event.
        self.hashes: list[bytes] = []
        self.is_chain = True
        self._head = genesis(run_id)

    def go_on(self, page: Sequence[Entry]) -> None:
        """`LogCorruptError` for an event that would not be one line of an export."""
        for entry in page:
            event_line(entry)
            is_next = entry.seq == len(self.hashes) and entry.run_id == self.run_id
            if not is_next or link(self._head, entry.body) != entry.hash:
                self.is_chain = False
            self._head = entry.hash
            self.hashes.append(entry.hash)


async def walk(log: EventLog, run_id: str) -> Trail:
    """To the last event that there is now."""
    trail, at = Trail(run_id), -1
    while page := await log.read(run_id, at, PAGE_EVENTS):
        await asyncio.to_thread(trail.go_on, page)
        at = page[-1].seq
    return trail


class _Feed:
    """Events for whoever makes lines of them, each of which takes one."""

    def __init__(self) -> None:
        self.is_whole = False
        self._waiting: deque[Entry] = deque()

    @property
    def can_go_on(self) -> bool:
        return bool(self._waiting) or self.is_whole

    def add(self, page: Sequence[Entry], is_whole: bool) -> None:
        self._waiting += page
        self.is_whole = is_whole

    def __iter__(self) -> Iterator[Entry]:
        while self._waiting:
            yield self._waiting.popleft()


async def written(
    log: EventLog, run_id: str, count: int, write: Callable[[Iterable[Entry]], Iterator[bytes]]
) -> AsyncGenerator[bytes]:
    """The first so many events as `write` has them, in good pieces. Threads write and never wait: whoever waits in one
    for the log, which needs one itself, would wait for ever beside enough others."""
    feed, at, left = _Feed(), -1, count
    lines = write(feed)
    while not feed.is_whole:
        page = await log.read(run_id, at, min(left, PAGE_EVENTS)) if left else []
        left -= len(page)
        feed.add(page, is_whole=not page or not left)
        at = page[-1].seq if page else at
        while piece := await asyncio.to_thread(_gather, lines, feed):
            yield piece


def _gather(lines: Iterator[bytes], feed: _Feed) -> bytes:
    found, size = list[bytes](), 0
    while size < PIECE_BYTES and feed.can_go_on and (line := next(lines, None)) is not None:
        found.append(line)
        size += len(line)
    return b"".join(found)
