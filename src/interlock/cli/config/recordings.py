"""The events of recorded runs, from logs and exports. A run that fails verification is left out."""

import asyncio
import os
import sqlite3
import stat
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from ...audit.export import read_export
from ...audit.verify import ProgressTrace, verify
from ...domain.errors import ConfigurationError
from ...domain.event import Event, LogEntry, decode_event
from ...storage.event_log import Snapshot
from ...storage.sqlite.log import SqliteLog

MAX_EXPORT_BYTES = 256 << 20
_SQLITE_MAGIC = b"SQLite format 3\0"
_UNNAMED_RUNS_SQL = "SELECT count(DISTINCT run) FROM events WHERE run NOT IN (SELECT number FROM runs)"


class RecordedRun(NamedTuple):
    """A recorded run with its entries."""

    run_id: str
    entries: list[LogEntry]
    #: What the log has of the run beside its events; None for an export.
    trace: ProgressTrace | None = None


class Recordings(msgspec.Struct, frozen=True):
    """The events of recorded runs."""

    events: list[Event]
    runs: int
    #: Runs that were left out, each with the reason.
    left_out: tuple[str, ...] = ()


def read_recordings(paths: Iterable[str]) -> Recordings:
    """Read logs and exports. Raise `ConfigurationError` or `LogError` for other files."""
    runs: dict[str, RecordedRun] = {}
    for path in paths:
        # A run that is in two files is read once.
        runs = {**{run.run_id: run for run in read_runs(path)}, **runs}
    results = {run_id: verify(run.entries, run_id, trace=run.trace) for run_id, run in runs.items()}
    flaws = {run_id: audit.flaw for run_id, audit in results.items() if audit.flaw}
    return Recordings(
        [decode_event(entry) for run_id, run in runs.items() if run_id not in flaws for entry in run.entries],
        len(runs) - len(flaws),
        tuple(f"{run_id or 'a run without a name'}: {flaw.message}" for run_id, flaw in flaws.items()),
    )


def read_entries(path: str) -> Iterable[LogEntry]:
    """Return all events of a log or an export, unverified."""
    return [entry for run in read_runs(path) for entry in run.entries]


def read_runs(path: str) -> list[RecordedRun]:
    """Return the entries by run. An event without a run id counts as a flaw of the run before it."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"{path} is not a file; name a log (runs.db) or an export (runs.ndjson).")
        with open(path, "rb") as file:
            if file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC:
                require_log_file(path)
                return asyncio.run(_read_log(path))
            if status.st_size > MAX_EXPORT_BYTES:
                raise ConfigurationError(f"{path} is larger than {MAX_EXPORT_BYTES:,} bytes; export fewer runs.")
            file.seek(0)
            return _group_by_run(read_export(file))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{path} cannot be read: {reason}. Name a log or an export.") from None


def require_log_file(path: str) -> None:
    """Raise unless the file is a log: opening would convert it, and files of other programs must stay unchanged."""
    if _query_number(path, "PRAGMA user_version") == 0:
        raise ConfigurationError(f"{path} is an SQLite file, but not a log.")


def count_unnamed_runs(path: str) -> int:
    """Return how many runs have events in a log but no name: deleting the name would hide a run from every command."""
    with open(path, "rb") as file:
        is_log = file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
    return _query_number(path, _UNNAMED_RUNS_SQL) if is_log else 0


def _query_number(path: str, sql: str) -> int:
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(sql).fetchone()[0]
    except sqlite3.Error as error:
        raise ConfigurationError(f"{path} cannot be read: {error}. Name a log.") from None


def normalize_entry(entry: LogEntry) -> LogEntry:
    """Return the entry with bytes: a log edited with other tools may have text. That is a flaw to report, not a
    crash.
    """
    seq, body, head_hash = cast(tuple[Any, Any, Any], (entry.seq, entry.body, entry.hash))
    if type(seq) is int and type(body) is bytes and type(head_hash) is bytes:
        return entry
    return LogEntry(entry.run_id, seq if type(seq) is int else -1, _to_bytes(body), _to_bytes(head_hash))


def _to_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


async def read_stored_run(log: SqliteLog, run_id: str) -> RecordedRun:
    trace = _build_trace(
        await log.load_snapshot(run_id)
    )  # first: another process may be writing, and it must not be the newer one
    return RecordedRun(run_id, [normalize_entry(entry) for entry in await log.read(run_id)], trace)


async def _read_log(path: str) -> list[RecordedRun]:
    async with SqliteLog(path) as log:
        return [await read_stored_run(log, run_id) for run_id in await log.run_ids()]


def _build_trace(snapshot: Snapshot | None) -> ProgressTrace:
    seq, head_hash = cast(tuple[Any, Any], (snapshot.seq, snapshot.hash) if snapshot else (0, b""))
    return (
        ProgressTrace(seq + 1, head_hash)
        if type(seq) is int and seq >= 0 and type(head_hash) is bytes
        else ProgressTrace()
    )


def _group_by_run(entries: Iterable[LogEntry]) -> list[RecordedRun]:
    runs: dict[str, list[LogEntry]] = {}
    run_id = ""
    for entry in entries:
        run_id = entry.run_id or run_id
        runs.setdefault(run_id, []).append(entry)
    return [RecordedRun(run_id, found) for run_id, found in runs.items()]
