"""The newest recorded runs of an agent, for a policy that is tried on them: so many runs, so many events, so long.
A run that is not what was written is left out, and named."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from ..audit.verify import verify
from ..domain.chain import Entry, decode_event
from ..domain.event import Event
from .index import Index
from .rows import RunQuery, RunRow

MAX_EVENTS = 100_000
_PAGE = 100

#: Which bound was reached; empty: none.
Stopped: TypeAlias = Literal["", "runs", "events", "time"]


class Newest(msgspec.Struct):
    events: list[Event] = []
    runs: int = 0
    left_out: list[str] = []
    stopped: Stopped = ""


async def read_newest(index: Index, agent: str, most: int, is_late: Callable[[], bool]) -> Newest:
    read, cursor = Newest(), ""
    while True:
        page = await index.runs(RunQuery(agent=agent, inside=True, limit=_PAGE, cursor=cursor))
        for row in page.rows:
            read.stopped = _bound(read, row, most, is_late)
            if read.stopped:
                return read
            await _add(index, row, read)
        cursor = page.next_cursor
        if not cursor:
            return read


def _bound(read: Newest, row: RunRow, most: int, is_late: Callable[[], bool]) -> Stopped:
    if read.runs + len(read.left_out) >= most:
        return "runs"
    if row.last_seq + 1 > MAX_EVENTS - len(read.events):
        return "events"
    return "time" if is_late() else ""


async def _add(index: Index, row: RunRow, read: Newest) -> None:
    entries = await index.log.read(row.run_id, -1, MAX_EVENTS)
    found = await asyncio.to_thread(_sound, row.run_id, entries)
    if isinstance(found, str):
        read.left_out.append(found)
    else:
        read.events += found
        read.runs += 1


def _sound(run_id: str, entries: Sequence[Entry]) -> list[Event] | str:
    flaw = verify(entries, run_id).flaw
    return f"{run_id}: {flaw.message}" if flaw else [decode_event(entry) for entry in entries]
