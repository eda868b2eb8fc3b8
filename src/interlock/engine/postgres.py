"""The engine of many hosts: Procrastinate dispatches jobs of a log in Postgres to the workers that serve their queues.

A job says "look at this run". It has a `queueing_lock`, so at most one waits for a run, and no `lock` and no retries:
leases give exclusiveness, and what a dead worker left is found by the reconciler that every worker has. So a job that
is lost, or comes twice, changes nothing.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import ProcrastinateException

from ..domain.errors import LogError
from ..storage.postgres.log import PostgresLog
from .interface import Advance, NextLook
from .metrics import Gauge, Values

logger = logging.getLogger("interlock.worker")

TASK = "interlock.advance"
_POLL_SECONDS = 1.0
_RECONCILE_SECONDS = 1.0
#: A heartbeat of Procrastinate is older: its jobs are garbage. Nothing else depends on it.
_WORKER_SECONDS = 60.0
_RESTART_SECONDS = 0.5
#: Jobs only wait for runs, which outlive them.
_JOB_GRACE_SECONDS = 0.1


class PostgresEngine:
    """Dispatches the runs of a log in Postgres to this process and others."""

    def __init__(self, log: PostgresLog, *, name: str = "") -> None:
        """`name` is that of this worker in logs."""
        self._log = log
        self._name = name
        self._advance: Advance | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(1)
        self._stopping = asyncio.Event()
        self._working: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._has_ended = False
        #: How many runs this process found that no living process had, and woke.
        self.recovered_count = 0

    @property
    def ready(self) -> asyncio.Event:
        """Set when jobs are taken."""
        return self._ready

    async def wake(self, run_ids: Sequence[str]) -> None:
        """Queue a job for each of these runs."""
        await self._log.queues.wake(run_ids)

    async def waiting_reasons(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Return why runs wait that no worker could continue."""
        return await self._log.queues.waiting_reasons(run_ids)

    def retry_waiting(self) -> None:
        """Do nothing: runs that wait are due within half a minute, whichever worker is there."""

    async def serve(self, advance: Advance, *, queues: Collection[str], concurrency: int) -> None:
        """Take jobs until `stop`. Raise `LogError` when the database was gone for longer than the log's patience."""
        self._advance, self._slots, self._has_ended = advance, asyncio.Semaphore(concurrency), False
        reconciling = asyncio.create_task(self._reconcile_forever())
        self._working = working = asyncio.create_task(self._work_forever(sorted(queues), concurrency))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({reconciling, working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (reconciling, working):
                if task.done():
                    task.result()
        finally:
            self._has_ended = True
            self._ready.clear()
            for task in (reconciling, working, stopping):
                task.cancel()
            await asyncio.gather(reconciling, working, stopping, return_exceptions=True)

    async def stop(self, seconds: float) -> None:
        """Take no more jobs, and wait up to `seconds` for the runs under way."""
        self._stopping.set()
        if self._working is not None:
            await asyncio.wait([self._working])
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    def list_gauges(self) -> tuple[Gauge, ...]:
        """Return what metrics show of the queues."""
        queues = self._log.queues

        async def count_recovered() -> Values:
            return {"": float(self.recovered_count)}

        async def count_processes() -> Values:
            return {"": float(await queues.count_processes())}

        async def find_oldest() -> Values:
            return {"": await queues.find_oldest_ready()}

        async def count_running() -> Values:
            return {"": float(len(self._running))}

        return (
            Gauge("interlock_runs", "Runs that are not over, by state.", "state", queues.count_runs),
            Gauge("interlock_queue_depth", "Jobs that wait for a worker, by queue.", "queue", queues.count_jobs),
            Gauge("interlock_oldest_ready_seconds", "Age of the oldest run that no worker has.", "", find_oldest),
            Gauge("interlock_processes", "Processes that use the log and are alive.", "", count_processes),
            Gauge("interlock_process_runs", "Runs that this worker has.", "", count_running),
            Gauge(
                "interlock_process_recovered_runs",
                "Runs that this worker found without a living process, and woke.",
                "",
                count_recovered,
            ),
        )

    async def _work_forever(self, queues: list[str], concurrency: int) -> None:
        """Take jobs. When the database is gone, try again: the reconciler decides when that is over."""
        while not self._has_ended:  # a library may swallow that it was cancelled
            try:
                await self._work(queues, concurrency)
                logger.warning("the connection for jobs was lost, and is opened again")
            except (ProcrastinateException, psycopg.Error, OSError, TimeoutError) as error:
                logger.warning("no jobs can be taken, and it is tried again: %s", error)
            await asyncio.sleep(_RESTART_SECONDS)

    async def _work(self, queues: list[str], concurrency: int) -> None:
        connector = PsycopgConnector(
            kwargs=self._log.connection_parameters("interlock-jobs"),
            configure=_commit_each,
            min_size=1,
            max_size=3,
            timeout=5,
        )
        app = App(connector=connector)
        app.task(name=TASK)(self._run_job)
        try:
            async with app.open_async():
                self._ready.set()
                await app.run_worker_async(
                    queues=queues,
                    name=self._name,
                    concurrency=concurrency,
                    install_signal_handlers=False,
                    fetch_job_polling_interval=_POLL_SECONDS,
                    shutdown_graceful_timeout=_JOB_GRACE_SECONDS,
                    update_heartbeat_interval=_WORKER_SECONDS / 4,
                    stalled_worker_timeout=_WORKER_SECONDS,
                    delete_jobs="always",
                )
        finally:
            await connector.close_async()  # a pool that was still being opened, too

    async def _run_job(self, run_id: str) -> None:
        """Wait for the run, so that it counts. It continues when the worker of Procrastinate starts again."""
        task = asyncio.create_task(self._look(run_id))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)

    async def _look(self, run_id: str) -> None:
        advance, queues = self._advance, self._log.queues
        async with self._slots:
            try:
                while advance is not None and not self._stopping.is_set():
                    if not await queues.look(run_id):
                        return
                    match await advance(run_id):
                        case None:
                            return
                        case NextLook(is_left=True):
                            break
                        case NextLook(driver=driver) if driver:
                            await queues.wake([driver])
                            return
                        case NextLook(retry_seconds=seconds, reason=reason) if seconds:
                            await queues.postpone(run_id, seconds, reason)
                            return
                        case NextLook(at=wake_at, seq=seq):
                            if await queues.settle(run_id, wake_at, seq):
                                return
                await queues.wake([run_id])
            except LogError as error:  # the reconciler finds the run when the database is back
                logger.warning("%s was left: %s", run_id, error)

    async def _reconcile_forever(self) -> None:
        while True:
            self.recovered_count += len(await self._log.queues.reconcile(_WORKER_SECONDS))
            if self._log.refusal:
                raise LogError(self._log.refusal)
            await asyncio.sleep(min(_RECONCILE_SECONDS, self._log.lease_seconds / 4))


async def _commit_each(connection: psycopg.AsyncConnection[Any]) -> None:
    """Make each statement of Procrastinate one transaction, without statements to begin and to end it."""
    await connection.set_autocommit(True)
