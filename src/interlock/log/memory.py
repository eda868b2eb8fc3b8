"""The log in memory: for tests, and for runs that need not outlive the process. It belongs to one thread.

"Durable" means here: as long as the object.
"""

from collections.abc import Sequence

from ..domain.chain import Entry
from ..domain.errors import LogFencedError, LogWriteError
from .interface import Snapshot


class MemoryLog:
    immediate = True

    def __init__(self) -> None:
        self._runs: dict[str, list[Entry]] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._closed = False

    def append(self, run_id: str, entries: Sequence[Entry]) -> None:
        if self._closed:
            raise LogWriteError("the log is closed")
        try:
            run = self._runs[run_id]
        except KeyError:
            run = []
        seq = len(run)
        for entry in entries:
            if entry.seq != seq or entry.run_id != run_id:
                raise LogFencedError(
                    f"event {entry.seq} of {entry.run_id} does not continue {run_id}, whose next event is {seq}"
                )
            seq += 1
        run.extend(entries)
        if run:
            self._runs[run_id] = run

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[Entry]:
        start = after_seq + 1
        return self._runs.get(run_id, [])[start : None if limit is None else start + limit]

    async def run_ids(self) -> list[str]:
        return list(self._runs)

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        if self._closed:
            raise LogWriteError("the log is closed")
        self._snapshots[run_id] = snapshot

    async def load_snapshot(self, run_id: str) -> Snapshot | None:
        return self._snapshots.get(run_id)

    async def close(self) -> None:
        self._closed = True
