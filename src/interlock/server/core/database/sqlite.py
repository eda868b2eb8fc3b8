"""The server's database in one SQLite file, for one server.

One connection writes and one reads, each used by one thread at a time. Every change is a transaction that is durable
when it returns; a read is a transaction that waits for no writer. While another process has locked the file, or the
disk is full, callers get `StorageError`, which says whether anything was changed. After a commit that failed the file
is opened again: it decides.

The schema is the folder `migrations`: numbered SQL files, each applied once and never edited after its release. The
version of a file is the number of migrations applied. An older file gets the rest in one transaction; a newer one is
refused.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from ....domain.errors import ConfigurationError
from ....storage.sqlite.database import split_statements
from ..errors import StorageError
from .interface import CHANGED, UNCERTAIN, UNCHANGED, Connection

T = TypeVar("T")

MIGRATIONS = sorted(Path(__file__).with_name("migrations").glob("[0-9]*_*.sql"))
DATABASE_VERSION = len(MIGRATIONS)
#: Requests wait for each other here, so the wait for another process is short.
_BUSY_SECONDS = 5.0
#: Not a mistake in a statement but the state of the machine, which may pass.
_TRANSIENT_ERRORS = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
    }
)


class OwnLock:
    """The lock of a server that has no others beside it."""

    def hold(self) -> bool:
        """Return True."""
        return True

    def release(self) -> None:
        """Do nothing."""


class SqliteDatabase:
    """The SQLite database of a server."""

    is_shared = False

    def __init__(self, path: str | os.PathLike[str], *, factory: type[sqlite3.Connection] = sqlite3.Connection) -> None:
        """Prepare a database. Opening creates a missing file, for its owner only. `:memory:` ends with `close`."""
        self.path = str(path)
        #: Why the last change failed; empty when it did not.
        self.problem = ""
        self._factory = factory
        self._write_lock, self._read_lock = Lock(), Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._is_closed = False
        try:
            if self.path != ":memory:":
                with suppress(FileExistsError):
                    os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            self._open()
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"The server's database {self.path} cannot be opened: {error}.") from error

    @property
    def own_paths(self) -> tuple[str, ...]:
        """The paths of its files, which no tool may access."""
        path = str(Path(self.path).resolve())
        return tuple(f"{path}{ending}" for ending in ("", "-wal", "-shm", "-journal"))

    async def run(self, change: Callable[[Connection], T]) -> T:
        """Run a change in one transaction, in a thread. The result is durable. When it raises, nothing was changed,
        unless a `StorageError` says that it is not known.
        """
        return await asyncio.to_thread(self.run_now, change)

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Run a query in a thread, on one state of the database. It waits for no writer."""
        return await asyncio.to_thread(self.read_now, query)

    async def look_up(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Return the few rows of a statement: at once, or in a thread while another one reads."""
        if self._read_lock.acquire(blocking=False):
            try:
                if self._reader is not None:
                    return self._reader.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise self._to_storage_error(error, "Try again.") from error
            finally:
                self._read_lock.release()
        return await self.read(lambda connection: connection.execute(sql, parameters).fetchall())

    async def check(self) -> str:
        """Return why the database cannot be used; empty when it can. After a failed change, try to write."""
        try:
            if self.problem:
                write = f"PRAGMA user_version = {DATABASE_VERSION}"
                await self.run(lambda connection: connection.execute(write))
            else:
                await self.read(lambda connection: connection.execute("PRAGMA schema_version").fetchone())
        except (StorageError, sqlite3.Error) as error:
            return str(error)
        return ""

    def run_now(self, change: Callable[[Connection], T]) -> T:
        """Run a change in a transaction. Raise a storage error that says whether it was committed."""
        with self._write_lock:
            outcome = UNCHANGED
            try:
                connection = self._writer or self._open()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    result = change(connection)
                    outcome = UNCERTAIN
                    connection.execute("COMMIT")
                except BaseException:
                    self._roll_back(connection, is_certain=outcome is UNCHANGED)
                    raise
            except sqlite3.Error as error:
                raise self._to_storage_error(error, outcome) from error
            self.problem = ""
            return result

    def read_now(self, query: Callable[[Connection], T]) -> T:
        """Run a query on the read-only connection."""
        if self.path == ":memory:":
            return self.run_now(query)
        with self._read_lock:
            try:
                self._reader = connection = self._reader or self._connect("PRAGMA query_only = ON")
                connection.execute("BEGIN")
                try:
                    return query(connection)
                finally:
                    connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise self._to_storage_error(error, "Try again.") from error

    def create_leader_lock(self) -> OwnLock:
        """Return a lock that this server always has."""
        return OwnLock()

    def close(self) -> None:
        """Close all connections."""
        with self._write_lock:
            self._is_closed = True
            self._close_connections()

    def _close_connections(self) -> None:
        with self._read_lock:
            for connection in (self._writer, self._reader):
                if connection is not None:
                    connection.close()
            self._writer = self._reader = None

    def _roll_back(self, connection: sqlite3.Connection, *, is_certain: bool) -> None:
        """End the transaction. Where that fails, or a commit failed, the file has to be opened again."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            is_certain = False
        if not is_certain and self.path != ":memory:":
            with suppress(sqlite3.Error):
                self._close_connections()

    def _to_storage_error(self, error: sqlite3.Error, outcome: str) -> sqlite3.Error | StorageError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte: the rest says more about the same
        if code not in _TRANSIENT_ERRORS:
            return error
        if code != sqlite3.SQLITE_BUSY:
            self.problem = str(error)
        name = "storage_full" if code == sqlite3.SQLITE_FULL else "database_unavailable"
        changed = CHANGED.get(outcome)
        message = f"The server's database cannot be used right now: {error}. {outcome}"
        return StorageError(name, message, {} if changed is None else {"changed": changed})

    def _open(self) -> sqlite3.Connection:
        connection = self._connect("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON")
        try:
            _migrate(self.path, connection)
        except BaseException:
            connection.close()
            raise
        self._writer = connection
        return connection

    def _connect(self, *statements: str) -> sqlite3.Connection:
        if self._is_closed:
            raise sqlite3.ProgrammingError("The server's database is closed.")
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=self._factory
        )
        try:
            _check_version(self.path, connection)  # before anything is written
            for statement in statements:
                connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection


def _check_version(path: str, connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > DATABASE_VERSION:
        raise ConfigurationError(
            f"The server's database {path} was written by a newer version of Interlock: its schema is {version}, and "
            f"this version reads up to {DATABASE_VERSION}. Use a newer Interlock. Nothing was changed."
        )
    return version


def _migrate(path: str, connection: sqlite3.Connection) -> None:
    if _check_version(path, connection) == DATABASE_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    version = _check_version(path, connection)  # another process may have been first
    for migration in MIGRATIONS[0 if version == 1 else version :]:  # the first says why it is applied again
        for statement in split_statements(migration.read_text()):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {DATABASE_VERSION}")
    connection.execute("COMMIT")
