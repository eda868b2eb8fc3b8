"""The log in one SQLite file: the embedded default.

WAL with `synchronous=FULL`: a commit that returned survives a crash of the process and of the machine. Appends go
through one thread that commits for all (`writer`); reads have their own connection and run in a thread.
So neither blocks the event loop. Several processes may use one file; a run belongs to its lease holder, and one
without a lease to the process that appends in sequence. The connection that reads never writes: it detects in
microseconds, without a thread, that another one did.

Events are stored in the order of their commits, those of one append in one row (`packing`), so a commit touches few
pages however many runs share it, and an index finds a run's events. Runs have numbers to keep the index small.
"""

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from weakref import finalize

from ...domain.errors import LogError, LogWriteError
from ...domain.event import LogEntry
from ..event_log import EffectClaim, FeedEntry, Lease, QueuedCommand, RunSummary, Snapshot, StoredRun
from ..leases import ProcessIdentity, check_has_entries, lease_token, this_process
from ..packing import pack_state, unpack, unpack_state
from ..polling import poll_for_change
from ..removal import RemovedRun, StoredRecord, decode_record
from .budgets import SqliteBudgets
from .database import Connections, open_database
from .journal import JournalSpace
from .leases import OpenLeases, ack, acquire, enqueue, release
from .queries import QUERIES
from .removal import remove_runs, restore_run, update_removed
from .upgrade import pack_old_events
from .writer import SqliteWriter, execute_with_retry, is_busy

T = TypeVar("T")

#: More than one open file ever has.
_VERSIONS_PER_FILE = 1 << 40

#: Fewer rows, of no more bytes, are read without a thread: that takes little more than the hop.
_FEW_ROWS, _FEW_BYTES = 64, 16 << 10


class SqliteLog:
    """Store events in a SQLite file, which several processes may open. What is appended is on the disk.

    Args:
        path: The file. It is created if there is none, readable for its owner only.
        factory: The class of the connections.
    """

    immediate = False

    def __init__(self, path: str | os.PathLike[str], *, factory: type[sqlite3.Connection] = sqlite3.Connection) -> None:
        self._path = Path(path).resolve()
        self._factory = factory
        self._reading = Lock()
        self._reopening = Lock()
        self._version = 0
        #: The versions of a reopened file begin above those of before.
        self._first_version = 0
        #: What runs use of budgets, in a file beside this one.
        self.budgets = SqliteBudgets(f"{self._path}-budgets")
        self._use(open_database(self._path, factory))

    def _use(self, connections: Connections) -> None:
        writing, self._reader = connections
        self._leases = OpenLeases(self._path)
        self._writer = SqliteWriter(writing, self._leases, JournalSpace(f"{self._path}-wal"))
        # Runs once: on `close`, when the log is dropped, or when the interpreter exits.
        self._finalizer = finalize(self, _close_connections, self._writer, self._reading, self._reader)

    @property
    def problem(self) -> str:
        """The problem that keeps the log from writing; empty if there is none."""
        return self._writer.find_problem()

    async def reopen(self) -> None:
        """Open the file again after a problem."""
        await asyncio.to_thread(self._reopen)

    @property
    def own_paths(self) -> tuple[str, ...]:
        """The paths of its files, which no tool may access."""
        own = tuple(f"{self._path}{ending}" for ending in ("", "-wal", "-shm", "-journal", "-lock"))
        return own + self.budgets.own_paths

    def append(
        self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None
    ) -> asyncio.Future[None] | None:
        """Append entries to a run. The future completes when they are durable."""
        return self._writer.append(run_id, tuple(entries), lease_token(run_id, lease)) if entries else None

    def append_unless_queued(
        self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None, key: str
    ) -> asyncio.Future[bool]:
        """Append entries to a run unless a command is queued for it under this key, in one transaction."""
        return self._writer.append_unless_queued(run_id, tuple(entries), lease_token(run_id, lease), key)

    def append_and_acquire(self, run_id: str, entries: Sequence[LogEntry]) -> asyncio.Future[Lease]:
        """Append the first entries of a run, and acquire its lease, in one transaction."""
        check_has_entries(run_id, entries)
        return self._writer.append_and_acquire(run_id, tuple(entries))

    def append_and_release(self, run_id: str, entries: Sequence[LogEntry], lease: Lease) -> asyncio.Future[bool]:
        """Append entries to a run, and release its lease, in one transaction."""
        check_has_entries(run_id, entries)
        return self._writer.append_and_release(run_id, tuple(entries), lease_token(run_id, lease))

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[LogEntry]:
        """Read entries of a run: few at once, more in a thread."""
        if limit != 1:
            await asyncio.sleep(0)  # a caller that reads in a loop lets others continue
        found = self._read_few(run_id, after_seq, limit)
        return found if found is not None else await asyncio.to_thread(self._read_now, run_id, after_seq, limit)

    async def load(self, run_id: str, limit: int | None = None) -> StoredRun:
        """Return the snapshot of a run and the entries from its event on."""
        if not await self._query_key(int, "has_snapshot", run_id):
            await asyncio.sleep(0)
            found = self._read_few(run_id, -1, limit)
            if found is not None:
                return StoredRun(None, found)
        return await asyncio.to_thread(self._load_now, run_id, limit)

    async def run_ids(self) -> list[str]:
        """List the runs, oldest first."""
        return await self._query(str, "run_ids")

    async def list_runs(self, limit: int | None = None) -> list[RunSummary]:
        """List the first and last entries of runs, newest run first."""
        return await self._query(_make_run_summary, "list_runs", -1 if limit is None else limit)

    async def feed(self, after: int = 0, limit: int | None = None) -> list[FeedEntry]:
        """Read entries of all runs in the order of their appends."""
        return await asyncio.to_thread(self._feed_now, after, limit)

    async def feed_position(self) -> int:
        """Return the position of the newest entry."""
        (position,) = await self._query(int, "feed_position")
        return position

    async def acquire(self, run_id: str, *, force: bool = False) -> Lease:
        """Acquire the lease of a run. Raise `RunClaimedError` if it is held, unless forced."""
        made: list[Lease] = []
        try:
            return await self._change(
                run_id, partial(acquire, run_id=run_id, force=force, made=made, holding=self._leases)
            )
        except asyncio.CancelledError:  # it is acquired all the same, and would never be released
            with suppress(LogWriteError):
                self._writer.run_operation(run_id, partial(release, claims=made, holding=self._leases)).cancel()
            raise

    async def release(self, lease: Lease) -> bool:
        """Release a lease. Return True if commands are queued for the run."""
        leases = self._leases
        try:
            return await self._change(lease.run_id, partial(release, claims=[lease], holding=leases))
        except LogError:
            leases.claims.discard(lease)  # it could not be recorded, but nothing here uses the lease any more
            raise

    async def assign_queue(self, run_id: str, queue: str) -> None:
        """Do nothing: a log of one host has no queues."""

    async def lease_holders(self) -> dict[str, str]:
        """Return the holder of each held run whose process is alive."""
        here = this_process()
        claims = await self._query(_make_holder, "list_leases")
        return {lease.run_id: str(process) for lease, process in claims if self._leases.is_held(lease, process, here)}

    async def lease_holder(self, run_id: str) -> str:
        """Return the living process that holds a run; empty when there is none."""
        here = this_process()
        for lease, process in await self._query(partial(_make_holder, run_id), "load_lease", run_id):
            if process.pid and self._leases.is_held(lease, process, here):
                return str(process)
        return ""

    async def enqueue(self, run_id: str, command: QueuedCommand) -> bool:
        """Queue a command for a run. Return False if its key is queued already."""
        return await self._change(run_id, partial(enqueue, run_id=run_id, note=command))

    async def queued_commands(self, run_id: str) -> list[QueuedCommand]:
        """List the commands queued for a run."""
        return await self._query_key(QueuedCommand, "queued_commands", run_id)

    async def queued_commands_of(self, run_ids: Collection[str]) -> dict[str, list[QueuedCommand]]:
        """List the commands queued for these runs."""
        found: dict[str, list[QueuedCommand]] = {}
        for run_id, command in await self._query_key(_make_run_command, "queued_commands_of", json.dumps([*run_ids])):
            found.setdefault(run_id, []).append(command)
        return found

    async def ack(self, run_id: str, key: str) -> None:
        """Remove a queued command."""
        await self._change(run_id, partial(ack, run_id=run_id, key=key))

    async def claim_effect(self, effect: str, claim: EffectClaim, after: int) -> bool:
        """Claim an effect. Return False if another call claimed it after the given number."""
        row = (effect, claim.run_id, claim.call_id, claim.at, after)
        return await self._change(claim.run_id, partial(_claim_effect, row=row))

    async def effect_claims(self, effect: str, limit: int) -> list[EffectClaim]:
        """List the claims of an effect, newest first."""
        return await self._query_key(EffectClaim, "effect_claims", effect, limit)

    def version(self) -> int:
        """Return the version without waiting: writes of other processes do not change it while the file is being
        recovered, or another thread reads.
        """
        if self._reading.acquire(blocking=False):
            try:
                (found,) = self._reader.execute("PRAGMA data_version").fetchone()
                self._version = self._first_version + found
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise LogError(f"cannot read the log {self._path}: {error}") from error
            finally:
                self._reading.release()
        return self._version + self._writer.commit_count

    async def wait_for_change(self, seen: int, seconds: float) -> bool:
        """Wait for a write of any process."""
        return await poll_for_change(self.version, seen, seconds)

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        """Save the snapshot of a run, replacing an earlier one."""
        await self._change(run_id, partial(_save_snapshot, run_id=run_id, snapshot=snapshot))

    async def load_snapshot(self, run_id: str) -> Snapshot | None:
        """Load the last snapshot of a run, or None."""
        found = await self._query(_make_snapshot, "load_snapshot", run_id)
        return found[0] if found else None

    async def remove_runs(self, removed: Sequence[RemovedRun]) -> None:
        """Take the events of runs out of the log in one transaction, and leave the records."""
        await self._change("", partial(remove_runs, removed=removed))
        if any(run.is_erased for run in removed):
            await self._query(lambda *row: row, "empty_journal")

    async def restore_run(self, run_id: str, entries: Sequence[LogEntry]) -> None:
        """Put the events of a removed run back."""
        await self._change(run_id, partial(restore_run, run_id=run_id, entries=entries))

    async def update_removed(self, removed: Sequence[RemovedRun]) -> None:
        """Replace the records of removed runs in one transaction."""
        await self._change("", partial(update_removed, removed=removed))

    async def oldest_runs(self, after: int = 0, limit: int = 100) -> list[tuple[int, RunSummary]]:
        """Return runs that the file has, oldest first, each with a number to continue after."""
        return await self._query(_make_numbered_summary, "oldest_runs", after, limit)

    async def child_run_ids(self, run_id: str) -> list[str]:
        """Return the ids that look like those of child runs."""
        return await self._query(str, "child_run_ids", run_id)

    async def archived_runs(self, after: int = 0, limit: int = 100) -> list[tuple[int, RemovedRun]]:
        """Return records of archived runs, oldest run first, each with a number to continue after."""
        return await self._query(_make_numbered_record, "archived_runs", after, limit)

    async def erased_runs(self, after: int = 0, limit: int = 100) -> list[tuple[int, RemovedRun]]:
        """Return records of erased runs in the order of their erasure, each with a number to continue after."""
        return await self._query_key(_make_numbered_record, "erased_runs", after, limit)

    async def removed_runs(self) -> list[RemovedRun]:
        """Return the records of removed runs, oldest run first."""
        return [record.run for record in await self._query(decode_record, "list_removed")]

    async def find_removed_run(self, run_id: str) -> RemovedRun | None:
        """Return the record of a removed run."""
        found = await self._query_key(_make_record, "find_removed", run_id)
        return found[0].run if found else None

    async def count_old_events(self) -> int:
        """Return how many events are stored as older versions did. `pack_old_events` packs them."""
        (count,) = await self._query(int, "count_old_events")
        return count

    async def pack_old_events(self) -> AsyncIterator[int]:
        """Pack the events that older versions stored one by one, step by step. Yield the position after each step."""
        position: int | None = 0
        while position is not None:
            position = await self._change("", partial(pack_old_events, after=position))
            if position is not None:
                yield position

    async def close(self) -> None:
        """Finish pending writes and close the file."""
        await asyncio.to_thread(self._close)

    async def __aenter__(self) -> "SqliteLog":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _close(self) -> None:
        with self._reopening:
            self._finalizer()
            self.budgets.close()

    def _reopen(self) -> None:
        with self._reopening:
            if not self._writer.refusal:
                return
            if not self._finalizer.alive:
                raise LogError(f"the log {self._path} is closed")
            connections = open_database(self._path, self._factory)
            try:
                _check_writable(connections.writing)
            except BaseException as error:
                for connection in connections:
                    connection.close()
                raise LogError(f"cannot write the log {self._path}: {error}") from error
            with self._reading:
                self._finalizer.detach()
                self._writer.stop()
                self._reader.close()
                self._first_version += _VERSIONS_PER_FILE
                self._use(connections)

    async def _change(self, run_id: str, change: Callable[[sqlite3.Connection], T | LogError]) -> T:
        return await self._writer.run_operation(run_id, change)

    async def _query(self, make: Callable[..., T], query: str, *parameters: str | int) -> list[T]:
        return await asyncio.to_thread(self._query_now, make, QUERIES[query], parameters)

    def _load_now(self, run_id: str, limit: int | None) -> StoredRun:
        found = self._query_now(_make_snapshot, QUERIES["load_snapshot"], (run_id,))
        snapshot = found[0] if found and type(found[0].seq) is int else None  # edited by hand, it may be anything
        return StoredRun(snapshot, self._read_now(run_id, -1 if snapshot is None else snapshot.seq - 1, limit))

    def _read_now(self, run_id: str, after_seq: int, limit: int | None) -> list[LogEntry]:
        with self._reading:
            rows = self._find_appends(run_id, after_seq, -1 if limit is None else limit)
        return _unpack_rows(run_id, rows, after_seq, limit)

    def _read_few(self, run_id: str, after_seq: int, limit: int | None) -> list[LogEntry] | None:
        """Return entries if they are few; None where they are more, or another thread reads."""
        if not self._reading.acquire(blocking=False):
            return None
        try:
            rows = self._find_appends(run_id, after_seq, _FEW_ROWS if limit is None else min(limit, _FEW_ROWS))
        finally:
            self._reading.release()
        if len(rows) == _FEW_ROWS or (limit != 1 and sum([len(row[2]) for row in rows]) > _FEW_BYTES):
            return None
        return _unpack_rows(run_id, rows, after_seq, limit)

    def _find_appends(self, run_id: str, after_seq: int, limit: int) -> list[tuple[Any, ...]]:
        """Return rows of a run, with those of older versions where the file has any: it never gets more of them."""
        (has_old,) = self._read_rows(bool, QUERIES["has_any_old_events"], ())
        query = QUERIES["read_with_old" if has_old else "read"]
        return self._read_rows(_make_row, query, (run_id, after_seq, limit))

    def _feed_now(self, after: int, limit: int | None) -> list[FeedEntry]:
        """Read entries of all runs, and unpack no more rows than they are in."""
        found: list[FeedEntry] = []
        try:
            with self._reading, closing(execute_with_retry(self._reader, QUERIES["feed"], (after, -1))) as rows:
                for row in rows:
                    found += [entry for entry in _make_feed_entries(*row) if entry.position > after]
                    if limit is not None and len(found) >= limit:
                        break
        except sqlite3.Error as error:
            raise LogError(f"cannot read the log {self._path}: {error}") from error
        return found[:limit]

    async def _query_key(self, make: Callable[..., T], query: str, *parameters: str | int) -> list[T]:
        """Read the few rows of one key. That takes less than a hop to a thread, unless another thread reads."""
        if not self._reading.acquire(blocking=False):
            return await self._query(make, query, *parameters)
        try:
            return self._read_rows(make, QUERIES[query], parameters)
        finally:
            self._reading.release()

    def _query_now(self, make: Callable[..., T], sql: str, parameters: tuple[str | int, ...]) -> list[T]:
        with self._reading:
            return self._read_rows(make, sql, parameters)

    def _read_rows(self, make: Callable[..., T], sql: str, parameters: tuple[str | int, ...]) -> list[T]:
        try:
            return [make(*row) for row in execute_with_retry(self._reader, sql, parameters)]
        except UnicodeEncodeError:  # asked for by a name that cannot be in the file
            return []
        except sqlite3.Error as error:
            raise LogError(f"cannot read the log {self._path}: {error}") from error


def _unpack_rows(run_id: str, rows: Sequence[tuple[Any, ...]], after_seq: int, limit: int | None) -> list[LogEntry]:
    """Return the entries of appends that were asked for: the first row may begin before, and the last one end behind.
    One that was edited by hand may have any `seq`.
    """
    entries = [entry for row in rows for entry in unpack(run_id, *row)]
    return [entry for entry in entries if type(entry.seq) is not int or entry.seq > after_seq][:limit]


def _check_writable(connection: sqlite3.Connection) -> None:
    """Write something that changes nothing, and wait for the disk."""
    execute_with_retry(connection, "BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("COMMIT")


def _save_snapshot(connection: sqlite3.Connection, run_id: str, snapshot: Snapshot) -> None:
    connection.execute(QUERIES["save_snapshot"], (run_id, snapshot.seq, snapshot.hash, pack_state(snapshot.state)))


def _make_row(*row: Any) -> tuple[Any, ...]:
    return row


def _make_snapshot(seq: int, digest: bytes, state: bytes, form: int) -> Snapshot:
    return Snapshot(seq, digest, unpack_state(state, form))


def _make_record(_number: int, record: bytes) -> StoredRecord:
    return decode_record(record)


def _make_numbered_record(number: int, record: bytes) -> tuple[int, RemovedRun]:
    return number, decode_record(record).run


def _make_run_command(run_id: str, key: str, body: bytes) -> tuple[str, QueuedCommand]:
    return run_id, QueuedCommand(key, body)


def _claim_effect(connection: sqlite3.Connection, row: tuple[str, str, str, int, int]) -> bool:
    return connection.execute(QUERIES["claim_effect"], row).rowcount == 1


def _make_run_summary(run_id: str, *row: Any) -> RunSummary:
    return RunSummary(unpack(str(run_id), *row[:4])[0], unpack(str(run_id), *row[4:])[-1])


def _make_numbered_summary(number: int, run_id: str, *row: Any) -> tuple[int, RunSummary]:
    return number, _make_run_summary(run_id, *row)


def _make_feed_entries(position: int, *row: Any) -> list[FeedEntry]:
    return [FeedEntry(position + at, entry) for at, entry in enumerate(unpack(*row))]


def _close_connections(writer: SqliteWriter, reading: Lock, reader: sqlite3.Connection) -> None:
    writer.stop()
    with reading:
        reader.close()


def _make_holder(run_id: str, token: int, *process: Any) -> tuple[Lease, ProcessIdentity]:
    return Lease(run_id, token), ProcessIdentity(*process)
