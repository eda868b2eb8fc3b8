"""The engine of one process: it follows the events of a log, and looks at the runs that they wake.

For a log in a file or in memory. Other processes may answer, and may have runs of their own: leases decide.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from time import time_ns

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
from ..runs.children import read_run_started
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
)
_PAGE_SIZE = 500
_POLL_SECONDS = 1.0


class LocalEngine:
    """Dispatches the runs of a log to this process. At most one task continues a run; a wake-up meanwhile makes it look
    again.
    """

    def __init__(self, log: EventLog, *, now: Callable[[], int] = time_ns) -> None:
        self._log = log
        self._now = now
        self._advance: Advance | None = None
        self._slots = asyncio.Semaphore(1)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._woken_again: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stopping = asyncio.Event()

    async def wake(self, run_ids: Sequence[str]) -> None:
        """Look at these runs, or at those that drive them."""
        for run_id in run_ids:
            self._start(await self._find_outermost(run_id))

    async def serve(self, advance: Advance, *, queues: Collection[str] = (), concurrency: int = 50) -> None:
        """Look at all runs that are not over, and then at those that events wake, until `stop`. A log of one host has
        no queues, so all runs are taken.
        """
        self._advance, self._slots = advance, asyncio.Semaphore(concurrency)
        position = await self._log.feed_position()
        unfinished = [summary.first.run_id for summary in await self._log.list_runs() if not has_ended(summary)]
        for run_id in unfinished:
            with suppress(LogUnreadableError):
                await self.wake([run_id])
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            while not self._stopping.is_set():
                seen = self._log.version()
                page = await self._log.feed(position, _PAGE_SIZE)
                await self._wake_after([each.entry for each in page])
                if page:
                    position = page[-1].position
                    continue
                waiting = asyncio.create_task(self._log.wait_for_change(seen, _POLL_SECONDS))
                await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
        finally:
            stopping.cancel()

    async def stop(self, seconds: float) -> None:
        """Look at no more runs, and wait up to `seconds` for those under way."""
        self._stopping.set()
        for timer in self._timers.values():
            timer.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=seconds)

    async def _wake_after(self, entries: Sequence[LogEntry]) -> None:
        """Wake the runs that these events let continue. The end of a child run lets its parent continue."""
        for entry in entries:
            with suppress(LogUnreadableError):  # a run that cannot be read waits for nothing
                fact = decode_event(entry).fact
                if isinstance(fact, _WAKING):
                    self._start(await self._find_outermost(entry.run_id))
                elif isinstance(fact, TERMINAL_EVENTS):
                    outermost = await self._find_outermost(entry.run_id)
                    if outermost != entry.run_id:
                        self._start(outermost)

    async def _find_outermost(self, run_id: str) -> str:
        """Return the run that drives this one."""
        begun = await read_run_started(self._log, run_id)
        return run_id if begun is None or not begun.parent_run_id else await self._find_outermost(begun.parent_run_id)

    def _start(self, run_id: str) -> None:
        if (timer := self._timers.pop(run_id, None)) is not None:
            timer.cancel()
        if run_id in self._tasks:
            self._woken_again.add(run_id)
        elif self._advance is not None and not self._stopping.is_set():
            self._tasks[run_id] = asyncio.create_task(self._look(run_id, self._advance))

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
        if after is None or self._stopping.is_set():
            return
        seconds = after.retry_seconds
        if after.is_left:
            seconds = _POLL_SECONDS
        elif after.at:
            seconds = max(0.001, (after.at - self._now()) / 1e9)
        if seconds:
            self._timers[run_id] = asyncio.get_running_loop().call_later(seconds, self._start, run_id)
