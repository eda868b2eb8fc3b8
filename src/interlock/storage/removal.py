"""Runs whose events were taken out of a log: archived to a file, or erased. A record says what was there.

The id of such a run stays taken. Events of an archived run keep their positions in the feed: what is restored is where
it was, so a reader of the feed neither loses nor repeats anything.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable

import msgspec

from ..domain.errors import LogError
from ..domain.event import LogEntry
from .event_log import RunSummary
from .packing import pack


class RemovedRun(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a run that was archived or erased. It has nothing of what the run said or did."""

    run_id: str
    event_count: int
    #: The hash of its last event, in hexadecimal digits.
    head_hash: str
    agent: str = ""
    #: The run that it is a child of.
    parent: str = ""
    state: str = ""
    started_at: int = 0
    removed_at: int
    removed_by: str
    #: When its last event was recorded; 0 in records of older versions.
    ended_at: int = 0
    #: The archive: where it was written, and the SHA-256 digest of the file. Of an erased run: the archive that it had,
    #: which is deleted.
    file: str = ""
    file_sha256: str = ""
    is_erased: bool = False
    #: Why it was erased, and the artifacts that are still to be deleted unless other runs refer to them. An archived
    #: run with a reason is about to be erased.
    reason: str = ""
    artifacts: tuple[str, ...] = ()


def describe_removed(removed: RemovedRun) -> str:
    """Return where a run is that was taken out of its log, and how it comes back; for an erased one who did it."""
    if removed.is_erased:
        at = datetime.fromtimestamp(removed.removed_at // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{removed.run_id} was erased at {at} by {removed.removed_by}: {removed.reason}"
    return f"{removed.run_id} was archived to {removed.file}. `interlock runs restore FILE` brings it back"


@runtime_checkable
class RunRemoval(Protocol):
    """What a log offers that can give up events of runs. Needs more rights than using the log."""

    async def remove_runs(self, removed: Sequence[RemovedRun]) -> None:
        """Take the events of runs out of the log in one transaction, and leave the records. Raise `LogError`, and
        change nothing, when a run is not what its record says, or is in use.
        """
        ...

    async def restore_run(self, run_id: str, entries: Sequence[LogEntry]) -> None:
        """Put the events back, and remove the record. Raise `LogError` when they are not those that were removed."""
        ...

    async def update_removed(self, removed: Sequence[RemovedRun]) -> None:
        """Replace the records of removed runs in one transaction. Lists forget a run that is erased by it."""
        ...

    async def oldest_runs(self, after: int = 0, limit: int = 100) -> list[tuple[int, RunSummary]]:
        """Return runs that the log has, oldest first, each with a number to continue after. Runs that are not over may
        be left out.
        """
        ...

    async def child_run_ids(self, run_id: str) -> list[str]:
        """Return the ids that look like those of child runs at any depth, also of removed ones."""
        ...

    async def removed_runs(self) -> list[RemovedRun]:
        """Return the records, oldest run first."""
        ...

    async def archived_runs(self, after: int = 0, limit: int = 100) -> list[tuple[int, RemovedRun]]:
        """Return records of archived runs, oldest run first, each with a number to continue after."""
        ...

    async def erased_runs(self, after: int = 0, limit: int = 100) -> list[tuple[int, RemovedRun]]:
        """Return records of erased runs in the order of their erasure, each with a number to continue after."""
        ...

    async def find_removed_run(self, run_id: str) -> RemovedRun | None:
        """Return the record of a run; None when its events were not removed."""
        ...


#: The first position, the first `seq` and the number of events of a row.
Place = tuple[int, int, int]


class StoredRecord(msgspec.Struct, frozen=True):
    """A record with the places of the rows."""

    run: RemovedRun
    places: tuple[Place, ...]


encode_record = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(StoredRecord).decode


def find_removal_problem(removed: RemovedRun, places: Sequence[Place], last_hash: bytes, newest: int) -> str:
    """Return why a run cannot be removed; empty when it can. `newest`: the last position of the log."""
    if not places:
        return f"the events of {removed.run_id} are not in this log"
    position, seq, count = places[-1]
    if seq + count != removed.event_count or last_hash.hex() != removed.head_hash:
        return f"{removed.run_id} was changed meanwhile"
    if position + count - 1 >= newest:
        return f"{removed.run_id} has the newest event of the log, which stays"
    return ""


def pack_restored(record: StoredRecord, entries: Sequence[LogEntry]) -> list[tuple[int, int, int, bytes, bytes]]:
    """Return the rows of a run at the places where they were. Raise unless these are its events."""
    run = record.run
    if run.is_erased:
        raise LogError(f"{describe_removed(run)}. Nothing was restored.")
    head_hash = entries[-1].hash.hex() if entries else ""
    if len(entries) != run.event_count or head_hash != run.head_hash:
        raise LogError(f"these are not the events of {run.run_id} that were removed. Nothing was restored.")
    rows: list[tuple[int, int, int, bytes, bytes]] = []
    for position, seq, count in record.places:
        ((_, _, bodies, hashes),) = pack(entries[seq : seq + count])
        rows.append((position, seq, count, bodies, hashes))
    return rows
