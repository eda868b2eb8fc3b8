"""The ledger of budgets in a SQLite file beside the log, so that its writes do not wait for those of the log.

The file is made with the first reservation. WAL with `synchronous=FULL`: what was reserved survives a crash. Several
processes may use it; each reservation is one short transaction under the write lock.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TypeVar
from weakref import finalize

from ...domain.budget import BudgetCharge, BudgetKey
from ...domain.errors import LogError, LogVersionError
from ..budgets import KEEP_SECONDS, BudgetCounter, Reservation
from .writer import BUSY_SECONDS, execute_with_retry

T = TypeVar("T")

_VERSION = 1
_TABLE = """CREATE TABLE budgets (
    budget TEXT NOT NULL, measure TEXT NOT NULL, subject TEXT NOT NULL, starts_at INTEGER NOT NULL,
    ends_at INTEGER NOT NULL, used INTEGER NOT NULL, PRIMARY KEY (budget, measure, subject, starts_at)
) WITHOUT ROWID"""
_INDEX = "CREATE INDEX budgets_by_end ON budgets (budget, ends_at)"
_READ = "SELECT used FROM budgets WHERE (budget, measure, subject, starts_at) = (?, ?, ?, ?)"
_ADD = """INSERT INTO budgets VALUES (?1, ?2, ?3, ?4, ?5, max(0, ?6))
ON CONFLICT (budget, measure, subject, starts_at) DO UPDATE SET used = max(0, used + ?6)"""
_REMOVE = "DELETE FROM budgets WHERE budget = ? AND ends_at < ?"
_LIST = """SELECT budget, measure, subject, starts_at, ends_at, used FROM budgets
WHERE budget = ?1 AND starts_at <= ?2 AND ends_at > ?2 ORDER BY used DESC, subject LIMIT ?3"""


class SqliteBudgets:
    """Count in a SQLite file what runs use of budgets."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._lock = Lock()
        self._open: list[sqlite3.Connection] = []
        self._finalizer = finalize(self, _close, self._open)

    @property
    def own_paths(self) -> tuple[str, ...]:
        """The paths of its files, which no tool may access."""
        return tuple(f"{self._path}{ending}" for ending in ("", "-wal", "-shm", "-journal"))

    async def read(self, keys: Sequence[BudgetKey]) -> tuple[int, ...]:
        """Return what was used, by counter."""
        return await self._run(lambda connection: tuple(_read(connection, key) for key in keys), (0,) * len(keys))

    async def reserve(self, charges: Sequence[BudgetCharge]) -> Reservation:
        """Add all charges if each stays within its limit; else add none."""
        return await self._run(lambda connection: _reserve(connection, charges))

    async def adjust(self, key: BudgetKey, amount: int) -> None:
        """Add an amount, or take one back."""
        await self._run(lambda connection: _adjust(connection, key, amount))

    async def list_counters(self, budgets: Sequence[str], now: int, limit: int) -> list[BudgetCounter]:
        """Return the counters of the current windows, largest first."""
        return await self._run(
            lambda connection: [
                BudgetCounter(BudgetKey(*row[:5]), row[5])
                for budget in sorted(set(budgets))
                for row in connection.execute(_LIST, (budget, now, limit))
            ],
            [],
        )

    def close(self) -> None:
        """Close the file. It is opened again when it is used."""
        with self._lock:
            _close(self._open)

    async def _run(self, operation: Callable[[sqlite3.Connection], T], without_file: T | None = None) -> T:
        """Run an operation in a thread. One that only reads returns `without_file` where there is no file."""
        return await asyncio.to_thread(self._run_now, operation, without_file)

    def _run_now(self, operation: Callable[[sqlite3.Connection], T], without_file: T | None) -> T:
        with self._lock:
            try:
                if not self._open:
                    if without_file is not None and not self._path.exists():
                        return without_file
                    self._open.append(_connect(self._path))
                return operation(self._open[0])
            except (OSError, sqlite3.Error) as error:
                raise LogError(f"cannot use the budgets in {self._path}: {error}") from error


def _connect(path: Path) -> sqlite3.Connection:
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        execute_with_retry(connection, "PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")
        with _transaction(connection):
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                raise LogVersionError(
                    f"The budgets in {path} were written by a newer version of Interlock. Use a newer Interlock. "
                    "Nothing was changed."
                )
            if not version:
                connection.execute(_TABLE)
                connection.execute(_INDEX)
                connection.execute(f"PRAGMA user_version = {_VERSION}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Generator[None]:
    execute_with_retry(connection, "BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _read(connection: sqlite3.Connection, key: BudgetKey) -> int:
    row = connection.execute(_READ, (key.budget, key.measure, key.subject, key.starts_at)).fetchone()
    return row[0] if row else 0


def _reserve(connection: sqlite3.Connection, charges: Sequence[BudgetCharge]) -> Reservation:
    with _transaction(connection):
        used = tuple(_read(connection, charge.key) for charge in charges)
        fits = all(charge.fits(before) for charge, before in zip(charges, used, strict=True))
        if fits:
            for charge, before in zip(charges, used, strict=True):
                if not before:
                    connection.execute(_REMOVE, (charge.key.budget, charge.key.starts_at - KEEP_SECONDS))
                _add(connection, charge.key, charge.amount)
    return Reservation(fits, used)


def _adjust(connection: sqlite3.Connection, key: BudgetKey, amount: int) -> None:
    with _transaction(connection):
        _add(connection, key, amount)


def _add(connection: sqlite3.Connection, key: BudgetKey, amount: int) -> None:
    connection.execute(_ADD, (key.budget, key.measure, key.subject, key.starts_at, key.ends_at, amount))


def _close(connections: list[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()
