"""Sends every event of the log to one destination: in order, at least once, for as long as it takes.

What a crash can do. The end of a batch is written down before it is sent, and the position after it was taken. So
after a kill at any point the same batch is sent again under the same delivery, and nothing is passed over. The log is
the queue: nothing is copied, and a receiver that is away for a week costs nothing.

What a receiver can do. While it does not answer, or says that it cannot now, the batch is sent again with growing
waits. When it does not want a batch, the batch is halved until the event is found that it does not want. That one is
tried a few times more and then set aside, with its place in the log and the reason, for a person to look at and
`retry`. An event that is set aside is the only thing that ever comes out of order.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import time_ns
from typing import assert_never

import msgspec

from ....storage.event_log import EventLog, Placed
from ..database import Database
from .destination import Destination, kind_of
from .gathering import Gathered, Gathering
from .interface import Delayed, Outcome, Rejected, Render, Sender, Sent
from .positions import Position, Positions, SetAside

#: Counting what waits stops here.
MAX_WAITING_COUNTED = 1000


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    batch_events: int = 500
    batch_bytes: int = 512 * 1024
    #: So often an event is offered to a receiver that does not want it.
    tries: int = 5
    first_wait_seconds: float = 1.0
    max_wait_seconds: float = 60.0
    #: How long to wait for news before looking without any.
    idle_seconds: float = 5.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    #: Nanoseconds since 1970.
    now: Callable[[], int] = time_ns


class ForwardStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    schema: str
    #: The place in the feed of all runs up to which everything was dealt with.
    position: int
    #: Events behind it, counted up to `MAX_WAITING_COUNTED`, and the time of the oldest (0: there is none).
    waiting: int
    oldest_waiting_at: int
    #: When the receiver last took something; 0: never.
    last_success_at: int
    #: What went wrong last, since the last success; empty: nothing.
    last_error: str
    last_error_at: int
    failures: int
    set_aside: int


class RunForwarded(msgspec.Struct, frozen=True, kw_only=True):
    """What came of sending one run's events now."""

    run_id: str
    destination: str
    #: Events that the receiver took, and events that the run has.
    sent: int
    total: int
    #: Why not all were sent; empty: they were.
    problem: str = ""


class Forwarder:
    def __init__(  # noqa: PLR0913 - what it reads, where it writes, where it sends, and how
        self,
        log: EventLog,
        db: Database,
        destination: Destination,
        render: Render,
        *,
        sender: Sender,
        pace: Pace | None = None,
    ) -> None:
        self._log = log
        self._positions = Positions(db, destination.name)
        self._destination = destination
        self._gathering = Gathering(log, destination, render)
        self._sender = sender
        self._pace = pace or Pace()
        self._at: Position | None = None
        self._under_way: Gathered | None = None
        self._batch_events = self._pace.batch_events
        #: In a row, and how often the event under way was not wanted.
        self._failures = 0
        self._refusals = 0
        self._last_error = ""
        self._last_error_at = 0
        self._sending = asyncio.Lock()
        self._news = asyncio.Event()

    @property
    def name(self) -> str:
        return self._destination.name

    def wake(self) -> None:
        """There may be new events."""
        self._news.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            self._news.clear()
            try:
                wait = await self.step()
            except Exception as error:  # a full disk, a log that is closed for a moment, a bug: no reason to give up
                self._under_way = None
                wait = self._failed(f"The events could not be read or sent: {type(error).__name__}: {error}")
            if wait is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pace.idle_seconds):
                        await self._news.wait()
            elif wait > 0:
                await self._pace.sleep(wait)

    async def step(self) -> float | None:
        """Send the next batch once. How many seconds to wait before the next step; None: there is nothing to send."""
        gathered = self._under_way or await self._gather()
        if gathered is None:
            return None
        outcome = await self._send(gathered)
        match outcome:
            case Sent():
                return await self._done(gathered)
            case Delayed(problem, retry_after_seconds):
                return self._failed(problem, retry_after_seconds)
            case Rejected(problem):
                return await self._unwanted(gathered, problem)
            case _:
                assert_never(outcome)

    async def status(self) -> ForwardStatus:
        at = await self._position()
        waiting = await self._log.feed(at.position, MAX_WAITING_COUNTED)
        return ForwardStatus(
            name=self.name,
            kind=kind_of(self._destination),
            schema=self._destination.schema,
            position=at.position,
            waiting=len(waiting),
            oldest_waiting_at=_time_of(waiting[0]) if waiting else 0,
            last_success_at=at.sent_at,
            last_error=self._last_error,
            last_error_at=self._last_error_at,
            failures=self._failures,
            set_aside=await self._positions.count_set_aside(),
        )

    async def set_aside(self, after: int = 0, limit: int = 100) -> list[SetAside]:
        """The events that this destination has not got, by their place in the feed."""
        return await self._positions.set_aside(after, limit)

    async def retry(self, position: int) -> Outcome:
        """Offer an event that was set aside once more. It stays set aside unless it is taken."""
        found = await self._positions.set_aside(position - 1, 1)
        if not found or found[0].position != position:
            return Rejected(f"No event at {position} is set aside. Nothing was sent.")
        placed = await self._log.feed(position - 1, 1)
        gathered = await self._gathering.gather(placed, self._pace.batch_bytes, self._pace.now())
        if gathered is None or gathered.unreadable:
            return Rejected(gathered.unreadable[0].problem if gathered else "The log has no such event.")
        outcome = await self._send(gathered)
        if isinstance(outcome, Sent):
            await self._positions.put_back(position)
        return outcome

    async def forward_run(self, run_id: str) -> RunForwarded:
        """Send all events of one run now, whatever was sent before. It stops where the receiver does not go on."""
        entries = await self._log.read(run_id)
        told = RunForwarded(run_id=run_id, destination=self.name, sent=0, total=len(entries))
        if not entries:
            return msgspec.structs.replace(told, problem="There is no such run. Nothing was sent.")
        if not await self._gathering.is_for(run_id):
            return msgspec.structs.replace(
                told, problem="This destination gets no runs of this agent. Nothing was sent."
            )
        while told.sent < told.total:
            piece = entries[told.sent : told.sent + self._pace.batch_events]
            placed = [Placed(entry.seq, entry) for entry in piece]
            gathered = await self._gathering.gather(placed, self._pace.batch_bytes, self._pace.now())
            if gathered is None or gathered.unreadable:
                return msgspec.structs.replace(told, problem=gathered.unreadable[0].problem if gathered else "")
            outcome = await self._send(gathered)
            if not isinstance(outcome, Sent):
                return msgspec.structs.replace(told, problem=outcome.problem)
            told = msgspec.structs.replace(told, sent=told.sent + len(gathered.batch.items))
        return told

    async def close(self) -> None:
        await self._sender.close()

    async def _send(self, gathered: Gathered) -> Outcome:
        if not gathered.batch.items:
            return Sent()
        async with self._sending:
            return await self._sender.send(gathered.batch)

    async def _position(self) -> Position:
        if self._at is None:
            loaded = await self._of_this_log(await self._positions.load())
            self._at = self._at or loaded  # somebody else may have gone on meanwhile
        return self._at

    async def _of_this_log(self, at: Position) -> Position:
        """The position, unless the log is another one than it was taken from: then all of it is new."""
        if at.position == 0:
            return at
        there = await self._log.feed(at.position - 1, 1)
        if there and there[0].position == at.position and there[0].entry.hash == at.hash:
            return at
        self._failed("The log is not the one that was forwarded before. It is sent from its beginning.")
        return Position(sent_at=at.sent_at)

    async def _gather(self) -> Gathered | None:
        """The batch that was under way when the last process ended, or the next one; its end is durable."""
        at = await self._position()
        placed = await self._log.feed(at.position, self._batch_events)
        if at.sending > at.position:
            placed = [one for one in placed if one.position <= at.sending]
        gathered = await self._gathering.gather(placed, self._pace.batch_bytes, self._pace.now())
        if gathered is not None and gathered.batch.items:
            await self._save(msgspec.structs.replace(at, sending=gathered.last.position))
        self._under_way = gathered
        return gathered

    async def _done(self, gathered: Gathered, unwanted: tuple[SetAside, ...] = ()) -> float:
        at = await self._position()
        taken = gathered.batch.items and not unwanted
        await self._save(
            Position(
                position=gathered.last.position,
                hash=gathered.last.entry.hash,
                sent_at=self._pace.now() if taken else at.sent_at,
            ),
            gathered.unreadable + unwanted,
        )
        self._under_way, self._refusals = None, 0
        self._batch_events = min(self._batch_events * 2, self._pace.batch_events)
        if taken:
            self._failures, self._last_error, self._last_error_at = 0, "", 0
        return 0.0

    async def _unwanted(self, gathered: Gathered, problem: str) -> float:
        """Find the event that is not wanted, give it its tries, and set it aside."""
        items, now = gathered.batch.items, self._pace.now()
        if len(items) > 1:
            self._batch_events = len(items) // 2
            self._under_way = None
            await self._save(msgspec.structs.replace(await self._position(), sending=0))
            return 0.0
        self._refusals += 1
        wait = self._failed(problem)
        if self._refusals < self._pace.tries:
            return wait
        self._failures = 0
        unwanted = tuple(
            SetAside(position=item.position, run_id=item.run_id, seq=item.seq, problem=problem, at=now)
            for item in items
        )
        return await self._done(gathered, unwanted)

    async def _save(self, at: Position, set_aside: tuple[SetAside, ...] = ()) -> None:
        await self._positions.save(at, set_aside)
        self._at = at

    def _failed(self, problem: str, retry_after_seconds: float = 0.0) -> float:
        """How long to wait now. With some randomness, so that many do not come back together."""
        self._failures += 1
        self._last_error, self._last_error_at = problem, self._pace.now()
        doubled = self._pace.first_wait_seconds * 2.0 ** min(self._failures - 1, 32)
        return max(retry_after_seconds, min(doubled, self._pace.max_wait_seconds) * (0.5 + self._pace.random() / 2))


def _time_of(placed: Placed) -> int:
    try:
        return msgspec.json.decode(placed.entry.body, type=_Timed).at
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return 0


class _Timed(msgspec.Struct):
    at: int = 0
