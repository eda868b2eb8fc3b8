"""The log in one SQLite file: the embedded default.

WAL with `synchronous=FULL`: a commit that returned survives a crash of the process and of the machine. Appends go
through one thread that commits for all (`sqlite_writer`); reads have a connection of their own and run in a thread.
So neither holds up the event loop. Several processes may use one file; a run belongs to whoever has its claim, and one
without a claim to whoever appends in step. A third connection never writes: it sees in microseconds, and so without a
thread, that anybody else did.

Events lie in the order of their commits, so a commit touches few pages however many runs share it, and the key finds
a run's events. Runs have numbers to keep the key small.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, TypeVar
from weakref import finalize

from ...domain.chain import Entry
from ...domain.errors import LogError, LogWriteError
from ..event_log import Claim, Ends, Note, Placed, Snapshot
from ..leases import token_for
from ..process import Process, this_process
from .file import open_file
from .leases import Holding, give_back, post, take, take_away
from .writer import SqliteWriter, is_busy

T = TypeVar("T")

#: Whoever edited the file by hand may have left text where bytes belong: it is read as bytes, and does not verify.
_READ = """
    SELECT seq, CAST(body AS BLOB), CAST(hash AS BLOB) FROM events
    WHERE run = (SELECT number FROM runs WHERE run_id = ?) AND seq > ? ORDER BY seq LIMIT ?
"""
_RUN_IDS = "SELECT run_id FROM runs ORDER BY number"
_ENDS = """
    SELECT run_id, first.seq, CAST(first.body AS BLOB), CAST(first.hash AS BLOB),
        CAST(last.seq AS INTEGER), CAST(last.body AS BLOB), CAST(last.hash AS BLOB)
    FROM runs
    CROSS JOIN events AS first ON first.run = number AND first.seq = 0
    CROSS JOIN events AS last ON last.run = number AND last.seq = (SELECT max(seq) FROM events WHERE run = number)
    ORDER BY number DESC LIMIT ?
"""
#: Events are only ever added, by one writer at a time: the number of a row says when it became durable.
_FEED = """
    SELECT events.rowid, run_id, seq, CAST(body AS BLOB), CAST(hash AS BLOB)
    FROM events CROSS JOIN runs ON number = run WHERE events.rowid > ? ORDER BY events.rowid LIMIT ?
"""
_NOTES = (
    "SELECT key, CAST(body AS BLOB) FROM notes WHERE run = (SELECT number FROM runs WHERE run_id = ?) ORDER BY rowid"
)
_HOLDERS = "SELECT run_id, token, host, boot, pid, started FROM claims WHERE pid != 0"
_LOAD_SNAPSHOT = "SELECT seq, hash, state FROM snapshots WHERE run_id = ?"
_SAVE_SNAPSHOT = "INSERT OR REPLACE INTO snapshots (run_id, seq, hash, state) VALUES (?, ?, ?, ?)"


class SqliteLog:
    """Opening makes the file if there is none, for its owner only. `factory` is the class of the connections."""

    immediate = False

    def __init__(self, path: str | os.PathLike[str], *, factory: type[sqlite3.Connection] = sqlite3.Connection) -> None:
        self._path = Path(path).resolve()
        writing, self._reader, self._watcher = open_file(self._path, factory)
        self._reading = Lock()
        self._watching = Lock()
        self._version = 0
        self._holding = Holding(self._path)
        self._writer = SqliteWriter(writing, self._holding.end)
        # Runs once: on `close`, when the log is dropped, or when the interpreter exits.
        self._shut = finalize(self, _shut, self._writer, (self._watching, self._watcher), (self._reading, self._reader))

    @property
    def own_paths(self) -> tuple[str, ...]:
        """Where its files are, which no tool may touch."""
        return tuple(f"{self._path}{ending}" for ending in ("", "-wal", "-shm", "-journal"))

    def append(self, run_id: str, entries: Sequence[Entry], claim: Claim | None = None) -> asyncio.Future[None] | None:
        return self._writer.append(run_id, tuple(entries), token_for(run_id, claim)) if entries else None

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[Entry]:
        return await self._query(partial(Entry, run_id), _READ, run_id, after_seq, -1 if limit is None else limit)

    async def run_ids(self) -> list[str]:
        return await self._query(str, _RUN_IDS)

    async def ends(self, limit: int | None = None) -> list[Ends]:
        return await self._query(_make_ends, _ENDS, -1 if limit is None else limit)

    async def feed(self, after: int = 0, limit: int | None = None) -> list[Placed]:
        return await self._query(_placed, _FEED, after, -1 if limit is None else limit)

    async def claim(self, run_id: str, *, force: bool = False) -> Claim:
        made: list[Claim] = []
        try:
            return await self._change(
                run_id, partial(take, run_id=run_id, force=force, made=made, holding=self._holding)
            )
        except asyncio.CancelledError:  # it is made all the same, and nobody would give it back
            with suppress(LogWriteError):
                self._writer.change(run_id, partial(give_back, claims=made, holding=self._holding)).cancel()
            raise

    async def release(self, claim: Claim) -> None:
        await self._change(claim.run_id, partial(give_back, claims=[claim], holding=self._holding))

    async def holders(self) -> dict[str, str]:
        here = this_process()
        claims = await self._query(_holder, _HOLDERS)
        return {claim.run_id: str(process) for claim, process in claims if self._holding.has(claim, process, here)}

    async def post(self, run_id: str, note: Note) -> bool:
        return await self._change(run_id, partial(post, run_id=run_id, note=note))

    async def notes(self, run_id: str) -> list[Note]:
        return await self._query(Note, _NOTES, run_id)

    async def take_away(self, run_id: str, key: str) -> None:
        await self._change(run_id, partial(take_away, run_id=run_id, key=key))

    def version(self) -> int:
        """Never waits: while the file is being recovered, it is what it was."""
        try:
            with self._watching:
                (self._version,) = self._watcher.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error as error:
            if not is_busy(error):
                raise LogError(f"cannot read the log {self._path}: {error}") from error
        return self._version

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        row = (run_id, snapshot.seq, snapshot.hash, snapshot.state)
        await self._change(run_id, partial(_save_snapshot, row=row))

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

    async def _change(self, run_id: str, change: Callable[[sqlite3.Connection], T | LogError]) -> T:
        return await self._writer.change(run_id, change)

    async def _query(self, make: Callable[..., T], sql: str, *parameters: str | int) -> list[T]:
        return await asyncio.to_thread(self._query_now, make, sql, parameters)

    def _query_now(self, make: Callable[..., T], sql: str, parameters: tuple[str | int, ...]) -> list[T]:
        try:
            with self._reading:
                return [make(*row) for row in self._reader.execute(sql, parameters)]
        except UnicodeEncodeError:  # asked for by a name that cannot be in the file
            return []
        except sqlite3.Error as error:
            raise LogError(f"cannot read the log {self._path}: {error}") from error


def _save_snapshot(connection: sqlite3.Connection, row: tuple[str, int, bytes, bytes]) -> None:
    connection.execute(_SAVE_SNAPSHOT, row)


def _make_ends(run_id: str, *row: Any) -> Ends:
    return Ends(Entry(str(run_id), *row[:3]), Entry(str(run_id), *row[3:]))


def _placed(position: int, *row: Any) -> Placed:
    return Placed(position, Entry(*row))


def _shut(writer: SqliteWriter, *connections: tuple[Lock, sqlite3.Connection]) -> None:
    writer.stop()
    for using, connection in connections:
        with using:
            connection.close()


def _holder(run_id: str, token: int, *process: Any) -> tuple[Claim, Process]:
    return Claim(run_id, token), Process(*process)
