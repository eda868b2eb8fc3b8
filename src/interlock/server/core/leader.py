"""One of several servers leads: it alone starts scheduled runs, takes checkpoints and forwards events.

The leader has an advisory lock of the shared database, which ends with its connection. It uses the connection every
second; the database ends one that was not used for ten seconds, so a host that is stopped or cut off leads no longer,
and another server does. A leader that lost its lock notices that up to a second later. So what a leader does must be
right when two do it at once for a moment: runs have ids of their due times, checkpoints are numbered in a transaction,
and forwarded events arrive at least once.

A server with a database of its own always leads.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from .database.interface import LeaderLock

logger = logging.getLogger("interlock.server")

_POLL_SECONDS = 1.0


class Leadership:
    """Whether this server leads, and what happens when it begins and ends to."""

    def __init__(
        self, lock: LeaderLock, begin: Callable[[], Awaitable[None]], end: Callable[[], Awaitable[None]]
    ) -> None:
        self._lock = lock
        self._begin = begin
        self._end = end
        self._checking = asyncio.Lock()
        self.is_leading = False

    async def check(self) -> float:
        """Begin or end to lead, and return the seconds until the next check."""
        async with self._checking:
            is_held = await asyncio.to_thread(self._lock.hold)
            if is_held and not self.is_leading:
                try:
                    await self._begin()
                except BaseException:
                    await asyncio.to_thread(self._lock.release)  # another server may be able to
                    raise
                self.is_leading = True
                logger.info("This server leads now.")
            elif self.is_leading and not is_held:
                self.is_leading = False
                logger.warning("This server does not lead any more: its connection was lost.")
                await self._end()
        return _POLL_SECONDS

    async def stop(self) -> None:
        """Stop to lead, so that another server does at once."""
        async with self._checking:
            was_leading, self.is_leading = self.is_leading, False
            if was_leading:
                await self._end()
            await asyncio.to_thread(self._lock.release)
