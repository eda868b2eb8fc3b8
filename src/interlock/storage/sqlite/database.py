"""Opens the file of a SQLite log: readable by its owner only, durable, and with a known schema version.

The schema is a list of migrations; the version of a file is the number of migrations applied. An older file gets the
rest in one transaction, under the write lock, so of several processes one does it.
"""

import os
import sqlite3
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from ...domain.errors import LogError
from .writer import BUSY_SECONDS, execute_with_retry

_MIGRATIONS = (
    (
        "CREATE TABLE runs (number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE)",
        """CREATE TABLE events (
            run INTEGER NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (run, seq)
        )""",
        """CREATE TABLE snapshots (
            run_id TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash BLOB NOT NULL, state BLOB NOT NULL
        ) WITHOUT ROWID""",
    ),
    (
        """CREATE TABLE claims (
            run_id TEXT PRIMARY KEY, token INTEGER NOT NULL,
            host TEXT NOT NULL, boot TEXT NOT NULL, pid INTEGER NOT NULL, started INTEGER NOT NULL
        ) WITHOUT ROWID""",
        "CREATE TABLE notes (run INTEGER NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (run, key))",
    ),
)

SCHEMA_VERSION = len(_MIGRATIONS)

_FULL = 2

#: Closing any descriptor of a file drops every lock that this process has on it, SQLite's too. So a file is made
#: only where there is none, by one thread at a time, and before it can be open in this process.
_creating = Lock()


class Connections(NamedTuple):
    """The connections of one open log: writer, reader and watcher."""

    writing: sqlite3.Connection
    reading: sqlite3.Connection
    #: Never writes and never waits: it only detects writes of other connections.
    watching: sqlite3.Connection


def open_database(path: Path, factory: type[sqlite3.Connection]) -> Connections:
    try:
        _create(path)
        with ExitStack() as opened:
            writing, reading, watching = (opened.enter_context(closing(_connect(path, factory))) for _ in range(3))
            _check_before_writing(path, writing)  # before anything is written: it may be a file of another program
            _enable_wal(path, writing)
            _migrate(path, writing)
            writing.execute("PRAGMA busy_timeout = 0")  # `execute_with_retry` waits instead
            reading.execute("PRAGMA query_only = ON")
            watching.execute("PRAGMA query_only = ON")
            watching.execute("PRAGMA data_version").fetchone()  # the first look opens files and may wait
            watching.execute("PRAGMA busy_timeout = 0")
            opened.pop_all()
            return Connections(writing, reading, watching)
    except (OSError, sqlite3.Error) as error:
        raise LogError(f"cannot open the log {path}: {error}") from error


def _create(path: Path) -> None:
    with _creating, suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _connect(path: Path, factory: type[sqlite3.Connection]) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=factory)


def _enable_wal(path: Path, connection: sqlite3.Connection) -> None:
    (mode,) = execute_with_retry(connection, "PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")  # for systems where fsync alone does not reach the disk
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    if mode != "wal" or synchronous < _FULL:
        raise LogError(
            f"the log {path} would not be durable: journal_mode is {mode} and must be wal,"
            f" synchronous is {synchronous} and must be at least {_FULL} (FULL)"
        )


def _migrate(path: Path, connection: sqlite3.Connection) -> None:
    if _read_version(connection) == SCHEMA_VERSION:
        return
    execute_with_retry(connection, "BEGIN IMMEDIATE")
    _check_is_log(path, connection)
    for step in _MIGRATIONS[_read_version(connection) :]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _check_before_writing(path: Path, connection: sqlite3.Connection) -> None:
    """Check the file in a transaction, so that version and tables are consistent: another process may be creating the
    log.
    """
    execute_with_retry(connection, "BEGIN")
    _check_is_log(path, connection)
    connection.execute("COMMIT")


def _check_is_log(path: Path, connection: sqlite3.Connection) -> None:
    version = _read_version(connection)
    if version > SCHEMA_VERSION:
        raise LogError(f"the log {path} has schema {version}, newer than {SCHEMA_VERSION}: use a newer Interlock")
    if version == 0 and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise LogError(f"{path} is an SQLite file, but not a log")


def _read_version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]
