"""Reads and verifies the events of a run, a page at a time: the memory needed is one page, and the hashes of the
events.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence

from ....audit.export import format_event_line
from ....domain.event import LogEntry, genesis_hash, next_hash
from ....storage.event_log import EventLog

PAGE_EVENTS = 200
PIECE_BYTES = 64 * 1024


class ChainReader:
    """The progress of reading a run, and whether its events form a valid chain."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        #: Of each event.
        self.hashes: list[bytes] = []
        self.is_intact = True
        self._head = genesis_hash(run_id)

    def feed(self, page: Sequence[LogEntry]) -> None:
        """Read a page. Raise `LogCorruptError` for an event that would not be one line of an export."""
        for entry in page:
            format_event_line(entry)
            is_expected = entry.seq == len(self.hashes) and entry.run_id == self.run_id
            if not is_expected or next_hash(self._head, entry.body) != entry.hash:
                self.is_intact = False
            self._head = entry.hash
            self.hashes.append(entry.hash)


async def read_chain(log: EventLog, run_id: str) -> ChainReader:
    """Read a run up to its current last event."""
    reader, last_seq = ChainReader(run_id), -1
    while page := await log.read(run_id, last_seq, PAGE_EVENTS):
        await asyncio.to_thread(reader.feed, page)
        last_seq = page[-1].seq
    return reader


class _EntryQueue:
    """A queue of events between the log and the threads that format them."""

    def __init__(self) -> None:
        self.is_complete = False
        self._entries: deque[LogEntry] = deque()

    @property
    def can_continue(self) -> bool:
        return bool(self._entries) or self.is_complete

    def add(self, page: Sequence[LogEntry], is_complete: bool) -> None:
        self._entries += page
        self.is_complete = is_complete

    def __iter__(self) -> Iterator[LogEntry]:
        while self._entries:
            yield self._entries.popleft()


async def stream_export(
    log: EventLog, run_id: str, count: int, write: Callable[[Iterable[LogEntry]], Iterator[bytes]]
) -> AsyncGenerator[bytes]:
    """Yield the first `count` events as `write` formats them, in chunks. Threads write and never wait: waiting in one
    for the log, which needs one itself, could deadlock.
    """
    queue, last_seq, remaining = _EntryQueue(), -1, count
    lines = write(queue)
    while not queue.is_complete:
        page = await log.read(run_id, last_seq, min(remaining, PAGE_EVENTS)) if remaining else []
        remaining -= len(page)
        queue.add(page, is_complete=not page or not remaining)
        last_seq = page[-1].seq if page else last_seq
        while piece := await asyncio.to_thread(_join_lines, lines, queue):
            yield piece


def _join_lines(lines: Iterator[bytes], queue: _EntryQueue) -> bytes:
    found, size = list[bytes](), 0
    while size < PIECE_BYTES and queue.can_continue and (line := next(lines, None)) is not None:
        found.append(line)
        size += len(line)
    return b"".join(found)
