"""A log that fails at one append and, as promised by every log, refuses everything after it.

refused     the append raises, and nothing was written
lost        the same, but noticed only later
lied        the append fails later, and yet everything was written
"""

import asyncio
from collections.abc import Sequence

from interlock import EventLog, LogWriteError
from interlock.domain.event import LogEntry
from interlock.storage.event_log import Lease, Snapshot
from tests.log_around import LogAround

FAULTS = ("refused", "lost", "lied")


class FaultyLog(LogAround):
    def __init__(self, log: EventLog, fault: str, number: int) -> None:
        super().__init__(log)
        self.failed = False
        self.append_count = 0
        self._log = log
        self._fault = fault
        self._number = number

    def append(
        self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None
    ) -> "asyncio.Future[None] | None":
        if self.failed:
            raise LogWriteError("the log failed before: reopen the run")
        self.append_count += 1
        if self.append_count <= self._number:
            return self._log.append(run_id, entries, lease)
        self.failed = True
        match self._fault:
            case "refused":
                raise LogWriteError("no space left on device")
            case "lost":
                return _failing_after(None)
            case _:
                return _failing_after(self._log.append(run_id, entries, lease))

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        if self.failed:
            raise LogWriteError("the log failed before: reopen the run")
        await self._log.save_snapshot(run_id, snapshot)


def _failing_after(written: "asyncio.Future[None] | None") -> "asyncio.Future[None]":
    loop = asyncio.get_running_loop()
    failing: asyncio.Future[None] = loop.create_future()

    def fail(_: object = None) -> None:
        failing.set_exception(LogWriteError("a sync failed"))

    if written is None:
        loop.call_soon(fail)
    else:
        written.add_done_callback(fail)
    return failing
