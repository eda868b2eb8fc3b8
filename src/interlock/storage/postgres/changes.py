"""The version of a log in Postgres: a number of this process, which its own writes and notifications raise."""

import asyncio
from contextlib import suppress
from threading import Lock


class ChangeSignal:
    """Counts changes, and wakes those who wait for one. Used by all threads of a log."""

    def __init__(self) -> None:
        self.version = 0
        self._lock = Lock()
        self._waiters: set[asyncio.Future[None]] = set()

    def bump(self) -> None:
        """Count a change."""
        with self._lock:
            self.version += 1
            waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            with suppress(RuntimeError):  # its loop is closed, so no one waits any more
                waiter.get_loop().call_soon_threadsafe(_finish, waiter)

    async def wait(self, seen: int, seconds: float) -> bool:
        """Wait for a version other than `seen`. Return False if there is none within `seconds`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self.version != seen:
                return True
            self._waiters.add(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiters.discard(waiter)
        return True


def _finish(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
