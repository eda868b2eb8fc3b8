"""How long tests wait, and how much work they accept."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from time import process_time
from typing import TypeVar

T = TypeVar("T")

#: Until a test gives up waiting for a fact. It only ends tests that would wait for ever: a green run on a busy machine
#: is far from it. It is shorter than `sleep 60`, which tests start to be ended, and than pytest's own timeout.
HANG_SECONDS = 50


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait for a fact of this event loop or of its threads that no event announces."""
    async with asyncio.timeout(HANG_SECONDS):
        while not holds():
            await asyncio.to_thread(os.sched_yield)


@contextmanager
def cpu_seconds_below(limit: float) -> Generator[None]:
    """Fail when this process works longer. Unlike time on a clock, a busy machine does not change it."""
    before = process_time()
    yield
    assert process_time() - before < limit


async def with_time_to_begin(attempt: Callable[[float], Awaitable[T]], has_begun: Callable[[T], bool]) -> T:
    """Return the outcome of an attempt with a timeout that is long enough for it to begin.

    For commands whose timeout counts from their start: on a busy machine a short one is over before they print a word.
    """
    for seconds in (0.3, 3.0):
        outcome = await attempt(seconds)
        if has_begun(outcome):
            return outcome
    return await attempt(HANG_SECONDS / 2)
