"""The runs that workers resume: which can continue, which are due, and the jobs that dispatch them.

A job says "look at this run". The row of the run says whether there is anything to do, and the lease decides who does
it, so a job that comes too often, or twice, changes nothing. A job that is lost is replaced by `reconcile`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg

from .connection import Connection, ConnectionPool, execute
from .queries import QUERIES

T = TypeVar("T")

#: How many runs are woken at once.
_PAGE_SIZE = 500
_MAX_TRIES = 10


class RunQueues:
    """The queues of a log. Every method is one statement or one short transaction, and may be repeated."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def assign(self, run_id: str, queue: str) -> None:
        """Hand a run that is started next to the workers that serve this queue."""
        await self._execute("assign_queue", (run_id, queue))

    async def wake(self, run_ids: Sequence[str]) -> None:
        """Queue a job for these runs, or for those that drive them."""
        await self._run(lambda connection: wake_runs(connection, run_ids))

    async def look(self, run_id: str) -> bool:
        """Return True if a worker has to open the run. False: it waits, it is over, or a living process has it."""
        rows = await self._execute("look", (run_id,))
        return bool(rows and rows[0][0])

    async def settle(self, run_id: str, wake_at: int = 0, seq: int | None = None) -> bool:
        """Record that the run waits until it is woken, or until `wake_at`, in nanoseconds since 1970. Return False, and
        record nothing, when it was woken since `look`, has more events than `seq`, or is over.
        """
        values = {"run_id": run_id, "wake_at": wake_at / 1e9 if wake_at else None, "seq": seq}
        return bool(await self._execute("settle", values))

    async def postpone(self, run_id: str, seconds: float, reason: str = "") -> None:
        """Look at the run again after this time, unless it is woken before. `reason` says why it waits."""
        await self._execute("postpone", {"run_id": run_id, "seconds": seconds, "reason": reason or None})

    async def waiting_reasons(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Return why runs wait that were postponed: of these runs, those that do."""
        return dict(await self._execute("waiting_reasons", ([*run_ids],))) if run_ids else {}

    async def list_switched_off_agents(self) -> list[tuple[str, str, str, int]]:
        """List the agents that were switched off: name, who did it, why, and when."""
        return [(row[0], row[1], row[2], row[3]) for row in await self._execute("switched_off_agents", None)]

    async def reconcile(self, worker_seconds: float) -> list[str]:
        """Wake the runs that can continue, or are due, and that no living process has; return them. Remove the jobs of
        workers without a heartbeat for `worker_seconds`. Of several processes one does it at a time.
        """

        def reconcile(connection: Connection) -> list[str]:
            with connection.transaction():
                row = execute(connection, QUERIES["lock_reconciling"]).fetchone()
                if not (row and row[0]):
                    return []
                found = [row[0] for row in execute(connection, QUERIES["runs_to_wake"], (_PAGE_SIZE,)).fetchall()]
                execute(connection, QUERIES["forget_jobs"], (worker_seconds,))
            if found:
                wake_runs(connection, found)
            return found

        return await self._run(reconcile)

    async def count_runs(self) -> dict[str, int]:
        """Return how many runs are `ready` to continue or `waiting`. Reads the rows of all runs."""
        return {"ready": 0, "waiting": 0} | dict(await self._execute("count_runs_by_state", None))

    async def count_jobs(self) -> dict[str, int]:
        """Return how many jobs wait, by queue."""
        return dict(await self._execute("count_jobs_by_queue", None))

    async def count_processes(self) -> int:
        """Return how many processes that use the log are alive."""
        return (await self._execute("count_processes", None))[0][0]

    async def find_oldest_ready(self) -> float:
        """Return for how many seconds the oldest run has waited for a worker; 0 when none does."""
        return float((await self._execute("oldest_ready_seconds", None))[0][0])

    async def _execute(self, query: str, parameters: Any) -> list[tuple[Any, ...]]:
        def run(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = execute(connection, QUERIES[query], parameters)
            return cursor.fetchall() if cursor.description else []

        return await self._run(run)

    async def _run(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.to_thread(self._pool.run, work)


def wake_runs(connection: Connection, run_ids: Sequence[str]) -> None:
    """Queue a job for these runs, or for those that drive them. Another process may queue the same ones meanwhile."""
    for attempt in range(_MAX_TRIES):
        try:
            execute(connection, QUERIES["wake"], ([*run_ids],))
        except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
            if attempt == _MAX_TRIES - 1:
                raise
        else:
            return
