"""The log in one SQLite file: the embedded default.

WAL with `synchronous=FULL`: a commit that returned survives a crash of the process and of the machine. Appends go
through one thread that commits for all (`sqlite_writer`); reads have a connection of their own and run in a thread.
So neither holds up the event loop. Several processes may use one file; a run belongs to whoever appends in step.

Events lie in the order of their commits, so a commit touches few pages however many runs share it, and the key finds
a run's events. Runs have numbers to keep the key small.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TypeVar
from weakref import finalize

from ..domain.chain import Entry
from ..domain.errors import LogError
from .interface import Snapshot
from .sqlite_writer import BUSY_SECONDS, SqliteWriter, execute_when_free

T = TypeVar("T")

SCHEMA_VERSION = 1

_SCHEMA = (
    "CREATE TABLE runs (number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE)",
    """CREATE TABLE events (
        run INTEGER NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (run, seq)
    )""",
    """CREATE TABLE snapshots (
        run_id TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash BLOB NOT NULL, state BLOB NOT NULL
    ) WITHOUT ROWID""",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

_READ = """
    SELECT seq, body, hash FROM events
    WHERE run = (SELECT number FROM runs WHERE run_id = ?) AND seq > ? ORDER BY seq LIMIT ?
"""
_RUN_IDS = "SELECT run_id FROM runs ORDER BY number"
_LOAD_SNAPSHOT = "SELECT seq, hash, state FROM snapshots WHERE run_id = ?"

_FULL = 2

#: Closing any descriptor of a file drops every lock that this process has on it, SQLite's too. So a file is made
#: only where there is none, by one thread at a time, and before anybody here can have opened it.
_creating = Lock()


class SqliteLog:
    """Opening makes the file if there is none, for its owner only. `factory` is the class of the connections."""

    immediate = False

    def __init__(self, path: str | os.PathLike[str], *, factory: type[sqlite3.Connection] = sqlite3.Connection) -> None:
        self._path = Path(path).resolve()
        writing, self._reader = _open(self._path, factory)
        self._reading = Lock()
        self._writer = SqliteWriter(writing)
        # Runs once: on `close`, when the log is dropped, or when the interpreter exits.
        self._shut = finalize(self, _shut, self._writer, self._reader, self._reading)

    @property
    def own_paths(self) -> tuple[str, ...]:
        """Where its files are, which no tool may touch."""
        return tuple(f"{self._path}{ending}" for ending in ("", "-wal", "-shm", "-journal"))

    def append(self, run_id: str, entries: Sequence[Entry]) -> asyncio.Future[None] | None:
        return self._writer.submit(run_id, tuple(entries)) if entries else None

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[Entry]:
        return await self._query(partial(Entry, run_id), _READ, run_id, after_seq, -1 if limit is None else limit)

    async def run_ids(self) -> list[str]:
        return await self._query(str, _RUN_IDS)

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        await self._writer.submit(run_id, snapshot)

    async def load_snapshot(self, run_id: str) -> Snapshot | None:
        found = await self._query(Snapshot, _LOAD_SNAPSHOT, run_id)
        return found[0] if found else None

    async def close(self) -> None:
        await asyncio.to_thread(self._shut)

    async def __aenter__(self) -> "SqliteLog":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _query(self, make: Callable[..., T], sql: str, *parameters: str | int) -> list[T]:
        return await asyncio.to_thread(self._query_now, make, sql, parameters)

    def _query_now(self, make: Callable[..., T], sql: str, parameters: tuple[str | int, ...]) -> list[T]:
        try:
            with self._reading:
                return [make(*row) for row in self._reader.execute(sql, parameters)]
        except sqlite3.Error as error:
            raise LogError(f"cannot read the log {self._path}: {error}") from error


def _shut(writer: SqliteWriter, reader: sqlite3.Connection, reading: Lock) -> None:
    writer.stop()
    with reading:
        reader.close()


def _open(path: Path, factory: type[sqlite3.Connection]) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """The connection to write and the one to read."""
    try:
        _create(path)
        with ExitStack() as opened:
            writing = opened.enter_context(closing(_connect(path, factory)))
            reading = opened.enter_context(closing(_connect(path, factory)))
            _check_own(path, writing)  # before anything is written: it may be somebody else's file
            _make_durable(path, writing)
            _make_schema(path, writing)
            writing.execute("PRAGMA busy_timeout = 0")  # `execute_when_free` waits instead
            reading.execute("PRAGMA query_only = ON")
            opened.pop_all()
            return writing, reading
    except (OSError, sqlite3.Error) as error:
        raise LogError(f"cannot open the log {path}: {error}") from error


def _create(path: Path) -> None:
    with _creating, suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _connect(path: Path, factory: type[sqlite3.Connection]) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=factory)


def _make_durable(path: Path, connection: sqlite3.Connection) -> None:
    (mode,) = execute_when_free(connection, "PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")  # for systems where fsync alone does not reach the disk
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    if mode != "wal" or synchronous < _FULL:
        raise LogError(
            f"the log {path} would not be durable: journal_mode is {mode} and must be wal,"
            f" synchronous is {synchronous} and must be at least {_FULL} (FULL)"
        )


def _make_schema(path: Path, connection: sqlite3.Connection) -> None:
    if _version(connection) == SCHEMA_VERSION:
        return
    execute_when_free(connection, "BEGIN IMMEDIATE")
    _check_own(path, connection)
    if _version(connection) == 0:
        for statement in _SCHEMA:
            connection.execute(statement)
    connection.execute("COMMIT")


def _check_own(path: Path, connection: sqlite3.Connection) -> None:
    version = _version(connection)
    if version > SCHEMA_VERSION:
        raise LogError(f"the log {path} has schema {version}, newer than {SCHEMA_VERSION}: use a newer Interlock")
    if version == 0 and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise LogError(f"{path} is an SQLite file, but not a log")


def _version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]
