"""The events of a run as they are written, by whichever process. It reads only when somebody wrote."""

import asyncio
from collections.abc import AsyncGenerator
from math import inf

from ...domain.chain import decode_event
from ...domain.event import Event
from ...history.fold import load
from ...runs.command_poller import LOOK_SECONDS
from ...storage.event_log import EventLog

ENDS = frozenset(("run.completed", "run.degraded", "run.failed", "run.cancelled"))
_PAGE = 500


async def first_event(log: EventLog, run_id: str) -> Event:
    return decode_event((await log.read(run_id, limit=1))[0])


async def events_of(log: EventLog, run_id: str, after_seq: int = -1) -> AsyncGenerator[Event, None]:
    """All that are there now."""
    while entries := await log.read(run_id, after_seq, _PAGE):
        for entry in entries:
            yield decode_event(entry)
        after_seq = entries[-1].seq


async def follow(log: EventLog, run_id: str, after_seq: int = -1) -> AsyncGenerator[Event, None]:
    """All that are there, and all that come, until the run ends."""
    seen = log.version()
    ledger = (await load(log, run_id)).ledger
    last_seq = ledger.next_seq - 1
    if after_seq >= last_seq and ledger.is_over:
        return
    after_seq = min(after_seq, last_seq)
    while True:
        async for event in events_of(log, run_id, after_seq):
            yield event
            after_seq = event.seq
            if event.type in ENDS:
                return
        await changed(log, seen)
        seen = log.version()


async def changed(log: EventLog, seen: int, seconds: float = inf) -> float:
    """Until somebody wrote anything since `seen`, or so many seconds are over. How many are left?"""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while log.version() == seen and loop.time() < end:  # noqa: ASYNC110 - other processes set no event
        await asyncio.sleep(LOOK_SECONDS)
    return max(0.0, end - loop.time())
