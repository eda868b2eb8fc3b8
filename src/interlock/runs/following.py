"""Following a run from the log: whoever writes may be another process, so there is nothing to wait for but the log."""

import asyncio
from collections.abc import AsyncIterator, Callable

from ..domain.chain import decode_event
from ..domain.event import Event
from ..engine.notes import LOOK_SECONDS
from ..storage.event_log import EventLog


async def written_since(log: EventLog, seen: int, seconds: float) -> bool:
    """Has anybody written to the log since its version was `seen`? Waits that long for it."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while log.version() == seen:
        if loop.time() >= until:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True


async def follow(log: EventLog, run_id: str, after_seq: int, is_live: Callable[[], bool]) -> AsyncIterator[Event]:
    """The events after `after_seq`, and those that come for as long as it lives."""
    while True:
        live, seen = is_live(), log.version()
        for entry in await log.read(run_id, after_seq):
            yield decode_event(entry)
            after_seq = entry.seq
        if not live:
            return
        while is_live() and not await written_since(log, seen, LOOK_SECONDS):
            pass
