"""Wait for a change of a log whose version is cheap to look at."""

import asyncio
from collections.abc import Callable

#: How late a write of another process is noticed.
POLL_SECONDS = 0.02


async def poll_for_change(version: Callable[[], int], seen: int, seconds: float) -> bool:
    """Look at the version until it is not `seen`, for up to `seconds`. Return True if it changed."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while version() == seen:
        left = until - loop.time()
        if left <= 0:
            return False
        await asyncio.sleep(min(POLL_SECONDS, left))
    return True
