"""Places at which a process dies: counted, and deadly at one of them.

append          a group of facts is about to be handed to the log
commit          the log's thread is about to commit them
durable         they are on disk, and nobody has been told
keep, kept      around the write of an artifact
effect, done    around an effect on the world
"""

import asyncio
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Sequence
from threading import Lock

from interlock import FileArtifacts, SqliteLog
from interlock.domain.event import LogEntry
from interlock.storage.event_log import Lease, Snapshot
from tests.log_around import LogAround
from tests.storage.watched import watched

KINDS = ("append", "commit", "durable", "keep", "kept", "effect", "done")


class Points:
    def __init__(self, kind: str = "", number: int = 0) -> None:
        self.counts: Counter[str] = Counter()
        self._deadly = (kind, number)
        self._lock = Lock()
        self.connections = watched(self._see)

    def reach(self, kind: str) -> None:
        with self._lock:
            if (kind, self.counts[kind]) == self._deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            self.counts[kind] += 1

    def _see(self, connection: sqlite3.Connection, sql: str) -> None:
        if sql == "COMMIT":
            self.reach("commit")


class DeadlyLog(LogAround):
    """A `SqliteLog` in a process that dies around an append."""

    def __init__(self, log: SqliteLog, points: Points) -> None:
        super().__init__(log)
        self._log = log
        self._points = points

    def append(
        self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None
    ) -> "asyncio.Future[None] | None":
        self._points.reach("append")
        written = self._log.append(run_id, entries, lease)
        if written is not None:
            written.add_done_callback(lambda done: self._points.reach("durable"))
        return written

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        await self._log.save_snapshot(run_id, snapshot)


class DeadlyArtifacts(FileArtifacts):
    def __init__(self, folder: str, points: Points) -> None:
        super().__init__(folder)
        self._points = points

    def keep(self, content: bytes) -> str:
        self._points.reach("keep")
        artifact_id = super().keep(content)
        self._points.reach("kept")
        return artifact_id
