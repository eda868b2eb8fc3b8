"""Opens the file of a SQLite log: readable by its owner only, durable, and with a known schema version.

The schema is the folder `migrations`: numbered SQL files, each applied once and never edited after its release. The
version of a file is the number of migrations applied. An older file gets the rest in one transaction, under the write
lock, so of several processes one does it. A newer file is refused.

The other statements are in `queries.sql`.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from ...domain.errors import LogError, LogVersionError
from .writer import BUSY_SECONDS, execute_with_retry

MIGRATIONS = sorted(Path(__file__).with_name("migrations").glob("[0-9]*_*.sql"))

SCHEMA_VERSION = len(MIGRATIONS)

_FULL = 2

#: Closing any descriptor of a file drops every lock that this process has on it, SQLite's too. So a file is made
#: only where there is none, by one thread at a time, and before it can be open in this process.
_creating = Lock()


class Connections(NamedTuple):
    """The connections of one open log. Neither waits by itself: `execute_with_retry` does."""

    writing: sqlite3.Connection
    #: Never writes, so it also detects writes of other connections.
    reading: sqlite3.Connection


def open_database(path: Path, factory: type[sqlite3.Connection]) -> Connections:
    """Open and migrate a database. Refuse files of other programs and newer schemas."""
    try:
        _create(path)
        with ExitStack() as opened:
            writing, reading = (opened.enter_context(closing(_connect(path, factory))) for _ in range(2))
            _check_before_writing(path, writing)  # before anything is written: it may be a file of another program
            _enable_wal(path, writing)
            _migrate(path, writing)
            reading.execute("PRAGMA query_only = ON")
            reading.execute("SELECT 1 FROM runs LIMIT 0")  # the first look opens files, reads the schema and may wait
            for connection in (writing, reading):
                connection.execute("PRAGMA busy_timeout = 0")
            opened.pop_all()
            return Connections(writing, reading)
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
    for migration in MIGRATIONS[_read_version(connection) :]:
        for statement in split_statements(migration.read_text()):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def split_statements(script: str) -> Iterator[str]:
    """Yield the statements of a script. `executescript` would commit the transaction that is open."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


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
        raise LogVersionError(
            f"The log {path} was written by a newer version of Interlock: its schema is {version}, and this version "
            f"reads up to {SCHEMA_VERSION}. Use a newer Interlock. Nothing was changed."
        )
    if version == 0 and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise LogError(f"{path} is an SQLite file, but not a log")


def _read_version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]
