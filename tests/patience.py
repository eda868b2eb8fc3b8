"""How long tests wait, and how much work they accept."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

#: Until a test gives up waiting for a fact. It only ends tests that would wait for ever: a green run on a busy machine
#: is far from it. It is shorter than `sleep 60`, which tests start to be ended, and than pytest's own timeout.
HANG_SECONDS = 50


def _pauses() -> Generator[float]:
    """How long to wait between looks. Without a pause, looking takes the processor from what is waited for."""
    seconds = 0.001
    while True:
        yield seconds
        seconds = min(1.5 * seconds, 0.05)


async def eventually(look: Callable[[], T]) -> T:
    """Return what is found first: a fact of this process or of another one that no event announces."""

    async def read() -> T:
        return look()

    return await eventually_read(read)


async def eventually_read(read: Callable[[], Awaitable[T]]) -> T:
    """Return what is read first, as `eventually` does."""
    async with asyncio.timeout(HANG_SECONDS):
        for pause in _pauses():
            if found := await read():
                return found
            await asyncio.sleep(pause)  # noqa: TID251 - here only
    raise AssertionError("it looks again for ever")


def wait_until(look: Callable[[], T]) -> T:
    """Return what is found first, where there is no event loop."""
    return asyncio.run(eventually(look))


@contextmanager
def cpu_seconds_below(limit: float) -> Generator[None]:
    """Fail when this process works longer. Unlike time on a clock, a busy machine does not change it."""
    before = time.process_time()
    yield
    assert time.process_time() - before < limit


async def with_time_to_begin(attempt: Callable[[float], Awaitable[T]], has_begun: Callable[[T], bool]) -> T:
    """Return the outcome of an attempt with a timeout that is long enough for it to begin.

    For commands whose timeout counts from their start: on a busy machine a short one is over before they print a word.
    """
    for seconds in (0.3, 3.0):
        outcome = await attempt(seconds)
        if has_begun(outcome):
            return outcome
    return await attempt(HANG_SECONDS / 2)
