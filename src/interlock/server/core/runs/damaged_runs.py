"""Runs whose events are not what was written.

Nothing can be appended to such a run, so nothing resumes or answers it, and it is shown as damaged. It is found when
a person or process uses it, is remembered in the server's database, and affects no other run. An operator closes it
by cancelling it: that is recorded beside the log, in the audit log.
"""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from time import time_ns

from ....domain.errors import IllegalTransitionError, LogCorruptError
from ....history.fold import fold_entries
from ....storage.event_log import EventLog
from ..audit.audit_log import AuditEvent, append_event
from ..database.interface import Connection, Database
from ..errors import ConflictError
from ..index.rows import DamagedRun
from ..index.run_index import RunIndex

logger = logging.getLogger("interlock.server")

_SELECT_ALL = "SELECT run_id, problem, closed_by, reason FROM damaged_runs"
_INSERT = "INSERT INTO damaged_runs (run_id, problem, found_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_CLOSE = "UPDATE damaged_runs SET closed_at = ?, closed_by = ?, reason = ? WHERE run_id = ? AND closed_at = 0"
_CLOSED_MESSAGE = "Closed because its events are damaged."


class DamagedRuns:
    """Finds, remembers and closes runs whose events are damaged."""

    def __init__(self, database: Database, index: RunIndex, log: EventLog, now: Callable[[], int] = time_ns) -> None:
        self._database = database
        self._index = index
        self._log = log
        self._now = now

    async def open(self) -> None:
        """Load what is known from before."""
        rows = await self._database.read(lambda connection: connection.execute(_SELECT_ALL).fetchall())
        await self._index.mark_damaged(*map(_to_damaged_run, rows))

    @asynccontextmanager
    async def detect(self, run_id: str) -> AsyncGenerator[None]:
        """Turn damage found while the run is used into a `ConflictError`, and remember it."""
        try:
            yield
        except (LogCorruptError, IllegalTransitionError) as error:
            await self.check(run_id)
            message = f"{error}. Nothing was done. To see what is damaged: GET /v1/runs/{run_id}/audit/verify)."
            raise ConflictError("log_damaged", message, {"run": run_id}) from error

    async def check(self, run_id: str) -> bool:
        """Return True if the run's own events are damaged, and remember it. Those of a child run are its own."""
        try:
            fold_entries(run_id, await self._log.read(run_id))
        except (LogCorruptError, IllegalTransitionError) as error:
            await self._remember(DamagedRun(run_id=run_id, problem=str(error)))
            return True
        return False

    async def close(self, run_id: str, *, by: str, reason: str) -> None:
        """Close a damaged run: it counts as cancelled. The audit log says who did it."""
        at, reason = self._now(), reason.strip() or _CLOSED_MESSAGE

        def close(connection: Connection) -> DamagedRun:
            if connection.execute(_CLOSE, (at, by, reason, run_id)).rowcount:
                event = AuditEvent(by=by, action="runs.close_damaged", target=run_id, detail={"reason": reason})
                append_event(connection, at, event)
            return _to_damaged_run(connection.execute(f"{_SELECT_ALL} WHERE run_id = ?", (run_id,)).fetchone())

        await self._index.mark_damaged(await self._database.run(close))

    async def _remember(self, run: DamagedRun) -> None:
        row = (run.run_id, run.problem, self._now())
        if await self._database.run(lambda connection: connection.execute(_INSERT, row).rowcount):
            logger.warning("%s is damaged, and left alone from now on: %s", run.run_id, run.problem)
        await self._index.mark_damaged(run)


def _to_damaged_run(row: tuple[str, str, str, str]) -> DamagedRun:
    run_id, problem, closed_by, reason = row
    return DamagedRun(run_id=run_id, problem=problem, closed_by=closed_by, reason=reason)
