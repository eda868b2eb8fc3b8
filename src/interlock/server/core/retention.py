"""Retention: runs that are over are archived, and erased, at the ages that the settings name.

The leader does it, a few runs at a time. Each run is safe on its own, whatever stops the server: see `audit/archive.py`
and `audit/erase.py`. A run that cannot be removed stays, and is named in the health report.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import time_ns
from typing import NamedTuple

from ...audit.archive import ArchivableLog, ArchiveOptions, archive_run, read_ended_runs
from ...audit.erase import ErasureOptions, delete_erased_artifacts, erase_archived_run, erase_events
from ...domain.errors import ConfigurationError, LogError
from ...storage.artifacts import ArtifactStore, DeletableArtifacts
from ...storage.removal import RemovedRun
from .audit.audit_log import AuditLog
from .database.interface import Connection, Database
from .settings import RetentionTable

ACTOR = "system:retention"
_STEP_RUNS = 20
_STEP_SECONDS = 1.0
#: After everything that is due was removed.
_PASS_SECONDS = 600.0
#: Looking for artifacts that no run refers to reads the log once.
_SWEEP_SECONDS = 86_400.0
_MAX_SWEPT_RUNS = 5_000
_FORGET = ("forward_set_aside", "notice_deliveries", "damaged_runs")


class RetentionStorage(NamedTuple):
    """A log that runs can be removed from, and its artifacts. With Postgres: with the role that owns the tables."""

    log: ArchivableLog
    artifacts: ArtifactStore


class Retention:
    """Archives and erases runs by their age. Belongs to one event loop."""

    def __init__(
        self,
        settings: RetentionTable,
        storage: RetentionStorage,
        *,
        database: Database,
        audit_log: AuditLog,
        now: Callable[[], int] = time_ns,
    ) -> None:
        self._settings = settings
        self._log = storage.log
        self._artifacts = storage.artifacts if isinstance(storage.artifacts, DeletableArtifacts) else None
        self._database = database
        self._audit_log = audit_log
        self._now = now
        #: Where the next page of runs begins, and of archived ones; None: this pass is over.
        self._after: int | None = 0
        self._archived_after: int | None = 0
        self._forgotten = 0
        self._swept_at = 0
        self._problems: dict[str, str] = {}

    @property
    def problem(self) -> str:
        """Why runs of the last pass were not removed; empty when all were."""
        if not self._problems:
            return ""
        first = next(iter(self._problems.values()))
        return first if len(self._problems) == 1 else f"{len(self._problems)} runs stay. One of them: {first}"

    async def step(self) -> float:
        """Remove the next runs that are due, and return the seconds until the next step."""
        await self._forget_erased()
        if not self._settings.is_active:
            return _PASS_SECONDS
        if self._after is not None:
            self._after = await self._remove_from_log(self._after)
        elif self._archived_after is not None and self._settings.erase_seconds:
            self._archived_after = await self._erase_archived(self._archived_after)
        else:
            await self._sweep_artifacts()
            self._after = self._archived_after = 0
            return _PASS_SECONDS
        return _STEP_SECONDS

    async def _remove_from_log(self, after: int) -> int | None:
        """Archive runs of the log, or erase them where there is no archive. Return where the next page begins."""
        if after == 0:
            self._problems.clear()
        seconds = self._settings.archive_seconds or self._settings.erase_seconds
        is_archiving = bool(self._settings.archive_seconds)
        before = self._find_bound(seconds)
        page = await read_ended_runs(self._log, before, after, _STEP_RUNS, with_children=is_archiving)
        options = ArchiveOptions(folder=Path(self._settings.folder), by=ACTOR, clock=self._now)
        done: list[RemovedRun] = []
        for run_id in page.run_ids:
            if is_archiving:
                await self._try(run_id, done, archive_run(self._log, run_id, options))
            else:
                await self._try(run_id, done, self._erase(run_id))
        await self._record("run.archived" if is_archiving else "run.erased", done)
        return page.after

    async def _erase(self, run_id: str) -> RemovedRun:
        return (await erase_events(self._log, run_id, self._make_erasure()))[0]

    async def _erase_archived(self, after: int) -> int | None:
        before = self._find_bound(self._settings.erase_seconds)
        page = await self._log.archived_runs(after, _STEP_RUNS)
        done: list[RemovedRun] = []
        for _, record in page:
            if (record.ended_at or record.removed_at) < before:
                await self._try(record.run_id, done, erase_archived_run(self._log, record, self._make_erasure()))
        await self._record("run.erased", done)
        return page[-1][0] if page else None

    async def _try(self, run_id: str, done: list[RemovedRun], removing: Awaitable[RemovedRun]) -> None:
        try:
            done.append(await removing)
        except (LogError, ConfigurationError) as error:
            if "newest event" not in str(error):  # it goes when there is a newer one
                self._problems[run_id] = str(error)

    async def _record(self, action: str, done: Sequence[RemovedRun]) -> None:
        """Record a step in the audit log. The log of runs has a record of each run."""
        if done:
            await self._forget_erased()
            detail = {"runs": str(len(done)), "last": done[-1].run_id, "events": str(sum(r.event_count for r in done))}
            await self._audit_log.add(ACTOR, action, done[0].run_id, detail=detail)

    async def _forget_erased(self) -> None:
        """Delete what this server's own database has of erased runs, whichever process erased them. Where servers
        share a database, the transaction that erases does it.
        """
        while not self._database.is_shared:
            page = await self._log.erased_runs(self._forgotten)
            if not page:
                return
            run_ids = [(record.run_id,) for _, record in page]

            def forget(connection: Connection, run_ids: Sequence[tuple[str]] = run_ids) -> None:
                for table in _FORGET:
                    connection.executemany(f"DELETE FROM {table} WHERE run_id = ?", run_ids)  # noqa: S608 - fixed names

            await self._database.run(forget)
            self._forgotten = page[-1][0]

    async def _sweep_artifacts(self) -> None:
        """Delete artifacts of erased runs that no other run refers to: once a day, as it reads the log once."""
        if self._artifacts is None or self._now() - self._swept_at < _SWEEP_SECONDS * 1e9:
            return
        pending: list[RemovedRun] = []
        after = 0
        while len(pending) < _MAX_SWEPT_RUNS and (page := await self._log.erased_runs(after, 500)):
            after = page[-1][0]
            pending += [record for _, record in page if record.artifacts]
        if pending:
            await delete_erased_artifacts(self._log, pending, self._artifacts)
        self._swept_at = self._now()

    def _make_erasure(self) -> ErasureOptions:
        reason = f"[retention] erase_after = {self._settings.erase_after}"
        return ErasureOptions(by=ACTOR, reason=reason, artifacts=self._artifacts, clock=self._now)

    def _find_bound(self, seconds: float) -> int:
        return self._now() - round(seconds * 1e9)
