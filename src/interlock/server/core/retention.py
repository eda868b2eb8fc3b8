"""Retention: runs that are over are archived, and erased, at the ages that the settings name.

The leader does it, a few runs at a time, each with its child runs. A server that is killed leaves nothing that the next
step does not finish: see `audit/archive.py` and `audit/erase.py`. A run that cannot be removed stays, and is named in
the health report.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import time_ns
from typing import NamedTuple

from ...audit.archive import ArchivableLog, ArchiveOptions, archive_family, read_ended_runs
from ...audit.erase import ErasureOptions, delete_erased_artifacts, erase_archived_run, erase_events
from ...domain.errors import ArtifactError, ConfigurationError, LogError
from ...storage.artifacts import ArtifactStore, DeletableArtifacts
from ...storage.removal import RemovedRun
from .audit.audit_log import AuditLog
from .database.interface import Connection, Database
from .settings import RetentionTable

ACTOR = "system:retention"
_STEP_RUNS = 50
_STEP_SECONDS = 0.2
#: After everything that is due was removed.
_PASS_SECONDS = 600.0
#: Looking for artifacts that no run refers to reads the log once.
_SWEEP_SECONDS = 86_400.0
_SWEEP_RETRY_SECONDS = 3_600.0
_MAX_SWEPT_RUNS = 20_000
_ARTIFACTS = "artifacts"
_FORGET = ("forward_set_aside", "notice_deliveries", "damaged_runs", "question_comments", "question_assignments")


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
        #: The number of the last erasure that this server's database knows of, and of the last swept one.
        self._forgotten = self._swept = 0
        self._sweep_due_at = 0
        #: Of the last pass, and of this one, by run.
        self._problems: dict[str, str] = {}
        self._new_problems: dict[str, str] = {}

    @property
    def problem(self) -> str:
        """Why runs were not removed; empty when all were that are due."""
        problems = [*(self._problems | self._new_problems).values()]
        if not problems:
            return ""
        return problems[0] if len(problems) == 1 else f"{len(problems)} runs stay. One of them: {problems[0]}"

    async def step(self) -> float:
        """Remove the next runs that are due, and return the seconds until the next step."""
        if self._log.problem:
            await self._log.reopen()
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
            self._problems, self._new_problems = self._new_problems, {}
            return _PASS_SECONDS
        return _STEP_SECONDS

    async def _remove_from_log(self, after: int) -> int | None:
        """Archive runs of the log, or erase them where there is no archive. Return where the next page begins."""
        seconds = self._settings.archive_seconds or self._settings.erase_seconds
        page = await read_ended_runs(self._log, self._find_bound(seconds), after, _STEP_RUNS, with_children=False)
        for run_id in page.damaged_run_ids:
            self._new_problems[run_id] = f"{run_id} is damaged, and stays."
        newest = await self._find_newest_run() if page.run_ids else ""
        is_archiving = bool(self._settings.archive_seconds)
        options = ArchiveOptions(folder=Path(self._settings.folder), by=ACTOR, clock=self._now)
        done: list[RemovedRun] = []
        for run_id in page.run_ids:
            if run_id == newest or newest.startswith(f"{run_id}."):
                continue  # it goes when there is a newer event
            if is_archiving:
                await self._try(run_id, done, archive_family(self._log, run_id, options))
            else:
                await self._try(run_id, done, erase_events(self._log, run_id, self._make_erasure()))
        await self._record("run.archived" if is_archiving else "run.erased", done)
        return page.after

    async def _find_newest_run(self) -> str:
        """Return the run of the newest event, which stays in a log."""
        newest = await self._log.feed(max(0, await self._log.feed_position() - 1), 1)
        return newest[0].entry.run_id if newest else ""

    async def _erase_archived(self, after: int) -> int | None:
        before = self._find_bound(self._settings.erase_seconds)
        page = await self._log.archived_runs(after, _STEP_RUNS)
        done: list[RemovedRun] = []
        for _, record in page:
            if record.ended_at < before and not await self._has_archived_parent(record):
                await self._try(record.run_id, done, erase_archived_run(self._log, record, self._make_erasure()))
        await self._record("run.erased", done)
        # In the order of their start: behind a page of younger ones there are no older ones.
        return page[-1][0] if any(record.started_at < before for _, record in page) else None

    async def _has_archived_parent(self, record: RemovedRun) -> bool:
        parent = await self._log.find_removed_run(record.parent) if record.parent else None
        return parent is not None and not parent.is_erased

    async def _try(self, run_id: str, done: list[RemovedRun], removing: Awaitable[Sequence[RemovedRun]]) -> None:
        try:
            done += await removing
        except (LogError, ConfigurationError, ArtifactError) as error:
            self._new_problems[run_id] = str(error)

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
        if self._artifacts is None or self._now() < self._sweep_due_at:
            return
        pending: list[RemovedRun] = []
        after = self._swept
        while len(pending) < _MAX_SWEPT_RUNS and (page := await self._log.erased_runs(after, 500)):
            after = page[-1][0]
            pending += [record for _, record in page if record.artifacts]
        seconds = _SWEEP_SECONDS if len(pending) < _MAX_SWEPT_RUNS else 0.0
        try:
            if pending:
                await delete_erased_artifacts(self._log, pending, self._artifacts)
            self._swept = after
        except (LogError, ConfigurationError, ArtifactError) as error:
            self._new_problems[_ARTIFACTS], seconds = f"Artifacts of erased runs stay: {error}.", _SWEEP_RETRY_SECONDS
        self._sweep_due_at = self._now() + round(seconds * 1e9)

    def _make_erasure(self) -> ErasureOptions:
        reason = f"[retention] erase_after = {self._settings.erase_after}"
        return ErasureOptions(by=ACTOR, reason=reason, artifacts=self._artifacts, clock=self._now)

    def _find_bound(self, seconds: float) -> int:
        return self._now() - round(seconds * 1e9)
