"""The events of a run from its first to its last, a page at a time: a run of any length costs a page of memory, and the
hashes of its events while they are compared with what was signed."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence

from ....audit.export import format_event_line
from ....domain.event import LogEntry, genesis_hash, next_hash
from ....storage.event_log import EventLog

PAGE_EVENTS = 200
PIECE_BYTES = 64 * 1024


class ChainReader:
    """How far a run is, and whether its events follow from each other."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        #: Of each event.
        self.hashes: list[bytes] = []
        self.is_intact = True
        self._head = genesis_hash(run_id)

    def feed(self, page: Sequence[LogEntry]) -> None:
        """`LogCorruptError` for an event that would not be one line of an export."""
        for entry in page:
            format_event_line(entry)
            is_expected = entry.seq == len(self.hashes) and entry.run_id == self.run_id
            if not is_expected or next_hash(self._head, entry.body) != entry.hash:
                self.is_intact = False
            self._head = entry.hash
            self.hashes.append(entry.hash)


async def read_chain(log: EventLog, run_id: str) -> ChainReader:
    """To the last event that there is now."""
    reader, last_seq = ChainReader(run_id), -1
    while page := await log.read(run_id, last_seq, PAGE_EVENTS):
        await asyncio.to_thread(reader.feed, page)
        last_seq = page[-1].seq
    return reader


class _EntryQueue:
    """Events for whoever makes lines of them, each of which takes one."""

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
    """The first so many events as `write` has them, in good pieces. Threads write and never wait: whoever waits in one
    for the log, which needs one itself, would wait for ever beside enough others."""
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
