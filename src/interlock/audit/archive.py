"""Archive runs: their events go from a log to verified exports, and back.

The order makes it safe to be killed at any step: the file is durable and was read back and verified before the log
gives up the events, which is one transaction. Until then the run is in the log; a file that is left behind is written
again by the next try.
"""

import asyncio
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import mkstemp
from typing import Protocol
from urllib.parse import quote

import msgspec

from ..domain.errors import ConfigurationError, LogCorruptError, LogError
from ..domain.event import TERMINAL_EVENTS, Event, LogEntry, RunPaused, RunStarted, decode_event
from ..domain.state.ledger import Ledger
from ..storage.event_log import EventLog
from ..storage.removal import RemovedRun, RunRemoval
from .export import read_export, to_ndjson
from .signed_checkpoint import SignedCheckpoint
from .verify import verify

_MAX_NAME_CHARS = 200
_is_child_suffix = re.compile(r"(\.[0-9a-f]{12})+").fullmatch


class ArchivableLog(EventLog, RunRemoval, Protocol):
    """A log that can give up the events of a run."""


class EndedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs that ended before a time, oldest first."""

    run_ids: tuple[str, ...]
    #: Runs whose first or last event cannot be read: they stay.
    damaged_run_ids: tuple[str, ...] = ()
    #: Where the next page begins; None when no later run can have ended before that time.
    after: int | None


async def read_ended_runs(
    log: ArchivableLog, before: int, after: int = 0, limit: int = 100, *, with_children: bool = True
) -> EndedRuns:
    """Look at the next runs that the log has, oldest first, and return those that ended before a time in nanoseconds.

    Runs are in the order of their start: a page of runs that all began later is the last one. Without `with_children`
    child runs are left out, unless their parent was removed.
    """
    page = await log.oldest_runs(after, limit)
    found: list[str] = []
    damaged: list[str] = []
    is_last = True
    for _, summary in page:
        try:
            first, last = decode_event(summary.first), decode_event(summary.last)
        except LogError:
            is_last = False
            damaged.append(summary.first.run_id)
            continue
        is_last = is_last and first.at >= before
        if last.at < before and await _is_over(log, last) and (with_children or await _is_apart(log, first)):
            found.append(last.run_id)
    return EndedRuns(run_ids=tuple(found), damaged_run_ids=tuple(damaged), after=None if is_last else page[-1][0])


async def list_archivable(log: ArchivableLog, before: int) -> list[str]:
    """Return the runs that ended before a time in nanoseconds, oldest first."""
    found: list[str] = []
    after: int | None = 0
    while after is not None:
        page = await read_ended_runs(log, before, after)
        found += page.run_ids
        after = page.after
    return found


class ArchiveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where archives go, and who makes them.

    Args:
        folder: An absolute path. A missing folder is created.
        by: Who archives.
        sign: Makes the signed checkpoint of an archive; None when the run does not match what was signed before.
        clock: Nanoseconds since 1970.
    """

    folder: Path
    by: str
    sign: Callable[[str, Sequence[LogEntry]], SignedCheckpoint | None] | None = None
    clock: Callable[[], int] = time.time_ns


async def archive_run(log: ArchivableLog, run_id: str, options: ArchiveOptions) -> RemovedRun:
    """Write a run that is over to a file of a folder, verify the file, and take the run out of the log.

    Raise `LogError` when the run cannot be archived: it is not over, is in use, or is damaged.
    """
    removed = await _write_archive(*await read_ended_run(log, run_id), options)
    await log.remove_runs([removed])
    return removed


async def archive_family(log: ArchivableLog, run_id: str, options: ArchiveOptions) -> list[RemovedRun]:
    """Archive a run that is over with its child runs at any depth, each to a file. They leave the log in one
    transaction.

    Raise `LogError`, and remove nothing, when one of them cannot be archived.
    """
    family = [await read_ended_run(log, each) for each in await find_family(log, run_id)]
    removed = [await _write_archive(entries, ledger, options) for entries, ledger in family]
    await log.remove_runs(removed)
    return removed


async def find_family(log: ArchivableLog, run_id: str) -> list[str]:
    """Return the run and its child runs that the log has. An id that only looks like one of a child does not count."""
    family = [run_id]
    for each in await list_child_ids(log, run_id):
        first = await log.read(each, limit=1)
        fact = decode_event(first[0]).fact if first else None
        if isinstance(fact, RunStarted) and fact.parent_run_id in family:
            family.append(each)
    return family


async def list_child_ids(log: ArchivableLog, run_id: str) -> list[str]:
    """Return the ids that look like those of child runs at any depth, parents first; also of removed runs."""
    return sorted(each for each in await log.child_run_ids(run_id) if _is_child_suffix(each[len(run_id) :]))


async def read_ended_run(log: EventLog, run_id: str) -> tuple[list[LogEntry], Ledger]:
    """Return the events of a run and the state that they lead to. Raise `LogError` when the run is not over, is in use,
    or is damaged.
    """
    entries = await log.read(run_id)
    ledger = _verify(entries, run_id, "log")
    if not ledger.is_over:
        raise LogError(f"{run_id} is {ledger.state.value}. Only a run that is over is removed. Nothing was removed.")
    if holder := await log.lease_holder(run_id):
        raise LogError(f"{run_id} is owned by running {holder}. Nothing was removed.")
    return entries, ledger


def build_record(entries: Sequence[LogEntry], ledger: Ledger, *, at: int, by: str) -> RemovedRun:
    """Return the record of a run that is removed."""
    first = decode_event(entries[0])
    return RemovedRun(
        run_id=ledger.run_id,
        parent=str(getattr(first.fact, "parent_run_id", "")),
        event_count=len(entries),
        head_hash=entries[-1].hash.hex(),
        agent=str(getattr(first.fact, "agent", "")),
        state=ledger.state.value,
        started_at=first.at,
        ended_at=decode_event(entries[-1]).at,
        removed_at=at,
        removed_by=by,
    )


async def restore_run(log: ArchivableLog, file: Path) -> str:
    """Verify an archive, and put its run back into the log that it was taken from. Return the id of the run."""
    try:
        content = await asyncio.to_thread(file.read_bytes)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}. Nothing was restored.") from None
    entries = read_export(content.splitlines())
    if not entries:
        raise LogError(f"{file} has no events. Nothing was restored.")
    run_id = entries[0].run_id
    _verify(entries, run_id, str(file))
    await log.restore_run(run_id, entries)
    return run_id


async def _write_archive(entries: Sequence[LogEntry], ledger: Ledger, options: ArchiveOptions) -> RemovedRun:
    """Write a run to a file, and verify the file. Return the record of the run."""
    run_id = ledger.run_id
    signed = options.sign(run_id, entries) if options.sign is not None else None
    if options.sign is not None and signed is None:
        raise LogError(f"{run_id} does not match what was signed before. Nothing was removed.")
    content = b"".join(to_ndjson(entries, signed))
    file = options.folder / _file_name(run_id)
    await asyncio.to_thread(_write_durably, file, content)
    written = await asyncio.to_thread(file.read_bytes)
    archived = read_export(written.splitlines())
    _verify(archived, run_id, str(file))
    if archived != entries:
        raise LogError(f"{file} is not what was written. Nothing was removed.")
    record = build_record(entries, ledger, at=options.clock(), by=options.by)
    return msgspec.structs.replace(record, file=str(file), file_sha256=sha256(written).hexdigest())


async def _is_apart(log: ArchivableLog, first: Event) -> bool:
    """Return False for a child run whose parent is in the log: it goes with its parent."""
    parent = getattr(first.fact, "parent_run_id", "")
    return not parent or await log.find_removed_run(parent) is not None


async def _is_over(log: EventLog, last: Event) -> bool:
    if isinstance(last.fact, (*TERMINAL_EVENTS, RunPaused)):
        return not isinstance(last.fact, RunPaused)
    return (await _load_ledger(log, last.run_id)).is_over  # something was recorded after its end


async def _load_ledger(log: EventLog, run_id: str) -> Ledger:
    ledger = Ledger(run_id=run_id)
    with suppress(LogError):
        for entry in await log.read(run_id):
            ledger.apply(decode_event(entry))
    return ledger


def _verify(entries: Sequence[LogEntry], run_id: str, place: str) -> Ledger:
    """Raise unless the events are one unbroken chain. Return the state that they lead to."""
    checked = verify(entries, run_id)
    if checked.flaw is not None or not entries:
        problem = "it has no events" if checked.flaw is None else checked.flaw.message
        raise LogCorruptError(f"{run_id} in {place} is damaged: {problem}. Nothing was changed.")
    ledger = Ledger(run_id=run_id)
    for entry in entries:
        ledger.apply(decode_event(entry))
    return ledger


def _file_name(run_id: str) -> str:
    name = quote(run_id, safe="")
    if len(name) > _MAX_NAME_CHARS or name.startswith("."):
        name = sha256(run_id.encode(errors="surrogatepass")).hexdigest()
    return f"{name}.ndjson"


def _write_durably(file: Path, content: bytes) -> None:
    """Write a file that only its owner reads, completely or not at all."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = mkstemp(prefix=".archive-", suffix=".tmp", dir=file.parent)
        try:
            with open(descriptor, "wb") as writer:
                writer.write(content)
                writer.flush()
                os.fsync(descriptor)
            os.replace(temporary, file)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise LogError(f"{file} cannot be written: {error.strerror}. Nothing was removed.") from error
