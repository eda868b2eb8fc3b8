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
from ..domain.event import LogEntry, RunStarted, decode_event
from ..storage.artifacts import DeletableArtifacts
from ..storage.removal import RemovedRun, describe_removed
from .archive import ArchivableLog, build_record, read_ended_run
from .checkpoint import ChainHead
from .export import read_export

MAX_REASON_CHARS = 500
_PAGE_EVENTS = 500
_find_ids = re.compile(rb"sha256:[0-9a-f]{64}").findall
_is_child_suffix = re.compile(r"(\.[0-9a-f]{12})+").fullmatch


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


async def erase_archived_run(log: ArchivableLog, removed: RemovedRun, options: ErasureOptions) -> RemovedRun:
    """Erase a run that is archived: the record says so, and its file is deleted. Return the record.

    Its artifacts stay until `delete_erased_artifacts`. A process that is killed in between leaves the file, which the
    record names: erasing the run once more deletes it.
    """
    _check_reason(options.reason)
    if not removed.is_erased:
        references = _list_references(await asyncio.to_thread(_read_archive, removed))
        artifacts = await asyncio.to_thread(_find_stored, references, options.artifacts)
        removed = msgspec.structs.replace(
            removed,
            is_erased=True,
            removed_at=options.clock(),
            removed_by=options.by,
            reason=options.reason,
            artifacts=artifacts,
        )
        await log.update_removed([removed])
    await asyncio.to_thread(_delete_archive, removed)
    return removed


async def delete_erased_artifacts(
    log: ArchivableLog, erased: Sequence[RemovedRun], artifacts: DeletableArtifacts
) -> tuple[int, int]:
    """Delete the artifacts of erased runs that no other run refers to. Return how many were deleted, and how many stay.

    Reads the log and the archives once, until every artifact was found elsewhere. The records forget the artifacts.
    """
    found = {artifact_id for each in erased for artifact_id in each.artifacts}
    unshared = await _find_unreferenced(log, found)
    for artifact_id in sorted(unshared):
        await asyncio.to_thread(artifacts.delete, artifact_id)
    if pending := [msgspec.structs.replace(each, artifacts=()) for each in erased if each.artifacts]:
        await log.update_removed(pending)
    return len(unshared), len(found) - len(unshared)


async def erase_run(log: ArchivableLog, run_id: str, options: ErasureOptions) -> Erasure:
    """Erase a run that is over with its child runs, and the artifacts that only they refer to.

    Raise `LogError`, and change nothing, when one of them is not over, is in use, is damaged or is archived. A run that
    is erased already stays as recorded, and only its artifacts are looked for again.
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
    removed: list[RemovedRun] = []
    for each in (run_id, *await _list_child_ids(log, run_id)):
        if record := await log.find_removed_run(each):
            removed.append(record)
    for each in removed:
        if not each.is_erased:
            raise LogError(f"{describe_removed(each)}. Erase it then. Nothing was erased.")
    if not any(each.run_id == run_id for each in removed):
        erased = await _build_records(log, run_id, options)
        await log.remove_runs(erased)
        removed += erased
    return removed


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
    for each in await _find_family(log, run_id):
        entries, ledger = await read_ended_run(log, each)
        artifacts = await asyncio.to_thread(_find_stored, _list_references(entries), options.artifacts)
        record = build_record(entries, ledger, at=at, by=options.by)
        records.append(msgspec.structs.replace(record, is_erased=True, reason=options.reason, artifacts=artifacts))
    return records


async def _find_family(log: ArchivableLog, run_id: str) -> list[str]:
    """Return the run and its child runs at any depth. An id that only looks like one of a child does not count."""
    family = [run_id]
    for each in await _list_child_ids(log, run_id):
        first = await log.read(each, limit=1)
        fact = decode_event(first[0]).fact if first else None
        if isinstance(fact, RunStarted) and fact.parent_run_id in family:
            family.append(each)
    return family


async def _list_child_ids(log: ArchivableLog, run_id: str) -> list[str]:
    return sorted(each for each in await log.child_run_ids(run_id) if _is_child_suffix(each[len(run_id) :]))


def _list_references(entries: Iterable[LogEntry]) -> set[str]:
    """Return what may be ids of artifacts: every digest in the events, wherever it is."""
    return {each.decode() for entry in entries for each in _find_ids(entry.body)}


def _find_stored(ids: Iterable[str], artifacts: DeletableArtifacts | None) -> tuple[str, ...]:
    """Return those that the store has. Other digests do not go into a record."""
    if artifacts is None:
        return ()
    return tuple(each for each in sorted(ids) if artifacts.find(each.removeprefix("sha256:")))


async def _find_unreferenced(log: ArchivableLog, ids: Iterable[str]) -> set[str]:
    """Return the artifacts that no run refers to, in the log or in an archive. Reads until each was found."""
    left, position = set(ids), 0
    while left and (page := await log.feed(position, _PAGE_EVENTS)):
        position = page[-1].position
        left -= _list_references([placed.entry for placed in page])
    after = 0
    while left and (records := await log.archived_runs(after)):
        after = records[-1][0]
        for _, record in records:
            left -= _list_references(await asyncio.to_thread(_read_archive, record))
    return left


def _delete_archive(record: RemovedRun) -> None:
    try:
        Path(record.file).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"{record.file}, the archive of {record.run_id}, cannot be deleted: {error.strerror}. The run is erased in "
            "the log. Delete the file"
        ) from None


def _read_archive(record: RemovedRun) -> Sequence[LogEntry]:
    try:
        return read_export(Path(record.file).read_bytes().splitlines())
    except OSError as error:
        raise ConfigurationError(
            f"{record.file}, the archive of {record.run_id}, cannot be read: {error.strerror}. It may refer to the "
            "same artifacts, which stay. Put the file back, and erase the run once more"
        ) from None
