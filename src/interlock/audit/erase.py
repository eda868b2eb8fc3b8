"""Erase runs: their events go for good, and a record stays that says who erased what, when and why.

The events of a run and of its child runs are removed in one transaction. Then the artifacts are deleted that no other
run refers to. The record names them, so that erasing the run once more deletes what a killed process left.
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from ..domain.errors import ArtifactError, ConfigurationError, LogError
from ..domain.event import LogEntry
from ..storage.artifacts import DeletableArtifacts
from ..storage.removal import RemovedRun
from .archive import ArchivableLog, build_record, find_family, list_child_ids, read_ended_run
from .checkpoint import ChainHead
from .export import read_export

MAX_REASON_CHARS = 500
_PAGE_EVENTS = 500
_DELETE_ARTIFACTS = 50
_find_ids = re.compile(rb"sha256:[0-9a-f]{64}").findall


class ErasureOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Who erases, and why.

    Args:
        by: Who erases.
        reason: What the record says, one line. It stays.
        artifacts: The artifacts of the log; None when there are none.
        clock: Nanoseconds since 1970.
    """

    by: str
    reason: str
    artifacts: DeletableArtifacts | None = None
    clock: Callable[[], int] = time.time_ns


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """What was erased."""

    #: The run and its child runs.
    runs: tuple[RemovedRun, ...]
    deleted_artifacts: int = 0
    #: Artifacts that stay, as other runs refer to them.
    shared_artifacts: int = 0
    #: Why artifacts were not deleted; empty when they were.
    problem: str = ""


async def erase_archived_run(log: ArchivableLog, removed: RemovedRun, options: ErasureOptions) -> list[RemovedRun]:
    """Erase a run that is archived, with its archived child runs: the files are deleted, and the records say so.
    Return the records.

    The artifacts stay until `delete_erased_artifacts`. First the records get the reason and the artifacts, then the
    files go, then the runs are erased: whatever is left by a killed process is archived still, and erased by the next
    try.
    """
    _check_reason(options.reason)
    family = [removed]
    for each in await list_child_ids(log, removed.run_id):
        record = await log.find_removed_run(each)
        if record and not record.is_erased and record.parent in [known.run_id for known in family]:
            family.append(record)
    marked: list[RemovedRun] = []
    for record in family:
        artifacts = record.artifacts
        if not record.reason:
            references = _list_references(await asyncio.to_thread(_read_archive, record))
            artifacts = await asyncio.to_thread(_find_stored, references, options.artifacts)
        marked.append(msgspec.structs.replace(record, reason=options.reason, artifacts=artifacts))
    await log.update_removed(marked)
    for record in marked:
        await asyncio.to_thread(_delete_archive, record)
    at, by = options.clock(), options.by
    erased = [msgspec.structs.replace(each, is_erased=True, removed_at=at, removed_by=by) for each in marked]
    await log.update_removed(erased)
    return erased


async def delete_erased_artifacts(
    log: ArchivableLog, erased: Sequence[RemovedRun], artifacts: DeletableArtifacts
) -> tuple[int, int]:
    """Delete the artifacts of erased runs that no other run refers to. Return how many were deleted, and how many stay.

    Reads the log and the archives once, until every artifact was found elsewhere. What is recorded meanwhile is read
    before the artifacts are deleted, a few at a time. The records forget the artifacts.
    """
    found = {artifact_id for each in erased for artifact_id in each.artifacts}
    left, position = await _drop_referenced(log, found, 0)
    left = await _drop_archived(log, left)
    deleted = 0
    while left:
        left, position = await _drop_referenced(log, left, position)
        for artifact_id in sorted(left)[:_DELETE_ARTIFACTS]:
            await asyncio.to_thread(artifacts.delete, artifact_id)
            left.remove(artifact_id)
            deleted += 1
    if pending := [msgspec.structs.replace(each, artifacts=()) for each in erased if each.artifacts]:
        await log.update_removed(pending)
    return deleted, len(found) - deleted


async def erase_run(log: ArchivableLog, run_id: str, options: ErasureOptions) -> Erasure:
    """Erase a run that is over with its child runs, and the artifacts that only they refer to.

    Archived ones are erased with their files. Raise `LogError`, and change nothing, when one of them is not over, is in
    use or is damaged. A run that is erased already stays as recorded, and only its artifacts are looked for again.
    """
    erased = await erase_events(log, run_id, options)
    erasure = Erasure(runs=tuple(erased))
    if options.artifacts is None or not any(each.artifacts for each in erased):
        return erasure
    try:
        deleted, shared = await delete_erased_artifacts(log, erased, options.artifacts)
    except (ArtifactError, LogError, ConfigurationError) as error:
        return msgspec.structs.replace(erasure, problem=str(error))
    return msgspec.structs.replace(erasure, deleted_artifacts=deleted, shared_artifacts=shared)


async def erase_events(log: ArchivableLog, run_id: str, options: ErasureOptions) -> list[RemovedRun]:
    """Erase a run that is over with its child runs, and leave its artifacts to `delete_erased_artifacts`.

    Return the records, also of a run that was erased before. Raise as `erase_run` does.
    """
    _check_reason(options.reason)
    family, removed = [run_id], list[RemovedRun]()
    for each in (run_id, *await list_child_ids(log, run_id)):
        record = await log.find_removed_run(each)
        if record and (each == run_id or record.parent in family):
            family.append(each)
            removed.append(record)
    erased = [each for each in removed if each.is_erased]
    if not any(each.run_id == run_id for each in removed):
        records = await _build_records(log, run_id, options)
        await log.remove_runs(records)
        erased += records
    for each in removed:
        if not each.is_erased and not any(each.run_id == known.run_id for known in erased):
            erased += await erase_archived_run(log, each, options)
    return erased


def _check_reason(reason: str) -> None:
    if not reason.strip() or len(reason) > MAX_REASON_CHARS or not reason.isprintable():
        raise ConfigurationError(f"A reason has one line of 1 to {MAX_REASON_CHARS} characters. Nothing was erased.")


def matches_record(removed: RemovedRun, signed: ChainHead) -> bool:
    """Return False if the record of a removed run contradicts what was signed. Of its hashes it has the last one."""
    if signed.count != removed.event_count:
        return signed.count < removed.event_count
    return signed.head == removed.head_hash


async def _build_records(log: ArchivableLog, run_id: str, options: ErasureOptions) -> list[RemovedRun]:
    at = options.clock()
    records: list[RemovedRun] = []
    for each in await find_family(log, run_id):
        entries, ledger = await read_ended_run(log, each)
        artifacts = await asyncio.to_thread(_find_stored, _list_references(entries), options.artifacts)
        record = build_record(entries, ledger, at=at, by=options.by)
        records.append(msgspec.structs.replace(record, is_erased=True, reason=options.reason, artifacts=artifacts))
    return records


def _list_references(entries: Iterable[LogEntry]) -> set[str]:
    """Return what may be ids of artifacts: every digest in the events, wherever it is."""
    return {each.decode() for entry in entries for each in _find_ids(entry.body)}


def _find_stored(ids: Iterable[str], artifacts: DeletableArtifacts | None) -> tuple[str, ...]:
    """Return those that the store has. Other digests do not go into a record."""
    if artifacts is None:
        return ()
    return tuple(each for each in sorted(ids) if artifacts.find(each.removeprefix("sha256:")))


async def _drop_referenced(log: ArchivableLog, ids: Iterable[str], position: int) -> tuple[set[str], int]:
    """Return the artifacts that no event after a position refers to, and the position until which events were read.
    Reads until each was found.
    """
    left = set(ids)
    while left and (page := await log.feed(position, _PAGE_EVENTS)):
        position = page[-1].position
        left -= _list_references([placed.entry for placed in page])
    return left, position


async def _drop_archived(log: ArchivableLog, ids: Iterable[str]) -> set[str]:
    """Return the artifacts that no archived run refers to."""
    left, after = set(ids), 0
    while left and (records := await log.archived_runs(after)):
        after = records[-1][0]
        for _, record in records:
            is_leaving = bool(record.reason)  # its file may be gone
            left -= (
                set(record.artifacts)
                if is_leaving
                else _list_references(await asyncio.to_thread(_read_archive, record))
            )
    return left


def _delete_archive(record: RemovedRun) -> None:
    try:
        Path(record.file).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"{record.file}, the archive of {record.run_id}, cannot be deleted: {error.strerror}. The run is not "
            "erased yet"
        ) from None


def _read_archive(record: RemovedRun) -> Sequence[LogEntry]:
    try:
        return read_export(Path(record.file).read_bytes().splitlines())
    except OSError as error:
        raise ConfigurationError(
            f"{record.file}, the archive of {record.run_id}, cannot be read: {error.strerror}. It may refer to the "
            "same artifacts, which stay. Put the file back, and erase the run once more"
        ) from None
