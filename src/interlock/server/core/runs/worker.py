"""Moves the server's runs on: those that a process left behind, those that somebody answered, those whose time is over.

A run that waits costs rows and nothing else: whoever answers wakes it, in this process or in any other, because every
event passes the index. One task at most moves a run; a wake-up that comes meanwhile makes it look again, and a look
that finds nothing to do writes nothing. A run inside a call of another one is moved on by that one, so it is that one
which is woken. Only runs that were made through a server are touched: `created_by` says so. The log's claims decide
between several servers; what one of them left behind when it died is found by the others.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import time_ns

from ....domain.errors import DecisionConflictError, InterlockError, RunClaimedError, RunEndedError
from ....domain.event import (
    RUN_ENDS,
    ApprovalGranted,
    ApprovalRejected,
    ConsentGranted,
    ConsentRefused,
    InputProvided,
    InputRefused,
)
from ....runs.handle import RunHandle
from ....runs.inbox import AROUND_IS_OVER
from ..index.index import Index
from ..index.rows import RUNNING, UNFINISHED, RunQuery, RunRow
from ..live.event import LiveEvent
from ..live.hub import Hub
from .resume_check import Prospects
from .runners import Fleet

logger = logging.getLogger("interlock.server")

#: That nobody answered in time is written by whoever moves the run on, so nobody has to be told.
_ANSWERS = (ApprovalGranted, ApprovalRejected, InputProvided, InputRefused, ConsentGranted, ConsentRefused)
_PAGE = 500
#: How many runs are taken up at once: each is read from the log.
_OPENED_AT_ONCE = 50
#: Somebody who answers has a run for a moment; another process may have it for long, and then moves it on itself.
_TRY_AGAIN_SECONDS = (0.02, 0.02, 0.04, 0.08, 0.16, 0.3, 0.5, 0.5, 0.5)
#: Timers are looked at this often at least, whatever the clock does; and when a question is late that nobody here can
#: do anything about.
_LOOK_SECONDS = 5.0
_LATE_SECONDS = 1.0
#: How often it is looked for runs that another server left behind.
_SEARCH_SECONDS = 15.0


class Worker:
    def __init__(self, fleet: Fleet, index: Index, hub: Hub, now: Callable[[], int] = time_ns) -> None:
        self._fleet = fleet
        self._index = index
        self._hub = hub
        self._now = now
        self._prospects = Prospects(fleet, now)
        self._moving: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        #: In a run inside of these, somebody answered: they are opened whatever else is open in there.
        self._answered_inside: set[str] = set()
        #: They could not be moved on, for a reason that will not go away by itself.
        self._failed: set[str] = set()
        #: The runs that were woken because of the time.
        self._late: set[str] = set()
        self._opening = asyncio.Semaphore(_OPENED_AT_ONCE)
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._deaf: Callable[[], None] = lambda: None
        self.stopping = False
        #: Were the runs looked at that were left behind?
        self.recovered = asyncio.Event()

    async def start(self) -> None:
        self._deaf = self._hub.on_change(self._heard)
        self._tasks = [asyncio.create_task(work()) for work in (self._search_on, self._mind_the_time)]

    async def stop(self, seconds: float) -> None:
        """Let the calls under way end, as long as that takes no longer. Runs are kept as they are."""
        self.stopping = True
        self._deaf()
        for task in self._tasks:
            task.cancel()
        for handle in self._fleet.moving():
            handle.pause()
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self._moving and loop.time() < until:
            await asyncio.wait(list(self._moving.values()), timeout=until - loop.time())
        moving = list(self._moving.values())
        for task in moving:
            task.cancel()
        await asyncio.gather(*self._tasks, *moving, return_exceptions=True)

    def follow(self, handle: RunHandle) -> None:
        """A run that was just started: whatever becomes of it is noticed."""
        if handle.run_id in self._moving:
            self._again.add(handle.run_id)
        else:
            self._moving[handle.run_id] = asyncio.create_task(self._move(handle.run_id, handle))

    def wake(self, run_id: str) -> None:
        """There may be something to do in it now."""
        if self.stopping:
            return
        self._failed.discard(run_id)
        if run_id in self._moving:
            self._again.add(run_id)
        else:
            self._moving[run_id] = asyncio.create_task(self._move(run_id))

    def _heard(self, page: Sequence[LiveEvent]) -> None:
        self._changed.set()
        for live in page:
            event = live.event
            # The end of a run inside a call lets the run around it go on.
            if event is not None and isinstance(event.fact, (*_ANSWERS, *RUN_ENDS)):
                self.wake(event.run_id)

    async def _move(self, run_id: str, handle: RunHandle | None = None) -> None:
        try:
            while True:
                self._again.discard(run_id)
                try:
                    await self._move_once(run_id, handle)
                except (InterlockError, OSError) as error:
                    self._failed.add(run_id)
                    logger.warning("%s was not moved on: %s: %s", run_id, type(error).__name__, error)
                except Exception:  # a bug in an agent or a tool: the run is as the log has it, the others go on
                    self._failed.add(run_id)
                    logger.exception("%s was not moved on", run_id)
                handle = None
                # Nothing is awaited between this look and the end: a wake-up is heard here, or makes a new task.
                if run_id not in self._again or self.stopping:
                    return
        finally:
            del self._moving[run_id]

    async def _move_once(self, run_id: str, handle: RunHandle | None) -> None:
        if handle is None:
            row = await self._index.run(run_id)
            if row is None or not row.created_by:
                return
            if row.parent_run_id:
                await self._move_around(row)
                return
            handle = await self._open(row)
        if handle is not None:
            if self.stopping:
                handle.pause()
            await handle.result()

    async def _move_around(self, row: RunRow) -> None:
        """It goes on inside the run around it. When that is over, nobody waits for it any more."""
        around = await self._index.run(row.parent_run_id)
        if around is None:
            return
        if not around.is_over:
            if not row.is_over:
                self._answered_inside.add(around.run_id)
            self.wake(around.run_id)
        elif not row.is_over:
            with suppress(RunEndedError, DecisionConflictError):
                await self._fleet.desk(row.agent).cancel(row.run_id, AROUND_IS_OVER)

    async def _open(self, row: RunRow) -> RunHandle | None:
        """On its way; None when there is nothing to do in it, or another process does it."""
        runner = self._fleet.runners.get(row.agent)
        if runner is None or row.is_over:
            return None
        inside = row.run_id in self._answered_inside
        self._answered_inside.discard(row.run_id)
        for seconds in _TRY_AGAIN_SECONDS:
            async with self._opening:
                live = runner.live.get(row.run_id)
                if live is not None:
                    return live
                if self.stopping or not (inside or await self._prospects.can_go_on(row)):
                    return None
                with suppress(RunClaimedError):
                    return await runner.open(row.run_id)
            await asyncio.sleep(seconds)
        if inside:
            self._answered_inside.add(row.run_id)
        logger.info("%s is moved on by another process", row.run_id)
        return None

    async def _search_on(self) -> None:
        """What was left behind by a process that is gone. A run that waits for people is left alone."""
        while True:
            wanted = RUNNING if self.recovered.is_set() else UNFINISHED
            if await self._search(wanted):
                self.recovered.set()
            await asyncio.sleep(_SEARCH_SECONDS if self.recovered.is_set() else _LATE_SECONDS)
            self._late.clear()

    async def _search(self, statuses: frozenset[str]) -> bool:
        """False when the log or the index cannot be read now: it is looked again."""
        try:
            held = await self._fleet.log.holders()
            cursor, more = "", True
            while more:
                page = await self._index.runs(RunQuery(statuses=statuses, inside=True, limit=_PAGE, cursor=cursor))
                for row in page.rows:
                    if row.run_id not in held and await self._is_left(row):
                        self.wake(row.run_id)
                cursor, more = page.next_cursor, bool(page.next_cursor)
        except Exception as error:
            logger.warning("Runs that were left behind were not found: %s: %s", type(error).__name__, error)
            return False
        return True

    async def _is_left(self, row: RunRow) -> bool:
        if not row.created_by or row.run_id in self._moving or row.run_id in self._failed:
            return False
        if not row.parent_run_id:
            return await self._prospects.may_go_on(row)
        around = await self._index.run(row.parent_run_id)
        return around is not None and (around.is_over or bool(await self._fleet.log.notes(row.run_id)))

    async def _mind_the_time(self) -> None:
        """Questions that nobody answered in time are over, whether anybody looks or not."""
        while True:
            self._changed.clear()
            wait = _LOOK_SECONDS
            try:
                wait = await self._wake_late()
            except Exception as error:  # it is looked again
                logger.warning("Questions that are late were not found: %s: %s", type(error).__name__, error)
            with suppress(TimeoutError):  # `wait_for` of Python 3.11 may lose that it was cancelled
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def _wake_late(self) -> float:
        """Those whose time is over, once; how long until the next look."""
        now, due = self._now(), await self._index.next_expiry()
        if not due:
            return _LOOK_SECONDS
        if due > now:
            return min(_LOOK_SECONDS, (due - now) / 1e9 + 0.001)
        late = set(await self._index.expired(now))
        for run_id in late - self._late:
            self.wake(run_id)
        self._late = late
        return _LATE_SECONDS
