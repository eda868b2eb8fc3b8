"""Whose turn it is. Calls enter the line in model order; a turn is given when no earlier call conflicts.

A call that waits for a person keeps its place in line, so that a later call that conflicts with it waits behind it and
one that does not runs now.
"""

import asyncio
from typing import Protocol

import msgspec

from ..domain.tool import Concurrency


class Claim(msgspec.Struct, frozen=True):
    """What a call needs to itself: nothing (`safe`), named resources (`keyed`) or everything (`exclusive`)."""

    concurrency: Concurrency
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


class Place(Protocol):
    """A call's place in line."""

    @property
    def behind(self) -> tuple[str, ...]:
        """The calls in front that conflict and are not done, in line order."""
        ...

    def turn(self) -> "asyncio.Future[None] | None":
        """None when the turn is given at once, else a future to wait for; cancelling it gives up asking."""
        ...

    def leave(self) -> None:
        """Done, or given up: whoever waits behind moves on. Leaving twice is fine."""
        ...


class Scheduler(Protocol):
    def enter(self, call_id: str, claim: Claim) -> Place: ...
