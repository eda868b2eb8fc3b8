"""Scheduling of calls. Calls are queued in model order; a turn is given when no earlier call conflicts.

A call that waits for a person keeps its position, so that a later call that conflicts with it waits behind it and one
that does not runs now.

A queue belongs to one run. Tools that work in a folder also take a ticket in the folder's queue while they run, so that
runs in one folder never change it at the same time. How many handlers run at once is limited for all runs together.
"""

import asyncio
import sys
from asyncio import Future, get_running_loop
from collections import OrderedDict
from collections.abc import Iterator
from typing import Protocol, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from .domain.errors import InterlockError
from .domain.tool import Concurrency

#: How many handlers may run at once, however many calls a model sends.
DEFAULT_CONCURRENCY = 128


class LockRequest(msgspec.Struct, frozen=True):
    """What a call must not share: nothing (`safe`), named resources (`keyed`) or everything (`exclusive`)."""

    concurrency: Concurrency
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    #: Whether it counts as a running handler. One that only waits for a child run does not.
    takes_slot: bool = True


class Ticket(Protocol):
    """A call's position in the queue."""

    @property
    def blockers(self) -> tuple[str, ...]:
        """The earlier calls that conflict and are not done, in order."""
        ...

    def acquire(self) -> "asyncio.Future[None] | None":
        """Return None when the turn is given at once, else a future to wait for; cancelling it withdraws the
        request.
        """
        ...

    def release(self) -> None:
        """Leave the queue, done or not: later calls may proceed. Releasing twice is fine."""
        ...


class Scheduler(Protocol):
    """Queues the calls of a run."""

    def enqueue(self, call_id: str, request: LockRequest) -> Ticket: ...


# An OrderedDict finds its first key at once even after many removals at the front; a dict searches for it.
_Tickets: TypeAlias = "OrderedDict[LocalTicket, None]"


class ResourceQueue:
    """The calls that claim one resource, in order."""

    __slots__ = ("everyone", "key", "writers")

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.everyone: _Tickets = OrderedDict()
        self.writers: _Tickets = OrderedDict()

    def add(self, ticket: "LocalTicket", writes: bool) -> None:
        """Add a ticket as reader or writer. Block it if others are before it."""
        if self.everyone if writes else self.writers:
            ticket.blocker_count += 1
        self.everyone[ticket] = None
        if writes:
            self.writers[ticket] = None

    def remove(self, ticket: "LocalTicket") -> list["LocalTicket"]:
        """Remove a ticket, and return those that it no longer blocks, in order."""
        was_first = next(iter(self.everyone)) is ticket
        opened = self._readers_released_by(ticket) if ticket in self.writers else []
        del self.everyone[ticket]
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
        for ticket in in_line:
            if ticket is writer:
                break
        for ticket in in_line:
            if ticket in self.writers:
                break
            released.append(ticket)
        return released

    def blockers_of(self, ticket: "LocalTicket") -> "Iterator[LocalTicket]":
        """Yield the earlier tickets that conflict with this one."""
        for other in self.everyone if ticket in self.writers else self.writers:
            if other.number >= ticket.number:
                return
            yield other


class LocalTicket(msgspec.Struct, eq=False, weakref=True):
    """A call's position in the queue. Made by `LocalScheduler.enqueue`."""

    # A struct rather than a plain class: it is made once per call, in C.
    scheduler: "LocalScheduler"
    call_id: str
    number: int
    blocker_count: int = 0
    #: How many slots it takes while it has its turn.
    cost: int = 1
    #: The lanes of its keys, beside the lane for everything.
    key_queues: tuple[ResourceQueue, ...] = ()
    has_turn: bool = False
    is_released: bool = False
    waiter: "Future[None] | None" = None

    @property
    def blockers(self) -> tuple[str, ...]:
        """The earlier calls that conflict and are not done, in order."""
        if not self.blocker_count or self.is_released:
            return ()
        queues = (self.scheduler.global_queue, *self.key_queues)
        in_front = {other.number: other.call_id for queue in queues for other in queue.blockers_of(self)}
        return tuple(in_front[number] for number in sorted(in_front))

    def acquire(self) -> "Future[None] | None":
        """Return None when the turn is given at once, else a future to wait for. Cancelling it withdraws the
        request.
        """
        slots = self.scheduler.slots
        if (
            not self.blocker_count
            and slots.active_count + self.cost <= slots.cap
            and not self.has_turn
            and not self.is_released
        ):
            self.has_turn = True
            slots.active_count += self.cost
            return None
        return self._wait()

    def _wait(self) -> "Future[None] | None":
        if self.is_released:
            raise InterlockError(f"call {self.call_id} has left the line and cannot have a turn")
        if self.has_turn:
            return None
        if self.waiter is None or self.waiter.done():
            self.waiter = get_running_loop().create_future()
        if not self.blocker_count:
            self.scheduler.slots.ready[self] = None
        return self.waiter

    def release(self) -> None:
        """Leave the queue, done or not: later calls may proceed. Releasing twice is fine."""
        if self.is_released:
            return
        self.is_released = True
        line = self.scheduler
        if self.key_queues or line.global_queue.writers:
            line.remove_ticket(self)
        else:
            del line.global_queue.everyone[self]
        slots = line.slots
        if self.has_turn:
            slots.active_count -= self.cost
        elif self.waiter is not None:
            slots.ready.pop(self, None)
            self.waiter.cancel()
        if slots.ready:
            slots.grant_turns()


class HandlerSlots:
    """Limits how many handlers run at once. Runners that share one share its limit."""

    def __init__(self, cap: int = DEFAULT_CONCURRENCY) -> None:
        if cap < 1:
            raise ValueError(f"cap is {cap}; with less than one turn nothing would ever run")
        self.cap = cap
        self.active_count = 0
        #: Tickets without blockers that wait for a slot, in order.
        self.ready: _Tickets = OrderedDict()

    def grant_turns(self) -> None:
        """Give free slots to those that wait for one."""
        while self.ready and self.active_count < self.cap:
            ticket, _ = self.ready.popitem(last=False)
            self.grant(ticket)

    def grant(self, ticket: LocalTicket) -> None:
        """Give a ticket its turn, if it still waits for it."""
        if ticket.waiter is not None and not ticket.waiter.done():
            ticket.has_turn = True
            self.active_count += ticket.cost
            ticket.waiter.set_result(None)


class LocalScheduler:
    """Implementation of `Scheduler` for one process: the queue of one run."""

    def __init__(self, cap: int = DEFAULT_CONCURRENCY, slots: HandlerSlots | None = None) -> None:
        self.slots = HandlerSlots(cap) if slots is None else slots
        self.global_queue = ResourceQueue()
        self.queues_by_key: dict[str, ResourceQueue] = {}
        self._last_number = 0

    def enqueue(self, call_id: str, request: LockRequest) -> LocalTicket:
        """Queue a call for the locks it needs. Return its ticket."""
        self._last_number = number = self._last_number + 1
        ticket = LocalTicket(self, call_id, number)
        if not request.takes_slot:
            ticket.cost = 0
        if request.concurrency == "safe" and not self.global_queue.writers:
            self.global_queue.everyone[ticket] = None
            return ticket
        self.global_queue.add(ticket, writes=request.concurrency == "exclusive")
        if request.concurrency == "keyed":
            ticket.key_queues = self._enqueue_keys(ticket, request)
        return ticket

    def _enqueue_keys(self, ticket: LocalTicket, request: LockRequest) -> tuple[ResourceQueue, ...]:
        queues: list[ResourceQueue] = []
        for key in request.reads | request.writes:
            queue = self.queues_by_key.get(key)
            if queue is None:
                queue = self.queues_by_key[key] = ResourceQueue(key)
            queue.add(ticket, writes=key in request.writes)
            queues.append(queue)
        return tuple(queues)

    def remove_ticket(self, ticket: LocalTicket) -> None:
        """Remove the ticket from its queues; tickets without blockers that have asked become ready."""
        opened = self.global_queue.remove(ticket)
        for queue in ticket.key_queues:
            opened += queue.remove(ticket)
            if not queue.everyone:
                del self.queues_by_key[queue.key]
        ticket.key_queues = ()
        for other in opened:
            other.blocker_count -= 1
            if not other.blocker_count and other.waiter is not None:
                if other.cost:
                    self.slots.ready[other] = None
                else:
                    self.slots.grant(other)


_FOLDER_QUEUES: WeakValueDictionary[tuple[int, str], LocalScheduler] = WeakValueDictionary()


def folder_queue(folder: str) -> LocalScheduler:
    """Return the queue of a folder, shared by all runs of this event loop that work there. It has no separate limit:
    callers that enter it have a slot already.
    """
    key = (id(get_running_loop()), folder)
    queue = _FOLDER_QUEUES.get(key)
    if queue is None:
        queue = _FOLDER_QUEUES[key] = LocalScheduler(sys.maxsize)
    return queue
