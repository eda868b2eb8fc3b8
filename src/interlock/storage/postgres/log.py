"""The log in Postgres: the same runs, on many hosts.

Appends and other writes go through one thread (`writer`), reads through a few connections of their own, and a third
thread shows that this process is alive (`heartbeat`). The clock of leases is that of the database, so clocks of hosts
need not agree: a lease is in force as long as its process beats, and a lease of a process that does not is free.

Positions of the feed are made of transaction ids: `feed` returns what is below every transaction of the log that is
still running. So no event appears behind a reader, and no append waits for another.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, TypeVar
from weakref import finalize

import psycopg

from ...domain.errors import ConfigurationError, LogError, LogFencedError, LogWriteError
from ...domain.event import LogEntry
from ..event_log import EffectClaim, FeedEntry, Lease, QueuedCommand, RunSummary, Snapshot, StoredRun
from ..leases import ProcessIdentity, check_has_entries, lease_token, this_process
from ..packing import pack_state, unpack, unpack_state
from ..removal import RemovedRun, decode_record
from .budgets import PostgresBudgets
from .changes import ChangeSignal
from .connection import WRITER, Connection, ConnectionPool, Connector, Parameters, execute, first_line
from .heartbeat import Heartbeat
from .index_tables import IndexTables
from .migrate import check_schema
from .operations import ProcessLeases, claim_effect, enqueue
from .queries import QUERIES
from .queues import RunQueues
from .removal import remove_runs, restore_run, update_removed
from .writer import PostgresWriter

T = TypeVar("T")

_PACKED = 1
#: An append that is not finished is looked for again.
_UNFINISHED_SECONDS = 0.05
_MIN_LEASE_SECONDS, _MAX_LEASE_SECONDS = 1.0, 600.0


class PostgresLog:
    """Store events in a Postgres database, which processes of many hosts may use.

    Args:
        url: The database, such as `postgresql://user@host/database`. Connections are sessions: a pooler that shares
            them between transactions does not work.
        schema: The schema of its tables, which `interlock database migrate` creates.
        lease_seconds: How long other hosts wait for a beat of this process before they take over its runs.
        patience_seconds: How long the database may be away before writes fail.
        readers: How many queries may run at once.
    """

    immediate = False

    def __init__(
        self,
        url: str,
        *,
        schema: str = "interlock",
        lease_seconds: float = 10.0,
        patience_seconds: float = 20.0,
        readers: int = 2,
    ) -> None:
        if not _MIN_LEASE_SECONDS <= lease_seconds <= _MAX_LEASE_SECONDS:
            raise ConfigurationError(
                f"lease_seconds is {lease_seconds} and must be between {_MIN_LEASE_SECONDS} and {_MAX_LEASE_SECONDS}."
            )
        self._connector = Connector(url, schema, lease_seconds)
        self._patience_seconds = patience_seconds
        self._reader_count = readers
        self._changes = ChangeSignal()
        self._reopening = Lock()
        self._use(self._connector.open(WRITER))

    def _use(self, connection: Connection) -> None:
        try:
            check_schema(connection, self._connector)
            self._leases = leases = ProcessLeases(_add_process(connection, self._connector.lease_seconds))
            self._heartbeat = heartbeat = Heartbeat(self._connector, leases, self._changes)
        except psycopg.Error as error:
            connection.close()
            raise LogError(f"cannot open the {self._connector.description}: {first_line(error)}") from error
        except BaseException:
            connection.close()
            raise
        self._readers = ConnectionPool(self._connector, "interlock-reader", self._reader_count, self._patience_seconds)
        #: The runs that workers resume.
        self.queues = RunQueues(self._readers)
        #: What lists show of runs and questions.
        self.index = IndexTables(self._readers)
        #: What runs use of budgets.
        self.budgets = PostgresBudgets(self._readers)
        self._writer = writer = PostgresWriter(self._connector, connection, self._patience_seconds, leases, heartbeat)
        # Runs once: on `close`, when the log is dropped, or when the interpreter exits.
        self._finalizer = finalize(self, _close_parts, writer, heartbeat, self._readers)

    @property
    def problem(self) -> str:
        """The problem that keeps the log from writing; empty if there is none."""
        return self._writer.find_problem()

    @property
    def refusal(self) -> str:
        """Why nothing is accepted until `reopen`; empty as long as the log tries."""
        return self._writer.refusal

    @property
    def lease_seconds(self) -> float:
        """How long other hosts wait for a beat of this process."""
        return self._connector.lease_seconds

    def connection_parameters(self, application_name: str) -> dict[str, Any]:
        """Return the parameters of a connection to the same tables, for other libraries."""
        return self._connector.parameters_of(application_name)

    async def reopen(self) -> None:
        """Connect again after a problem."""
        await asyncio.to_thread(self._reopen)

    def append(
        self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None
    ) -> asyncio.Future[None] | None:
        """Append entries to a run. The future completes when they are durable."""
        if not entries:
            return None
        _check_text(run_id)
        return self._writer.append(run_id, tuple(entries), lease_token(run_id, lease))

    def append_and_acquire(self, run_id: str, entries: Sequence[LogEntry]) -> asyncio.Future[Lease]:
        """Append the first entries of a run, and acquire its lease."""
        _check_text(run_id)
        check_has_entries(run_id, entries)
        if entries[0].seq:
            raise LogFencedError(f"event {entries[0].seq} of {run_id} does not begin it. Nothing was written.")
        self._heartbeat.watch_loop()
        return self._writer.append_and_acquire(run_id, tuple(entries))

    def append_and_release(self, run_id: str, entries: Sequence[LogEntry], lease: Lease) -> asyncio.Future[bool]:
        """Append the entries that end a run, and release its lease."""
        _check_text(run_id)
        check_has_entries(run_id, entries)
        return self._writer.append_and_release(run_id, tuple(entries), lease_token(run_id, lease))

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[LogEntry]:
        """Read entries of a run."""
        rows = await self._query("read", {"run_id": run_id, "after_seq": after_seq, "limit": limit})
        return [entry for row in rows for entry in _unpack(run_id, row) if entry.seq > after_seq][:limit]

    async def load(self, run_id: str, limit: int | None = None) -> StoredRun:
        """Return the snapshot of a run and the entries from its event on."""
        rows = await self._query("load", {"run_id": run_id, "limit": limit})
        snapshot: Snapshot | None = None
        if rows and rows[0][0] == 0:
            _, seq, _, state, digest = rows.pop(0)
            snapshot = Snapshot(seq, bytes(digest), unpack_state(bytes(state), _PACKED))
        first = 0 if snapshot is None else snapshot.seq
        entries = [entry for row in rows for entry in _unpack(run_id, row[1:]) if entry.seq >= first]
        return StoredRun(snapshot, entries[:limit])

    async def run_ids(self) -> list[str]:
        """List the runs, oldest first."""
        return [row[0] for row in await self._query("run_ids")]

    async def list_runs(self, limit: int | None = None) -> list[RunSummary]:
        """List the first and last entries of runs, newest run first."""
        rows = await self._query("list_runs", (limit,))
        return [RunSummary(_unpack(row[0], row[1:5])[0], _unpack(row[0], row[5:])[-1]) for row in rows]

    async def feed(self, after: int = 0, limit: int | None = None) -> list[FeedEntry]:
        """Read entries of all runs in the order of their positions."""
        horizon, end = await self._find_horizon()
        if after >= end:
            raise LogError(
                f"Position {after} is behind the end of the {self._connector.description}: it was restored from an "
                "older backup. Read the feed again from an earlier position."
            )
        values = {"after": after, "horizon": horizon, "limit": limit}
        return [
            FeedEntry(row[0] + place, entry)
            for row in await self._query("feed", values)
            for place, entry in enumerate(_unpack(row[1], row[2:]))
            if row[0] + place > after
        ][:limit]

    async def feed_position(self) -> int:
        """Return the position of the newest entry."""
        horizon, _ = await self._find_horizon()
        rows = await self._query("feed_position", (horizon,))
        return rows[0][0] if rows else 0

    async def acquire(self, run_id: str, *, force: bool = False) -> Lease:
        """Acquire the lease of a run. Raise `RunClaimedError` if it is held, unless forced."""
        _check_text(run_id)
        leases = self._leases
        self._heartbeat.watch_loop()
        acquire = partial(leases.acquire, run_id=run_id, force=force, indexer=self._writer.indexer)
        acquiring = self._writer.run_operation(run_id, acquire)
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:  # it is acquired all the same, and would never be released
            acquiring.add_done_callback(partial(_release_unwanted, self._writer, leases))
            raise

    async def release(self, lease: Lease) -> bool:
        """Release a lease. Return True if commands are queued for the run."""
        _check_text(lease.run_id)
        return await self._change(lease.run_id, partial(self._leases.release, lease=lease))

    async def assign_queue(self, run_id: str, queue: str) -> None:
        """Hand a run that is started next to the workers that serve this queue."""
        _check_text(run_id + queue)
        await self.queues.assign(run_id, queue)

    async def lease_holder(self, run_id: str) -> str:
        """Return the living process that holds a run; empty when there is none."""
        rows = await self._query("lease_holder", (run_id,))
        return str(ProcessIdentity(*rows[0][1:])) if rows else ""

    async def lease_holders(self) -> dict[str, str]:
        """Return the holder of each held run whose process is alive."""
        return {row[0]: str(ProcessIdentity(*row[1:])) for row in await self._query("lease_holders")}

    async def enqueue(self, run_id: str, command: QueuedCommand) -> bool:
        """Queue a command for a run. Return False if its key is queued already."""
        return await self._change(run_id, partial(enqueue, run_id=run_id, command=command))

    async def queued_commands(self, run_id: str) -> list[QueuedCommand]:
        """List the commands queued for a run."""
        return (await self.queued_commands_of([run_id])).get(run_id, [])

    async def queued_commands_of(self, run_ids: Collection[str]) -> dict[str, list[QueuedCommand]]:
        """List the commands queued for these runs."""
        found: dict[str, list[QueuedCommand]] = {}
        for run_id, key, body in await self._query("queued_commands_of", ([*run_ids],)):
            found.setdefault(run_id, []).append(QueuedCommand(key, bytes(body)))
        return found

    async def ack(self, run_id: str, key: str) -> None:
        """Remove a queued command."""
        await self._execute(run_id, "ack", (run_id, key))

    async def claim_effect(self, effect: str, claim: EffectClaim, after: int) -> bool:
        """Claim an effect. Return False if another call claimed it after the given number."""
        return await self._change(claim.run_id, partial(claim_effect, effect=effect, claim=claim, after=after))

    async def effect_claims(self, effect: str, limit: int) -> list[EffectClaim]:
        """List the claims of an effect, newest first."""
        return [EffectClaim(*row) for row in await self._query("effect_claims", (effect, limit))]

    def version(self) -> int:
        """Return the number of changes that this process knows of."""
        return self._changes.version

    async def wait_for_change(self, seen: int, seconds: float) -> bool:
        """Wait for a write of any process."""
        return await self._changes.wait(seen, seconds)

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        """Save the snapshot of a run, replacing an earlier one."""
        values = (run_id, snapshot.seq, snapshot.hash, pack_state(snapshot.state))
        await self._execute(run_id, "save_snapshot", values)

    async def load_snapshot(self, run_id: str) -> Snapshot | None:
        """Load the last snapshot of a run, or None."""
        rows = await self._query("load_snapshot", (run_id,))
        return Snapshot(rows[0][0], bytes(rows[0][1]), unpack_state(bytes(rows[0][2]), _PACKED)) if rows else None

    async def remove_runs(self, removed: Sequence[RemovedRun]) -> None:
        """Take the events of runs out of the log in one transaction, and leave the records. Needs the role that owns
        the tables.
        """
        await self._change("", partial(remove_runs, removed=removed))

    async def can_remove_runs(self) -> bool:
        """Return True if the role of this log has the right to remove events."""
        return (await self._query("can_remove"))[0][0]

    async def restore_run(self, run_id: str, entries: Sequence[LogEntry]) -> None:
        """Put the events of a removed run back. Needs the role that owns the tables."""
        await self._change(run_id, partial(restore_run, run_id=run_id, entries=entries))

    async def update_removed(self, removed: Sequence[RemovedRun]) -> None:
        """Replace the records of removed runs in one transaction. Needs the role that owns the tables."""
        await self._change("", partial(update_removed, removed=removed))

    async def oldest_runs(self, after: int = 0, limit: int = 100) -> list[tuple[int, RunSummary]]:
        """Return runs that are over, oldest first, each with a number to continue after."""
        rows = await self._query("oldest_runs", (after, limit))
        return [(row[0], RunSummary(_unpack(row[1], row[2:6])[0], _unpack(row[1], row[6:])[-1])) for row in rows]

    async def child_run_ids(self, run_id: str) -> list[str]:
        """Return the ids that look like those of child runs."""
        return [row[0] for row in await self._query("child_run_ids", {"run_id": run_id})]

    async def archived_runs(self, after: int = 0, limit: int = 100) -> list[tuple[int, RemovedRun]]:
        """Return records of archived runs, oldest run first, each with a number to continue after."""
        rows = await self._query("archived_runs", (after, limit))
        return [(number, decode_record(bytes(record)).run) for number, record in rows]

    async def erased_runs(self, after: int = 0, limit: int = 100) -> list[tuple[int, RemovedRun]]:
        """Return records of erased runs in the order of their erasure, each with a number to continue after."""
        rows = await self._query("erased_runs", (after, limit))
        return [(number, decode_record(bytes(record)).run) for number, record in rows]

    async def removed_runs(self) -> list[RemovedRun]:
        """Return the records of removed runs, oldest run first."""
        return [decode_record(bytes(row[0])).run for row in await self._query("list_removed")]

    async def find_removed_run(self, run_id: str) -> RemovedRun | None:
        """Return the record of a removed run."""
        rows = await self._query("load_removed", (run_id,))
        return decode_record(bytes(rows[0][0])).run if rows else None

    async def close(self) -> None:
        """Finish pending writes, and give up the leases of this process."""
        await asyncio.to_thread(self._close)

    async def __aenter__(self) -> "PostgresLog":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _close(self) -> None:
        with self._reopening:
            self._finalizer()

    def _reopen(self) -> None:
        with self._reopening:
            if not self._writer.refusal:
                return
            if not self._finalizer.alive:
                raise LogError(f"the log in the {self._connector.description} is closed")
            connection = self._connector.open(WRITER)
            self._finalizer()
            self._use(connection)
            self._changes.bump()

    async def _find_horizon(self) -> tuple[int, int]:
        """Return the first position that may still be written, and the end of all positions."""
        ((horizon, end),) = await self._query("horizon")
        if horizon < end:  # what is finished next is behind it, and a reader has to look again
            asyncio.get_running_loop().call_later(_UNFINISHED_SECONDS, self._changes.bump)
        return horizon, end

    async def _change(self, run_id: str, change: Callable[[Connection, bool], T | LogError]) -> T:
        return await self._writer.run_operation(run_id, change)

    async def _execute(self, run_id: str, query: str, parameters: Parameters) -> None:
        await self._change(run_id, partial(_execute, sql=QUERIES[query], parameters=parameters))

    async def _query(self, query: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        try:
            return await asyncio.to_thread(self._readers.query, QUERIES[query], parameters)
        except UnicodeEncodeError:  # asked for by a name that cannot be in the database
            return []
        except LogError as error:
            if isinstance(error.__cause__, psycopg.DataError):
                return []
            raise


def _unpack(run_id: str, row: Sequence[Any]) -> list[LogEntry]:
    seq, count, bodies, hashes = row
    return unpack(run_id, seq, count, bytes(bodies), bytes(hashes))


def _add_process(connection: Connection, lease_seconds: float) -> int:
    """Announce this process, which is alive from now on. Return its number."""
    here = this_process()
    execute(connection, QUERIES["forget_processes"])
    execute(connection, QUERIES["raise_offset"])
    row = execute(
        connection, QUERIES["add_process"], (here.host, here.boot, here.pid, here.started, lease_seconds)
    ).fetchone()
    return row[0] if row else 0


def _close_parts(writer: PostgresWriter, heartbeat: Heartbeat, readers: ConnectionPool) -> None:
    writer.stop()
    heartbeat.stop()
    readers.close()


def _release_unwanted(writer: PostgresWriter, leases: ProcessLeases, acquired: "asyncio.Future[Lease]") -> None:
    if acquired.cancelled() or acquired.exception() is not None:
        return
    lease = acquired.result()
    with suppress(LogWriteError):
        writer.run_operation(lease.run_id, partial(leases.release, lease=lease)).cancel()


def _execute(connection: Connection, _: bool, sql: str, parameters: Parameters) -> None:
    execute(connection, sql, parameters)


def _check_text(text: str) -> None:
    """Raise `LogError` for text that the database cannot store."""
    try:
        if "\0" not in text:
            text.encode()
            return
    except UnicodeEncodeError:
        pass
    raise LogError(f"this cannot be written: {ascii(text)[:80]}. Nothing was written.")
