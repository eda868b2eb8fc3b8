"""The file of the index (`schema.sql`), and how far it has come.

It is derived data, so its last changes need not be durable, but it must never be wrong: `synchronous = NORMAL` keeps
the order of writes, so that after a power cut the file is one that there was. A file that was not closed in order is
checked as a whole before it is used; one that is damaged, of another version or of another log is deleted and rebuilt.
"""

import os
import sqlite3
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from threading import Lock

import msgspec

from ....storage.event_log import FeedEntry
from ....storage.sqlite.database import split_statements
from .feed_follower import IndexUnavailableError

#: Raise it with every change of the tables or of what is put into them.
INDEX_VERSION = 10

_SCHEMA = Path(__file__).with_name("schema.sql")

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


class IndexPosition(msgspec.Struct, frozen=True):
    """The last indexed event. Position 0: none."""

    position: int
    run_id: str = ""
    seq: int = -1
    hash: bytes = b""

    def is_position_of(self, placed: FeedEntry) -> bool:
        """Return True if this is the position of a feed entry."""
        entry = placed.entry
        return self == IndexPosition(placed.position, entry.run_id, entry.seq, entry.hash)


class IndexFile:
    """The open file: one connection writes, one reads lists in threads, one finds single rows in the event loop."""

    def __init__(self, path: Path) -> None:
        """Open the file. Create it if there is none, or none that can be used."""
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
        """Read how far the index follows the log."""
        return IndexPosition(*self.write_connection.execute("SELECT position, run_id, seq, hash FROM place").fetchone())

    def close(self) -> None:
        """Close the file. Where that works to the end, it is known to be in order."""
        with self.write_lock, self.read_lock:
            with suppress(sqlite3.Error):
                self.write_connection.execute("UPDATE place SET clean = 1 WHERE clean = 0")
            for connection in (self.write_connection, self.read_connection, self.lookup_connection):
                connection.close()


def delete_index_file(path: Path) -> None:
    """Delete the index and its companion files."""
    try:
        for ending in _FILE_SUFFIXES:
            path.with_name(path.name + ending).unlink(missing_ok=True)
    except OSError as error:
        raise IndexUnavailableError(f"The index {path} cannot be rebuilt: {error}. Nothing is lost with it.") from error


def is_corruption(error: sqlite3.Error) -> bool:
    """Return True if the file itself is damaged, so that rebuilding helps."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _CORRUPTION_CODES


def _open_existing(path: Path) -> sqlite3.Connection | None:
    """Open the existing file. Return None if it cannot be used."""
    if not path.exists():
        return None
    with suppress(sqlite3.DatabaseError), ExitStack() as opened:
        connection = opened.enter_context(closing(_connect(path)))
        places = connection.execute("SELECT clean FROM place WHERE typeof(position) = 'integer'").fetchall()
        is_known = connection.execute("PRAGMA user_version").fetchone() == (INDEX_VERSION,)
        if is_known and (places == [(1,)] or (places == [(0,)] and _is_intact(connection))):
            opened.pop_all()
            return connection
    return None


def _is_intact(connection: sqlite3.Connection) -> bool:
    return connection.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",)


def _recreate(path: Path) -> sqlite3.Connection:
    delete_index_file(path)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with ExitStack() as opened:
        connection = opened.enter_context(closing(_connect(path)))
        connection.execute("BEGIN IMMEDIATE")
        for statement in split_statements(_SCHEMA.read_text()):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {INDEX_VERSION}")
        connection.execute("COMMIT")
        opened.pop_all()
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection
