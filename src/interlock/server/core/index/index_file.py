"""The file of the index: its tables, and how far it has come.

It is derived data, so it need not be durable: it is written without waiting for the disk, and a file that
is damaged, of another version or of another log is deleted and rebuilt.

Runs and questions have the position of the event that began them as their number: it is unique, grows, and is the same
when the file is rebuilt, so a cursor outlives the file. Every column that a list is narrowed by has an index that
ends in the number, so a page is read in its order, without sorting.
"""

import os
import sqlite3
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from threading import Lock

import msgspec

from ....domain.errors import InterlockError
from ....storage.event_log import FeedEntry

#: Raise it with every change of the tables or of what is put into them.
INDEX_VERSION = 2

_TABLES = (
    """CREATE TABLE runs (
        number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, status TEXT NOT NULL,
        agent TEXT NOT NULL, requester TEXT NOT NULL, created_by TEXT NOT NULL, parent TEXT NOT NULL,
        inside INTEGER NOT NULL, task TEXT NOT NULL, message TEXT NOT NULL, created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL, last_seq INTEGER NOT NULL, open_questions INTEGER NOT NULL,
        begun INTEGER NOT NULL, damaged_at INTEGER NOT NULL, words TEXT NOT NULL
    )""",
    "CREATE INDEX runs_by_status ON runs (status, number, inside)",
    "CREATE INDEX runs_by_agent ON runs (agent, status, number, inside)",
    "CREATE INDEX runs_by_requester ON runs (requester, status, number, inside)",
    "CREATE INDEX runs_by_creator ON runs (created_by, status, number, inside)",
    "CREATE INDEX runs_by_parent ON runs (parent, number) WHERE parent != ''",
    """CREATE TABLE actions (
        number INTEGER PRIMARY KEY, action_id TEXT NOT NULL, run_id TEXT NOT NULL, state TEXT NOT NULL,
        status TEXT NOT NULL, agent TEXT NOT NULL, requester TEXT NOT NULL, created_by TEXT NOT NULL,
        call_id TEXT NOT NULL, tool TEXT NOT NULL, capability TEXT NOT NULL, kind TEXT NOT NULL,
        payload_hash TEXT NOT NULL, risk TEXT NOT NULL, asked_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
        asked_seq INTEGER NOT NULL, decided_at INTEGER NOT NULL, decided_by TEXT NOT NULL
    )""",
    "CREATE INDEX actions_by_id ON actions (action_id, number)",
    "CREATE UNIQUE INDEX actions_by_run ON actions (run_id, action_id)",
    "CREATE INDEX actions_by_status ON actions (status, number, kind)",
    "CREATE INDEX actions_by_agent ON actions (agent, status, number, kind)",
    "CREATE INDEX actions_by_requester ON actions (requester, status, number, kind)",
    "CREATE INDEX actions_by_creator ON actions (created_by, status, number, kind)",
    "CREATE INDEX actions_by_expiry ON actions (expires_at) WHERE status = 'PENDING' AND expires_at > 0",
    """CREATE TABLE activity (
        number INTEGER PRIMARY KEY, run_id TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL,
        type TEXT NOT NULL, title TEXT NOT NULL, tone TEXT NOT NULL, icon TEXT NOT NULL,
        tool TEXT NOT NULL, action_id TEXT NOT NULL, text TEXT NOT NULL
    )""",
    "CREATE TABLE place (position INTEGER NOT NULL, run_id TEXT NOT NULL, seq INTEGER NOT NULL, hash BLOB NOT NULL)",
    "INSERT INTO place VALUES (0, '', -1, X'')",
)

_BUSY_SECONDS = 30.0
_FILE_SUFFIXES = ("", "-wal", "-shm", "-journal")
#: Faults of the file itself. For all others, rebuilding would not help.
_CORRUPTION_CODES = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CONSTRAINT,
    }
)


class IndexUnavailableError(InterlockError):
    """The index cannot be created or read. Nothing is lost: everything in it is also in the log."""


class IndexPosition(msgspec.Struct, frozen=True):
    """The last indexed event. Position 0: none."""

    position: int
    run_id: str = ""
    seq: int = -1
    hash: bytes = b""

    def is_position_of(self, placed: FeedEntry) -> bool:
        entry = placed.entry
        return self == IndexPosition(placed.position, entry.run_id, entry.seq, entry.hash)


class IndexFile:
    """The open file: one connection writes, one reads lists in threads, one finds single rows in the event loop."""

    def __init__(self, path: Path) -> None:
        """Makes the file if there is none, or none that can be used."""
        self.path = path
        try:
            with ExitStack() as opened:
                self.write_connection = opened.enter_context(closing(_open_existing(path) or _recreate(path)))
                self.read_connection = opened.enter_context(closing(_connect(path)))
                self.lookup_connection = opened.enter_context(closing(_connect(path)))
                opened.pop_all()
        except (OSError, sqlite3.Error) as error:
            raise IndexUnavailableError(
                f"The index {path} cannot be made: {error}. Nothing is lost with it."
            ) from error
        self.write_lock, self.read_lock = Lock(), Lock()

    def read_position(self) -> IndexPosition:
        return IndexPosition(*self.write_connection.execute("SELECT position, run_id, seq, hash FROM place").fetchone())

    def close(self) -> None:
        with self.write_lock, self.read_lock:
            for connection in (self.write_connection, self.read_connection, self.lookup_connection):
                connection.close()


def delete_index_file(path: Path) -> None:
    try:
        for ending in _FILE_SUFFIXES:
            path.with_name(path.name + ending).unlink(missing_ok=True)
    except OSError as error:
        raise IndexUnavailableError(
            f"The index {path} cannot be made anew: {error}. Nothing is lost with it."
        ) from error


def is_corruption(error: sqlite3.Error) -> bool:
    """Return True if the file itself is damaged, so that rebuilding helps."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _CORRUPTION_CODES


def _open_existing(path: Path) -> sqlite3.Connection | None:
    """The file as it is; None when it cannot be used."""
    if not path.exists():
        return None
    with suppress(sqlite3.DatabaseError), ExitStack() as opened:
        connection = opened.enter_context(closing(_connect(path)))
        places = connection.execute("SELECT 1 FROM place WHERE typeof(position) = 'integer'").fetchall()
        if len(places) == 1 and connection.execute("PRAGMA user_version").fetchone() == (INDEX_VERSION,):
            opened.pop_all()
            return connection
    return None


def _recreate(path: Path) -> sqlite3.Connection:
    delete_index_file(path)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with ExitStack() as opened:
        connection = opened.enter_context(closing(_connect(path)))
        connection.execute("BEGIN IMMEDIATE")
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {INDEX_VERSION}")
        connection.execute("COMMIT")
        opened.pop_all()
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
    except sqlite3.Error:
        connection.close()
        raise
    return connection
