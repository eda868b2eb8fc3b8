"""The server's database beside the log, in one SQLite file: accounts, keys, tokens, positions, signatures.

One connection, used by one thread at a time; every change is a transaction that is durable when it returns. Each module
that keeps something names its own tables: `CREATE TABLE IF NOT EXISTS ...`. A file that a newer version wrote is left
alone. While another process has locked the file, or the disk is full, callers get `UnavailableError`.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TypeVar

from ...domain.errors import ConfigurationError
from .errors import UnavailableError

T = TypeVar("T")

#: Of the tables of all modules together.
DATABASE_VERSION = 1
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


class Database:
    """The SQLite database of the server."""

    def __init__(self, path: str | os.PathLike[str], tables: Iterable[str]) -> None:
        """Opening makes the file if there is none, for its owner only. `:memory:` is one that is gone on `close`."""
        self.path = str(path)
        self._lock = Lock()
        try:
            if self.path != ":memory:":
                with suppress(FileExistsError):
                    os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            self._connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._create_tables(tables)
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"The server's database {self.path} cannot be opened: {error}.") from error

    @property
    def own_paths(self) -> tuple[str, ...]:
        """The paths of its files, which no tool may access."""
        path = str(Path(self.path).resolve())
        return tuple(f"{path}{ending}" for ending in ("", "-wal", "-shm", "-journal"))

    async def run(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Run a change in one transaction, in a thread. The result is durable; when it raises, nothing was changed."""
        return await asyncio.to_thread(self.run_now, change)

    def run_now(self, change: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self._run(change)
        except sqlite3.Error as error:
            # The low byte: the rest says more about the same.
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _TRANSIENT_ERRORS:
                raise UnavailableError(
                    "database_unavailable",
                    f"The server's database cannot be used right now: {error}. Nothing was changed. Try again.",
                ) from error
            raise

    def _create_tables(self, tables: Iterable[str]) -> None:
        connection = self._connection
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > DATABASE_VERSION:
                raise ConfigurationError(
                    f"The server's database {self.path} has version {version}, "
                    f"newer than {DATABASE_VERSION}: use a newer "
                    "Interlock. Nothing was changed."
                )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            for statement in tables:
                connection.execute(statement)
            if version < DATABASE_VERSION:
                connection.execute(f"PRAGMA user_version = {DATABASE_VERSION}")
        except BaseException:
            connection.close()
            raise

    def _run(self, change: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                result = change(self._connection)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        return result

    def close(self) -> None:
        with self._lock:
            self._connection.close()
