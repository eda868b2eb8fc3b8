"""The log in memory: for tests, and for runs that need not outlive the process. It belongs to one thread.

"Durable" means here: as long as the object. All claims are of this very process.
"""

from collections.abc import Sequence

from ..domain.chain import Entry
from ..domain.errors import LogError, LogFencedError, LogWriteError
from .event_log import Claim, Ends, Note, Placed, Snapshot
from .leases import NO_TOKEN, claimed, fenced, token_for
from .process import this_process


class MemoryLog:
    immediate = True

    def __init__(self) -> None:
        self._runs: dict[str, list[Entry]] = {}
        #: Of all runs, in the order of their appends.
        self._feed: list[Entry] = []
        self._snapshots: dict[str, Snapshot] = {}
        #: The last token of every run that was ever claimed, and those that are in force.
        self._tokens: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._notes: dict[str, dict[str, Note]] = {}
        self._version = 0
        self._closed = False

    def append(self, run_id: str, entries: Sequence[Entry], claim: Claim | None = None) -> None:
        if self._closed:
            raise LogWriteError("the log is closed")
        if claim is not None or self._held:
            self._check_claim(run_id, claim)
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
        self._feed += entries
        self._version += 1
        if run:
            self._runs[run_id] = run

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[Entry]:
        start = after_seq + 1
        return self._runs.get(run_id, [])[start : None if limit is None else start + limit]

    async def run_ids(self) -> list[str]:
        return list(self._runs)

    async def ends(self, limit: int | None = None) -> list[Ends]:
        return [Ends(run[0], run[-1]) for run in list(reversed(self._runs.values()))[:limit]]

    async def feed(self, after: int = 0, limit: int | None = None) -> list[Placed]:
        end = None if limit is None else after + limit
        return [Placed(position, entry) for position, entry in enumerate(self._feed[after:end], after + 1)]

    async def claim(self, run_id: str, *, force: bool = False) -> Claim:
        if run_id in self._held and not force:
            raise claimed(run_id, this_process(), this_process())
        self._change()
        token = self._tokens[run_id] = self._held[run_id] = self._tokens.get(run_id, NO_TOKEN) + 1
        return Claim(run_id, token)

    async def release(self, claim: Claim) -> None:
        self._change()
        if self._held.get(claim.run_id) == claim.token:
            del self._held[claim.run_id]

    async def holders(self) -> dict[str, str]:
        return {run_id: str(this_process()) for run_id in self._held}

    async def post(self, run_id: str, note: Note) -> bool:
        self._change()
        if run_id not in self._runs:
            raise LogError(f"there is no run {run_id} in this log, so no note can be left for it. Nothing was written.")
        notes = self._notes.setdefault(run_id, {})
        is_new = note.key not in notes
        notes.setdefault(note.key, note)
        return is_new

    async def notes(self, run_id: str) -> list[Note]:
        return list(self._notes.get(run_id, {}).values())

    async def take_away(self, run_id: str, key: str) -> None:
        self._change()
        self._notes.get(run_id, {}).pop(key, None)

    def version(self) -> int:
        return self._version

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        self._change()
        self._snapshots[run_id] = snapshot

    async def load_snapshot(self, run_id: str) -> Snapshot | None:
        return self._snapshots.get(run_id)

    async def close(self) -> None:
        self._closed = True

    def _check_claim(self, run_id: str, claim: Claim | None) -> None:
        token, held = token_for(run_id, claim), self._held.get(run_id, NO_TOKEN)
        if token != held:
            raise fenced(run_id, token, this_process() if held else None)

    def _change(self) -> None:
        if self._closed:
            raise LogWriteError("the log is closed")
        self._version += 1
