"""The engine: it decides when a run is looked at, and in which process. The log decides everything else.

An engine is never trusted with effects. It may look at a run too often, twice at once, or in two processes: the lease
of the run decides who continues it, and the events decide what is left to do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol, TypeAlias

import msgspec


class NextLook(msgspec.Struct, frozen=True):
    """When to look at a run again that is not over."""

    #: In nanoseconds since 1970; 0: when it is woken.
    at: int = 0
    #: The number of events with which it was found to wait; None: it was not opened.
    seq: int | None = None
    #: How long to wait after a failure; 0: there was none.
    retry_seconds: float = 0.0
    #: Another process has the run, or it was left behind for one: look at once, there.
    is_left: bool = False
    #: Look at this run instead, which drives it.
    driver: str = ""
    #: Why the run waits that cannot continue now, for people.
    reason: str = ""


#: Continues a run until it is over (None), or until it waits. Never raises.
Advance: TypeAlias = Callable[[str], Awaitable[NextLook | None]]


class Engine(Protocol):
    """Dispatches runs to a function that continues them."""

    @property
    def ready(self) -> asyncio.Event:
        """Set when runs are taken, and those that were left behind are found."""
        ...

    async def wake(self, run_ids: Sequence[str]) -> None:
        """Look at these runs soon. Waking a run twice is fine."""
        ...

    async def waiting_reasons(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Return why runs wait that could not continue: of these runs, those that do."""
        ...

    def retry_waiting(self) -> None:
        """Try again soon the runs that wait because something failed."""
        ...

    async def serve(self, advance: Advance, *, queues: Collection[str], concurrency: int) -> None:
        """Call `advance` for runs of these queues that can continue, for at most `concurrency` at a time, until `stop`.
        Raise `LogError` when the log cannot be used any more.
        """
        ...

    async def stop(self, seconds: float) -> None:
        """Take no more runs, and wait up to `seconds` for those under way."""
        ...
