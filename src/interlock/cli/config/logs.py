"""Locates the log of a command, and the run in it that is meant. Reading never creates a log.

A child run has its parent's id, a dot and more letters: `1f2e3d4c.ab12` names it by the first letters of both. Without
a dot a top-level run is meant, so its short id stays unique.

Recorded runs are read from logs and exports. A run that fails verification is left out of `read_recordings`.
"""

import asyncio
import os
import re
import shlex
import sqlite3
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, TypeVar, cast

import msgspec

from ... import lazy_module
from ...audit.export import read_export
from ...audit.verify import ProgressTrace, verify
from ...domain.errors import ConfigurationError, InterlockError, LogCorruptError
from ...domain.event import Event, LogEntry, decode_event
from ...domain.suggestions import suggest_id
from ...storage.event_log import EventLog, Snapshot
from ...storage.file_artifacts import FileArtifacts
from ...storage.removal import RemovedRun, RunRemoval, describe_removed
from ...storage.sqlite.log import SqliteLog
from ..options import DATABASE_PREFIX, DATABASE_VARIABLE, LOG_VARIABLE, argument
from .user_paths import UserPaths, find_user_paths

if TYPE_CHECKING:
    from ...storage.postgres import artifacts as postgres_artifacts
    from ...storage.postgres import log as postgres_log
    from ...storage.postgres.artifacts import PostgresArtifacts
    from ...storage.postgres.queues import RunQueues
else:
    postgres_artifacts = lazy_module("...storage.postgres.artifacts", __package__)
    postgres_log = lazy_module("...storage.postgres.log", __package__)

MAX_EXPORT_BYTES = 256 << 20
_SQLITE_MAGIC = b"SQLite format 3\0"
_UNNAMED_RUNS_SQL = """
    SELECT count(DISTINCT run) FROM (SELECT run FROM events UNION ALL SELECT run FROM appends)
    WHERE run NOT IN (SELECT number FROM runs)
"""


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


def read_runs(path: str) -> list[RecordedRun]:
    """Return the entries by run. An event without a run id counts as a flaw of the run before it."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"{path} is not a file; name a log (runs.db) or an export (runs.ndjson).")
        if is_log_file(path):
            require_log_file(path)
            return asyncio.run(_read_log(path))
        if status.st_size > MAX_EXPORT_BYTES:
            raise ConfigurationError(f"{path} is larger than {MAX_EXPORT_BYTES:,} bytes; export fewer runs.")
        with open(path, "rb") as file:
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
    return _query_number(path, _UNNAMED_RUNS_SQL)


def is_log_file(path: str) -> bool:
    """Return True for a log, False for an export."""
    with open(path, "rb") as file:
        return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC


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


async def read_stored_run(log: EventLog, run_id: str) -> RecordedRun:
    """Read the entries of a run and the trace stored with its snapshot."""
    trace = _build_trace(
        await log.load_snapshot(run_id)
    )  # first: another process may be writing, and it must not be the newer one
    return RecordedRun(run_id, [normalize_entry(entry) for entry in await log.read(run_id)], trace)


async def _read_log(path: str) -> list[RecordedRun]:
    async with SqliteLog(path) as log:
        archived = {removed.run_id for removed in await log.removed_runs()}
        return [await read_stored_run(log, run_id) for run_id in await log.run_ids() if run_id not in archived]


def read_erased_runs(path: str) -> list[RemovedRun]:
    """Return the records of the runs that were erased from a log."""

    async def read() -> list[RemovedRun]:
        async with SqliteLog(path) as log:
            return [removed for removed in await log.removed_runs() if removed.is_erased]

    return asyncio.run(read())


def _build_trace(snapshot: Snapshot | None) -> ProgressTrace:
    seq, head_hash = cast(tuple[Any, Any], (snapshot.seq, snapshot.hash) if snapshot else (0, b""))
    is_sound = type(seq) is int and seq >= 0 and type(head_hash) is bytes
    return ProgressTrace(seq + 1, head_hash) if is_sound else ProgressTrace()


def _group_by_run(entries: Iterable[LogEntry]) -> list[RecordedRun]:
    runs: dict[str, list[LogEntry]] = {}
    run_id = ""
    for entry in entries:
        run_id = entry.run_id or run_id
        runs.setdefault(run_id, []).append(entry)
    return [RecordedRun(run_id, found) for run_id, found in runs.items()]


_T = TypeVar("_T")
_MAX_LISTED = 10
_RUN_PREFIX = "run_"
#: Ids that we made ourselves; others are shown in full.
_GENERATED_ID = re.compile(r"(?:run|act)_([0-9a-f]{8})[0-9a-f]{24}((?:\.[0-9a-f]{12})*)")
_NESTED_ID_CHARS = 4
_ARTIFACT_ID_CHARS = 12
#: Fewer letters after `run_` or `act_` name nothing: what is meant may be gone, and something else begin so, too.
MIN_ID_CHARS = 4


class RunFiles(msgspec.Struct, frozen=True):
    """The files of a run: its log, and its artifacts."""

    log: Path
    artifacts: Path


def find_run_files(log_path: Path | None, user_paths: UserPaths) -> RunFiles:
    """Return the files of the log named with `--log` or `INTERLOCK_LOG`, else of the default one. Creates nothing."""
    if is_in_database(log_path):
        raise ConfigurationError(
            f"This command needs a log in a file, and --log is {log_path}. A log in Postgres can be listed, watched, "
            "verified and answered. Nothing was started."
        )
    if log_path is None:
        return RunFiles(user_paths.log, user_paths.artifacts)
    log = log_path.absolute()
    return RunFiles(log, log.with_name(f"{log.name}.artifacts"))


def has_log(log_path: Path | None) -> bool:
    """Return False only where no run was stored yet in the default location. A named log has to exist."""
    return log_path is not None or find_user_paths().log.exists()


def find_default_log() -> Path:
    """Return the log of `INTERLOCK_LOG`, else the default one, which has to exist."""
    named = os.environ.get(LOG_VARIABLE)
    path = Path(named) if named else find_user_paths().log
    _require_existing(path)
    return path


def _require_existing(path: Path) -> None:
    if not path.exists():
        raise ConfigurationError(f"There are no runs yet: {path} does not exist. `--log` names another log.")


def open_artifacts(log_path: Path | None) -> "FileArtifacts | PostgresArtifacts | None":
    """Open the artifacts of the log; None where there are none."""
    if log_path is not None and is_in_database(log_path):
        url, schema = find_database(log_path)
        return postgres_artifacts.PostgresArtifacts(url, schema=schema)
    folder = find_run_files(log_path, find_user_paths()).artifacts
    return FileArtifacts(folder) if folder.is_dir() else None


def is_in_database(log_path: Path | None) -> bool:
    """Return True for a log in Postgres."""
    return log_path is not None and str(log_path).startswith(DATABASE_PREFIX)


async def find_waiting_reason(log: EventLog, run_id: str) -> str:
    """Return why no worker continues a run of a log in Postgres; empty when one can."""
    queues: RunQueues | None = getattr(log, "queues", None)
    return "" if queues is None else (await queues.waiting_reasons([run_id])).get(run_id, "")


def find_database(log_path: Path) -> tuple[str, str]:
    """Return the URL and the schema of a log in Postgres. The URL is not in the command line, where others see it."""
    url = os.environ.get(DATABASE_VARIABLE, "")
    if not url:
        raise ConfigurationError(f"--log is {log_path}, and {DATABASE_VARIABLE} has no URL. Set it.")
    return url, str(log_path).removeprefix(DATABASE_PREFIX) or "interlock"


@asynccontextmanager
async def open_log(log_path: Path | None) -> AsyncGenerator[EventLog]:
    """Open the log, which has to exist."""
    if log_path is not None and is_in_database(log_path):
        url, schema = find_database(log_path)
        async with postgres_log.PostgresLog(url, schema=schema) as log:
            yield log
        return
    async with open_log_file(log_path) as log:
        yield log


@asynccontextmanager
async def open_log_file(log_path: Path | None) -> AsyncGenerator[SqliteLog]:
    """Open a log in a file, which has to exist."""
    path = find_user_paths().log if log_path is None else log_path
    _require_existing(path)
    require_log_file(str(path))
    async with SqliteLog(path) as log:
        yield log


def run_with_log(log_path: Path | None, work: Callable[[EventLog], Awaitable[_T]]) -> _T:
    """Run work on the log, which has to exist."""

    async def opened() -> _T:
        async with open_log(log_path) as log:
            return await work(log)

    return asyncio.run(opened())


def read_run(log_path: Path | None, run_ref: str) -> RecordedRun:
    """Read a run. Raise `ConfigurationError` when there is no such run."""

    async def read(log: EventLog) -> RecordedRun:
        found = await read_stored_run(log, match_run(await log.run_ids(), run_ref))
        if not found.entries:
            await _refuse_archived(log, found.run_id)
        return found

    return run_with_log(log_path, read)


async def resolve_run(log: EventLog, run_ref: str) -> str:
    """Return the id of a run. Raise `LogCorruptError` for one that has no events any more."""
    run_id = match_run(await log.run_ids(), run_ref)
    if not await log.read(run_id, limit=1):
        await _refuse_archived(log, run_id)
        raise LogCorruptError(f"the log knows {run_id}, and none of its events is there: they were deleted")
    return run_id


async def _refuse_archived(log: EventLog, run_id: str) -> None:
    """Raise `ConfigurationError` for a run that was archived or erased: where it is, or who did it."""
    if isinstance(log, RunRemoval):
        for removed in await log.removed_runs():
            if removed.run_id == run_id:
                raise ConfigurationError(f"{describe_removed(removed)}.")


def match_run(run_ids: Sequence[str], run_ref: str) -> str:
    """Return the one run that is meant: by its id, by the first letters of it, or the `last` one. Oldest first.

    Raise `ConfigurationError` when there is no such run, or more than one.
    """
    outer = [run_id for run_id in run_ids if not list_ancestors(run_id)]
    if run_ref == "last" and run_ids:
        return (outer or run_ids)[-1]
    if run_ref in run_ids:
        return run_ref
    matches = [run_id for run_id in run_ids if run_ref and _matches_run(run_id, run_ref)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ConfigurationError(
            f"{run_ref} may be any of {len(matches):,} runs: {_format_run_ids(matches)}. Write more of it."
        )
    available = f"Known: {_format_run_ids(outer or run_ids)}." if run_ids else "There are no runs yet."
    available = suggest_id(run_ref, reversed(run_ids)) or available
    if run_ids and len(run_ref.removeprefix(_RUN_PREFIX)) < MIN_ID_CHARS:
        available = f"At least {MIN_ID_CHARS} letters of its id name one. {available}"
    raise ConfigurationError(f"Unknown run `{run_ref[:80]}`. {available}")


def is_nested_in(run_id: str, parent_id: str) -> bool:
    """Return True if it is a child run of the other one, at any depth."""
    return run_id.startswith(f"{parent_id}.")


def list_ancestors(run_id: str) -> list[str]:
    """Return its parent runs, the outermost first; empty for a top-level run."""
    parts = _split_run_id(run_id)
    return [".".join(parts[:depth]) for depth in range(1, len(parts))]


def shorten_id(name: str) -> str:
    """Return as much of an id as commands need."""
    generated = _GENERATED_ID.fullmatch(name)
    if generated is None:
        return name
    return ".".join((generated[1], *(part[:_NESTED_ID_CHARS] for part in generated[2].split(".")[1:])))


def shorten_artifact_id(artifact_id: str) -> str:
    """Return as much of the id of an artifact as commands need."""
    return artifact_id.removeprefix("sha256:")[:_ARTIFACT_ID_CHARS]


def add_log_option(command: str, log_path: Path | None) -> str:
    """Return a suggested command with the option for the same log."""
    if log_path is None or str(log_path) == os.environ.get(LOG_VARIABLE):
        return command
    return f"{command} --log {shlex.quote(str(log_path))}"


def complete_run(incomplete: str) -> list[str]:
    """Return completions for a shell; none if anything fails."""

    return complete_id(incomplete, _RUN_PREFIX, lambda log: log.run_ids())


def complete_id(incomplete: str, prefix: str, names: Callable[[EventLog], Awaitable[list[str]]]) -> list[str]:
    """Return the ids that begin so, the newest first; short ones, unless the prefix was typed."""

    log_path = os.environ.get(LOG_VARIABLE)
    try:
        ids = run_with_log(Path(log_path) if log_path else None, names)
    except (InterlockError, OSError):
        return []
    shown = [name if incomplete.startswith(prefix) else shorten_id(name) for name in reversed(ids)]
    return [name for name in ("last", *shown) if name.startswith(incomplete)]


def _split_run_id(run_id: str) -> list[str]:
    return run_id.split(".") if _GENERATED_ID.fullmatch(run_id) else [run_id]


def _matches_run(run_id: str, run_ref: str) -> bool:
    parts = _split_run_id(run_id)
    given = run_ref.split(".") if len(parts) > 1 else [run_ref]
    if len(parts) != len(given):
        return False
    first, *inside = zip(parts, given, strict=True)
    return matches_id(*first, _RUN_PREFIX) and all(part.startswith(some) for part, some in inside)


def matches_id(name: str, ref: str, prefix: str) -> bool:
    """Return True if it is the id, or its beginning. The prefix may be omitted, and is not counted."""
    whole, letters = name.removeprefix(prefix), ref.removeprefix(prefix)
    return bool(letters) and (whole == letters or (len(letters) >= MIN_ID_CHARS and whole.startswith(letters)))


def _format_run_ids(run_ids: Sequence[str]) -> str:
    """List the ids of runs, the newest first."""
    ids = ", ".join(shorten_id(run_id) for run_id in list(reversed(run_ids))[:_MAX_LISTED])
    return ids if len(run_ids) <= _MAX_LISTED else f"{ids} and {len(run_ids) - _MAX_LISTED:,} more"


RunArgument: TypeAlias = Annotated[str, argument("RUN", "Run id, its first characters, or `last`.", complete_run)]
