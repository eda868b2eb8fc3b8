"""Moves the server's runs on: those that a process left behind, those that somebody answered, those whose time is over.

A run that waits costs rows and nothing else: whoever answers wakes it, in this process or in any other, because every
event passes the index. One task at most moves a run; a wake-up that comes meanwhile makes it look again. Only runs that
were made through a server are touched: `created_by` says so. The log's claims decide between several servers.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import time_ns

from ..domain.errors import InterlockError, RunClaimedError
from ..domain.event import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ConsentExpired,
    ConsentGranted,
    ConsentRefused,
    InputExpired,
    InputProvided,
    InputRefused,
    RunCancelled,
    RunCompleted,
    RunDegraded,
    RunFailed,
)
from ..domain.lifecycle import RUN_TRANSITIONS
from ..runs.handle import RunHandle
from .fleet import Fleet
from .hub import Hub
from .index import Index
from .live import LiveEvent
from .rows import RunQuery, RunRow

logger = logging.getLogger("interlock.server")

_ANSWERS = (
    ApprovalGranted,
    ApprovalRejected,
    ApprovalExpired,
    InputProvided,
    InputRefused,
    InputExpired,
    ConsentGranted,
    ConsentRefused,
    ConsentExpired,
)
#: The end of a run inside a call lets the run around it go on.
_ENDS = (RunCompleted, RunDegraded, RunFailed, RunCancelled)
_UNFINISHED = frozenset({"RUNNING", "PAUSED_APPROVAL", "PAUSED_CONSENT"})
_PAGE = 500
#: Somebody who answers has a run for a moment; another process may have it for long, and then moves it on itself.
_TRY_AGAIN_SECONDS = 0.02
_TRIES = 100
#: Timers are looked at this often at least, whatever the clock does.
_LOOK_SECONDS = 5.0


class Worker:
    def __init__(self, fleet: Fleet, index: Index, hub: Hub, now: Callable[[], int] = time_ns) -> None:
        self._fleet = fleet
        self._index = index
        self._hub = hub
        self._now = now
        self._moving: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._deaf: Callable[[], None] = lambda: None
        #: Were the runs looked at that were left behind?
        self.recovered = asyncio.Event()

    async def start(self) -> None:
        self._deaf = self._hub.on_change(self._heard)
        self._tasks = [asyncio.create_task(self._recover()), asyncio.create_task(self._mind_the_time())]

    async def stop(self, seconds: float) -> None:
        """Let the calls under way end, as long as that takes no longer. Runs are kept as they are."""
        self._stopping = True
        self._deaf()
        for task in self._tasks:
            task.cancel()
        for handle in self._fleet.live():
            handle.pause()
        moving = list(self._moving.values())
        if moving:
            await asyncio.wait(moving, timeout=seconds)
        for task in moving:
            task.cancel()
        await asyncio.gather(*self._tasks, *moving, return_exceptions=True)

    def follow(self, handle: RunHandle) -> None:
        """A run that was just started: whatever becomes of it is noticed."""
        self._moving[handle.run_id] = asyncio.create_task(self._move(handle.run_id, handle))

    def wake(self, run_id: str) -> None:
        """Somebody answered, or its time is over."""
        if self._stopping:
            return
        if run_id in self._moving:
            self._again.add(run_id)
        else:
            self._moving[run_id] = asyncio.create_task(self._move(run_id))

    def _heard(self, page: Sequence[LiveEvent]) -> None:
        self._changed.set()
        for live in page:
            event = live.event
            if event is not None and isinstance(event.fact, (*_ANSWERS, *_ENDS)):
                self.wake(event.run_id)

    async def _move(self, run_id: str, handle: RunHandle | None = None) -> None:
        try:
            while True:
                self._again.discard(run_id)
                try:
                    await self._move_once(run_id, handle)
                except (InterlockError, OSError) as error:
                    logger.warning("%s was not moved on: %s: %s", run_id, type(error).__name__, error)
                except Exception:  # a bug in an agent or a tool: the run is as the log has it, the others go on
                    logger.exception("%s was not moved on", run_id)
                handle = None
                if run_id not in self._again or self._stopping:
                    return
        finally:
            del self._moving[run_id]

    async def _move_once(self, run_id: str, handle: RunHandle | None) -> None:
        row = await self._index.run(run_id)
        if handle is None:
            if row is None or not row.created_by:
                return
            if row.parent_run_id:  # it goes on inside the run around it
                self.wake(row.parent_run_id)
                return
            handle = await self._open(row)
        if handle is not None:
            await handle.result()

    async def _open(self, row: RunRow) -> RunHandle | None:
        runner = self._fleet.runners.get(row.agent)
        if runner is None or not RUN_TRANSITIONS[row.state]:
            return None
        for _ in range(_TRIES):
            live = runner.live.get(row.run_id)
            if live is not None:
                return live
            with suppress(RunClaimedError):
                return await runner.open(row.run_id)
            await asyncio.sleep(_TRY_AGAIN_SECONDS)
        logger.info("%s is moved on by another process", row.run_id)
        return None

    async def _recover(self) -> None:
        """What was left behind by a process that is gone. A run that waits for people is left alone."""
        cursor, more = "", True
        while more:
            page = await self._index.runs(RunQuery(statuses=_UNFINISHED, inside=True, limit=_PAGE, cursor=cursor))
            for row in page.rows:
                if not row.open_questions:
                    self.wake(row.run_id)
            cursor, more = page.next_cursor, bool(page.next_cursor)
            await asyncio.sleep(0)
        self.recovered.set()

    async def _mind_the_time(self) -> None:
        """Questions that nobody answered in time are over, whether anybody looks or not."""
        while True:
            self._changed.clear()
            due = await self._index.next_expiry()
            if due and due <= self._now():
                for run_id in await self._index.expired(self._now()):
                    self.wake(run_id)
            wait = min(_LOOK_SECONDS, max(0.05, (due - self._now()) / 1e9)) if due else _LOOK_SECONDS
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait)
