"""Whose turn it is. Calls enter the line in model order; a turn is given when no earlier call conflicts.

A call that waits for a person keeps its place in line, so that a later call that conflicts with it waits behind it and
one that does not runs now.
"""

import asyncio
from asyncio import Future, get_running_loop
from collections import OrderedDict
from collections.abc import Iterator
from typing import Protocol, TypeAlias

import msgspec

from .domain.errors import InterlockError
from .domain.tool import Concurrency


class Claim(msgspec.Struct, frozen=True):
    """What a call needs to itself: nothing (`safe`), named resources (`keyed`) or everything (`exclusive`)."""

    concurrency: Concurrency
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


class Ticket(Protocol):
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
    def enter(self, call_id: str, claim: Claim) -> Ticket: ...


# An OrderedDict finds its first key at once even after many removals at the front; a dict searches for it.
_Tickets: TypeAlias = "OrderedDict[LocalTicket, None]"


class ResourceQueue:
    """Who claims one resource, in line order."""

    __slots__ = ("everyone", "key", "writers")

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.everyone: _Tickets = OrderedDict()
        self.writers: _Tickets = OrderedDict()

    def enter(self, place: "LocalTicket", writes: bool) -> None:
        if self.everyone if writes else self.writers:
            place.gates += 1
        self.everyone[place] = None
        if writes:
            self.writers[place] = None

    def leave(self, place: "LocalTicket") -> list["LocalTicket"]:
        """The places that this opens a gate for, in line order."""
        was_first = next(iter(self.everyone)) is place
        opened = self._readers_released_by(place) if place in self.writers else []
        del self.everyone[place]
        if was_first and not opened and self.writers:
            first = next(iter(self.everyone))
            if first in self.writers:
                opened.append(first)
        return opened

    def _readers_released_by(self, writer: "LocalTicket") -> list["LocalTicket"]:
        was_first_writer = next(iter(self.writers)) is writer
        del self.writers[writer]
        if not was_first_writer:
            return []
        released: list[LocalTicket] = []
        in_line = iter(self.everyone)
        for place in in_line:
            if place is writer:
                break
        for place in in_line:
            if place in self.writers:
                break
            released.append(place)
        return released

    def in_front_of(self, place: "LocalTicket") -> "Iterator[LocalTicket]":
        """The places in front that conflict with this one."""
        for other in self.everyone if place in self.writers else self.writers:
            if other.number >= place.number:
                return
            yield other


class LocalTicket(msgspec.Struct, eq=False, weakref=True):
    """A call's place in line. Made by `Line.enter`."""

    # A struct rather than a plain class: it is made once per call, in C.
    line: "LocalScheduler"
    call_id: str
    number: int
    gates: int = 0
    #: The lanes of its keys, beside the lane for everything.
    key_lanes: tuple[ResourceQueue, ...] = ()
    holds_turn: bool = False
    has_left: bool = False
    asked: "Future[None] | None" = None

    @property
    def behind(self) -> tuple[str, ...]:
        """The calls in front that conflict and are not done, in line order."""
        if not self.gates or self.has_left:
            return ()
        lanes = (self.line.everything, *self.key_lanes)
        in_front = {other.number: other.call_id for lane in lanes for other in lane.in_front_of(self)}
        return tuple(in_front[number] for number in sorted(in_front))

    def turn(self) -> "Future[None] | None":
        """None when the turn is given at once, else wait for it. To cancel the wait is to stop asking."""
        line = self.line
        if not self.gates and line.turns_out < line.cap and not self.holds_turn and not self.has_left:
            self.holds_turn = True
            line.turns_out += 1
            return None
        return self._wait()

    def _wait(self) -> "Future[None] | None":
        if self.has_left:
            raise InterlockError(f"call {self.call_id} has left the line and cannot have a turn")
        if self.holds_turn:
            return None
        if self.asked is None or self.asked.done():
            self.asked = get_running_loop().create_future()
        if not self.gates:
            self.line.ready[self] = None
        return self.asked

    def leave(self) -> None:
        """Done, or given up: whoever waits behind moves on. Leaving twice is fine."""
        if self.has_left:
            return
        self.has_left = True
        line = self.line
        if self.key_lanes or line.everything.writers:
            line.open_gates(self)
        else:
            del line.everything.everyone[self]
        if self.holds_turn:
            line.turns_out -= 1
        elif self.asked is not None:
            line.ready.pop(self, None)
            self.asked.cancel()
        if line.ready:
            line.give_turns()


class LocalScheduler:
    """Implements `Scheduler`."""

    def __init__(self, cap: int = 128) -> None:
        if cap < 1:
            raise ValueError(f"cap is {cap}; with less than one turn nothing would ever run")
        self.cap = cap
        self.turns_out = 0
        self.ready: _Tickets = OrderedDict()
        self.everything = ResourceQueue()
        self.keys: dict[str, ResourceQueue] = {}
        self._entered = 0

    def enter(self, call_id: str, claim: Claim) -> LocalTicket:
        self._entered = number = self._entered + 1
        place = LocalTicket(self, call_id, number)
        if claim.concurrency == "safe" and not self.everything.writers:
            self.everything.everyone[place] = None
            return place
        self.everything.enter(place, writes=claim.concurrency == "exclusive")
        if claim.concurrency == "keyed":
            place.key_lanes = self._enter_keys(place, claim)
        return place

    def _enter_keys(self, place: LocalTicket, claim: Claim) -> tuple[ResourceQueue, ...]:
        lanes: list[ResourceQueue] = []
        for key in claim.reads | claim.writes:
            lane = self.keys.get(key)
            if lane is None:
                lane = self.keys[key] = ResourceQueue(key)
            lane.enter(place, writes=key in claim.writes)
            lanes.append(lane)
        return tuple(lanes)

    def open_gates(self, place: LocalTicket) -> None:
        """Take the place out of its lanes; whoever has no gate left and has asked is ready."""
        opened = self.everything.leave(place)
        for lane in place.key_lanes:
            opened += lane.leave(place)
            if not lane.everyone:
                del self.keys[lane.key]
        place.key_lanes = ()
        for other in opened:
            other.gates -= 1
            if not other.gates and other.asked is not None:
                self.ready[other] = None

    def give_turns(self) -> None:
        while self.ready and self.turns_out < self.cap:
            place, _ = self.ready.popitem(last=False)
            if place.asked is not None and not place.asked.done():
                place.holds_turn = True
                self.turns_out += 1
                place.asked.set_result(None)
