"""The events of a run as they are written, by any process. It reads only after a write."""

import asyncio
from collections.abc import AsyncGenerator
from math import inf

from ...domain.event import Event, decode_event
from ...history.fold import load_run
from ...runs.command_poller import POLL_SECONDS
from ...storage.event_log import EventLog

TERMINAL_EVENTS = frozenset(("run.completed", "run.degraded", "run.failed", "run.cancelled"))
_PAGE_EVENTS = 500


async def read_first_event(log: EventLog, run_id: str) -> Event:
    return decode_event((await log.read(run_id, limit=1))[0])


async def read_events(log: EventLog, run_id: str, after_seq: int = -1) -> AsyncGenerator[Event, None]:
    """Yield all current events."""
    while entries := await log.read(run_id, after_seq, _PAGE_EVENTS):
        for entry in entries:
            yield decode_event(entry)
        after_seq = entries[-1].seq


async def follow_events(log: EventLog, run_id: str, after_seq: int = -1) -> AsyncGenerator[Event, None]:
    """Yield all current events, and new ones, until the run ends."""
    version = log.version()
    ledger = (await load_run(log, run_id)).ledger
    last_seq = ledger.next_seq - 1
    if after_seq >= last_seq and ledger.is_over:
        return
    after_seq = min(after_seq, last_seq)
    while True:
        async for event in read_events(log, run_id, after_seq):
            yield event
            after_seq = event.seq
            if event.type in TERMINAL_EVENTS:
                return
        await wait_for_change(log, version)
        version = log.version()


async def wait_for_change(log: EventLog, version: int, seconds: float = inf) -> float:
    """Wait until the log changed since `version`, or the timeout. Return the seconds left."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while log.version() == version and loop.time() < end:  # noqa: ASYNC110 - other processes set no event
        await asyncio.sleep(POLL_SECONDS)
    return max(0.0, end - loop.time())
