"""The engine of one process: it looks at the runs that events wake, that are due, or that were left behind.

For a log in a file or in memory. Other processes may answer, and may have runs of their own: leases decide.
"""

import asyncio
import heapq
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from time import time_ns
from typing import Protocol

from ..domain.errors import LogUnreadableError
from ..domain.event import (
    TERMINAL_EVENTS,
    ApprovalGranted,
    ApprovalRejected,
    ConsentGranted,
    ConsentRefused,
    InputProvided,
    InputRefused,
    LogEntry,
    RunStarted,
    UserMessageReceived,
    decode_event,
)
from ..history.fold import has_ended
from ..storage.event_log import EventLog
from .interface import Advance, NextLook

_WAKING = (
    RunStarted,
    UserMessageReceived,
    ApprovalGranted,
    ApprovalRejected,
    ConsentGranted,
    ConsentRefused,
    InputProvided,
    InputRefused,
    *TERMINAL_EVENTS,  # that of a child run lets its parent continue
)
_PAGE_SIZE = 500
_POLL_SECONDS = 1.0
#: Answering holds a lease briefly. Another process may hold it for long, and then drives the run itself.
_MIN_LEFT_SECONDS, _MAX_LEFT_SECONDS = 0.02, 1.0


class RunSource(Protocol):
    """Finds the runs of a log that may continue."""

    async def watch(self, engine: "LocalEngine") -> None:
        """Wake and offer runs, and set `engine.ready` after the first search. Runs until it is cancelled."""
        ...

    def settle(self, run_id: str, at: int) -> None:
        """Take note that a run waits until it is woken, or until `at`, in nanoseconds since 1970."""
        ...


class LocalEngine:
    """Dispatches the runs of a log to this process. At most one task continues a run; a wake-up meanwhile makes it look
    again.
    """

    def __init__(self, runs: RunSource) -> None:
        """`runs` finds the runs, such as `LogRuns(log)`."""
        self._runs = runs
        self._advance: Advance | None = None
        self._slots = asyncio.Semaphore(1)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._woken_again: set[str] = set()
        self._woken_early: set[str] = set()
        #: Runs that are tried again, and why they wait, if anything failed.
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._reasons: dict[str, str] = {}
        #: How often runs were tried that another process has.
        self._left: dict[str, int] = {}
        self._stopping = asyncio.Event()
        self._ready = asyncio.Event()

    @property
    def ready(self) -> asyncio.Event:
        """Set when the runs that were left behind were searched for the first time."""
        return self._ready

    async def wake(self, run_ids: Sequence[str]) -> None:
        """Look at these runs, or at those that drive them."""
        for run_id in run_ids:
            self.look_at(run_id)

    async def waiting_reasons(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Return why runs wait that could not continue."""
        return {run_id: self._reasons[run_id] for run_id in run_ids if run_id in self._reasons} if self._reasons else {}

    def retry_waiting(self) -> None:
        """Try again the runs that wait because something failed."""
        for run_id in list(self._reasons):
            self.look_at(run_id)

    async def serve(self, advance: Advance, *, queues: Collection[str] = (), concurrency: int = 50) -> None:
        """Look at all runs that may continue, and then at those that are woken, until `stop`. A log of one host has
        no queues, so all runs are taken.
        """
        self._advance, self._slots = advance, asyncio.Semaphore(concurrency)
        await self.wake(list(self._woken_early))
        watching = asyncio.create_task(self._runs.watch(self))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
        finally:
            watching.cancel()
            stopping.cancel()
            await asyncio.gather(watching, stopping, return_exceptions=True)

    async def stop(self, seconds: float) -> None:
        """Look at no more runs, and wait up to `seconds` for those under way."""
        self._stopping.set()
        for timer in self._timers.values():
            timer.cancel()
        if self._tasks:
            _, late = await asyncio.wait(list(self._tasks.values()), timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def look_at(self, run_id: str) -> None:
        """Look at a run now, or again when the look that is under way is over."""
        if self._advance is None:
            self._woken_early.add(run_id)
            return
        if self._stopping.is_set():
            return
        if (timer := self._timers.pop(run_id, None)) is not None:
            timer.cancel()
        if run_id in self._tasks:
            self._woken_again.add(run_id)
        else:
            self._tasks[run_id] = asyncio.create_task(self._look(run_id, self._advance))

    def offer(self, run_id: str) -> None:
        """Look at a run that seems to be left behind, unless that is under way or will be."""
        if run_id not in self._tasks and run_id not in self._timers:
            self.look_at(run_id)

    async def _look(self, run_id: str, advance: Advance) -> None:
        try:
            async with self._slots:
                while not self._stopping.is_set():
                    self._woken_again.discard(run_id)
                    after = await advance(run_id)
                    # Nothing is awaited between this check and the end: a wake-up is seen here, or makes a new task.
                    if run_id not in self._woken_again:
                        self._look_later(run_id, after)
                        return
        finally:
            del self._tasks[run_id]

    def _look_later(self, run_id: str, after: NextLook | None) -> None:
        tried = self._left.pop(run_id, 0)
        self._reasons.pop(run_id, None)
        if after is None or self._stopping.is_set():
            return
        if after.driver:
            self.look_at(after.driver)
        elif after.is_left:
            self._left[run_id] = tried + 1
            self._try_again(run_id, min(_MAX_LEFT_SECONDS, _MIN_LEFT_SECONDS * 1.5**tried))
        elif after.retry_seconds:
            self._reasons[run_id] = after.reason
            self._try_again(run_id, after.retry_seconds)
        else:
            self._runs.settle(run_id, after.at)

    def _try_again(self, run_id: str, seconds: float) -> None:
        self._timers[run_id] = asyncio.get_running_loop().call_later(seconds, self.look_at, run_id)


class LogRuns:
    """The runs of a log: at first all that are not over, and then those that events wake, or that are due."""

    def __init__(self, log: EventLog, *, now: Callable[[], int] = time_ns) -> None:
        self._log = log
        self._now = now
        #: When runs are due, the next one first.
        self._due: list[tuple[int, str]] = []

    def settle(self, run_id: str, at: int) -> None:
        """Look at the run again at that time."""
        if at:
            heapq.heappush(self._due, (at, run_id))

    async def watch(self, engine: LocalEngine) -> None:
        """Follow the feed of the log."""
        position = await self._log.feed_position()
        for summary in await self._log.list_runs():
            if not has_ended(summary):
                engine.offer(summary.first.run_id)
        engine.ready.set()
        while True:
            seen = self._log.version()
            page = await self._log.feed(position, _PAGE_SIZE)
            _wake_after([each.entry for each in page], engine)
            if page:
                position = page[-1].position
                continue
            await self._log.wait_for_change(seen, self._wake_due(engine))

    def _wake_due(self, engine: LocalEngine) -> float:
        """Look at the runs that are due. Return the seconds until the next look."""
        now = self._now()
        while self._due and self._due[0][0] <= now:
            engine.look_at(heapq.heappop(self._due)[1])
        return max(0.001, min(_POLL_SECONDS, (self._due[0][0] - now) / 1e9)) if self._due else _POLL_SECONDS


def _wake_after(entries: Sequence[LogEntry], engine: LocalEngine) -> None:
    for entry in entries:
        with suppress(LogUnreadableError):  # a run that cannot be read waits for nothing
            if isinstance(decode_event(entry).fact, _WAKING):
                engine.look_at(entry.run_id)
