"""A loop that sends until it is cancelled: at once when it is woken, again with growing waits after a failure."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import time_ns

import msgspec


class RetryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Waits of a loop."""

    first_wait_seconds: float = 1.0
    max_wait_seconds: float = 60.0
    #: Poll interval when there is no notification.
    idle_seconds: float = 5.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    #: Nanoseconds since 1970.
    now: Callable[[], int] = time_ns


class RetryLoop:
    """The failures of a sender in a row, and how long to wait after them."""

    def __init__(self, options: RetryOptions) -> None:
        self._options = options
        self._wake_event = asyncio.Event()
        self.failures = 0
        #: What went wrong last, since the last success; empty: nothing.
        self.last_error = ""
        self.last_error_at = 0
        #: How long to wait when there is nothing to do now, if something will be due earlier than usual.
        self.idle_seconds = options.idle_seconds

    def wake(self) -> None:
        """End the wait of a loop that had nothing to do."""
        self._wake_event.set()

    async def run(self, step: Callable[[], Awaitable[float | None]]) -> None:
        """Run a step until cancelled. It returns the seconds to wait before the next one; None: until woken."""
        while True:
            self._wake_event.clear()
            try:
                wait = await step()
            except Exception as error:  # a full disk, a log that is closed for a moment, a bug: no reason to give up
                wait = self.record_failure(f"Reading or sending failed: {type(error).__name__}: {error}")
            if wait is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(self.idle_seconds, self._options.idle_seconds)):
                        await self._wake_event.wait()
            elif wait > 0:
                await self._options.sleep(wait)

    def record_success(self) -> None:
        """Forget the failures."""
        self.failures, self.last_error, self.last_error_at = 0, "", 0

    def record_failure(self, problem: str, retry_after_seconds: float = 0.0) -> float:
        """Record a failure. Return how long to wait, randomized so that many do not retry together."""
        self.failures += 1
        self.last_error, self.last_error_at = problem, self._options.now()
        doubled = self._options.first_wait_seconds * 2.0 ** min(self.failures - 1, 32)
        return max(
            retry_after_seconds, min(doubled, self._options.max_wait_seconds) * (0.5 + self._options.random() / 2)
        )
