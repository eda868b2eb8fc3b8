"""The writer thread of a log in Postgres, with one statement for all waiting appends.

While a statement runs, further appends of any run and any event loop queue up; the next statement takes them all, in
the order in which they came. What does not continue its run, or does not show the run's lease, is left out by the
statement, and only its caller fails (`LogFencedError`).

When the connection is lost, it is unknown whether the last statement was executed. The writer connects again and looks:
an append whose last event is in the log under the same hash was written, every other one is written now. So a restart
of the database delays runs, and changes nothing. After `patience_seconds` without a connection everything that waits
fails (`LogWriteError`), and from then on `refusal` says why nothing is accepted: another process takes the runs over
when the lease is over.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from threading import Thread, current_thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import psycopg

from ...domain.errors import LogError, LogFencedError, LogWriteError
from ...domain.event import LogEntry
from ..event_log import Lease
from ..leases import NO_TOKEN, ProcessIdentity, fenced_error
from ..packing import HASH_BYTES, PackedRow, pack
from .connection import RETRY_SECONDS, WRITER, Connection, Connector, execute, first_line, is_lost
from .indexing import ASKED_ONCE, AppendedEvents, IndexUpdate, RunIndexer
from .queries import QUERIES
from .run_state import OVER, RowChange, ScannedEvent, find_row_change

if TYPE_CHECKING:
    from .heartbeat import Heartbeat
    from .operations import ProcessLeases

T = TypeVar("T")

#: Positions have room for so many events of one transaction.
MAX_EVENTS = 1 << 20
#: A statement that waits longer than this is a problem while it lasts.
_STALL_SECONDS = 2.0
#: The database ended a statement because of another one; nothing of it was done.
_TRY_AGAIN = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.UniqueViolation,
)
#: Another process queued the same job meanwhile: with the next try it can be seen.
_ONE_JOB = "procrastinate_jobs_queueing_lock_idx_v1"

#: Gets the connection, and whether an earlier try may have been executed.
Operation: TypeAlias = Callable[[Connection, bool], object]


class _PendingWrite(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    run_id: str
    work: tuple[LogEntry, ...] | Operation
    token: int
    #: The lease begins, or ends, with this append.
    acquires: bool = False
    releases: bool = False


class PostgresWriter:
    """The writer thread of one log. It reports every write to the heartbeat, and when nothing is accepted."""

    def __init__(
        self,
        connector: Connector,
        connection: Connection,
        patience_seconds: float,
        leases: "ProcessLeases",
        heartbeat: "Heartbeat",
    ) -> None:
        #: Why nothing is accepted any more; empty as long as all is well.
        self.refusal = ""
        self._connector = connector
        self._connection = connection
        self._patience_seconds = patience_seconds
        self._leases = leases
        self._heartbeat = heartbeat
        #: What lists show of the runs that are written. Used by operations, too.
        self.indexer = RunIndexer()
        self._queue: SimpleQueue[_PendingWrite | None] = SimpleQueue()
        #: What the group that is being written waits for, and from when on that is a problem.
        self._waiting: tuple[str, float] | None = None
        self._thread = Thread(target=self._run, name="interlock-log", daemon=True)
        self._thread.start()

    def append(self, run_id: str, entries: tuple[LogEntry, ...], token: int) -> asyncio.Future[None]:
        """Queue an append. It is written even if the caller stops waiting."""
        return self._submit(run_id, entries, token)

    def append_and_acquire(self, run_id: str, entries: tuple[LogEntry, ...]) -> "asyncio.Future[Lease]":
        """Queue the first append of a run, with which its lease begins."""
        return self._submit(run_id, entries, NO_TOKEN, acquires=True)

    def append_and_release(self, run_id: str, entries: tuple[LogEntry, ...], token: int) -> "asyncio.Future[bool]":
        """Queue the last append of a run, with which its lease ends."""
        return self._submit(run_id, entries, token, releases=True)

    def run_operation(self, run_id: str, operation: Callable[[Connection, bool], T | LogError]) -> "asyncio.Future[T]":
        """Queue another operation on the run. Its return value, or its exception, is the result."""
        return self._submit(run_id, operation, NO_TOKEN)

    def find_problem(self) -> str:
        """Return why nothing can be written now; empty when writes work."""
        waiting = self._waiting
        return self.refusal or (waiting[0] if waiting and monotonic() > waiting[1] else "")

    def stop(self) -> None:
        """Finish what was queued, then end. Blocks; may be called twice, and by the garbage collector."""
        self._queue.put(None)
        if self._thread is not current_thread():
            self._thread.join()

    def _submit(
        self,
        run_id: str,
        work: tuple[LogEntry, ...] | Operation,
        token: int,
        *,
        acquires: bool = False,
        releases: bool = False,
    ) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if not self.refusal:
            self._queue.put(_PendingWrite(loop, future, run_id, work, token, acquires, releases))
        if self.refusal:
            future.cancel()
            raise LogWriteError(self.refusal)
        return future

    def _run(self) -> None:
        while self._serve_group():
            pass

    def _serve_group(self) -> bool:
        get = self._queue.get
        taken = [get()]
        taken += [get() for _ in range(self._queue.qsize())]
        parts = list(_split([pending for pending in taken if pending is not None]))
        for index, part in enumerate(parts):
            try:
                answers = self._write(part)
            except BaseException as error:  # whatever it was, it may have been written
                left = [pending for later in parts[index:] for pending in later]
                self._end(
                    left,
                    f"a write failed ({first_line(error)}): reopen the run, the log decides what was written",
                    error,
                )
                return False
            finally:
                self._waiting = None
            self._heartbeat.report_write()
            deliver_results([(pending.future, answer) for pending, answer in zip(part, answers, strict=True)])
        if None in taken:
            self._end([], "the log is closed", None)
            return False
        return True

    def _write(self, part: list[_PendingWrite]) -> list[object]:
        """Write appends, or one operation. Connect again until it is known what became of them."""
        self._waiting = "the database does not answer", monotonic() + _STALL_SECONDS
        until = monotonic() + self._patience_seconds
        is_retry = False
        while True:
            try:
                if is_lost(self._connection):
                    is_retry = True
                    self._connection = self._connector.connect(WRITER)
                return self._write_once(part, is_retry)
            except _TRY_AGAIN as error:
                _check_conflict(error)
                continue
            except UnicodeEncodeError as error:
                return [_text_error(ascii(error.object))] * len(part)
            except psycopg.DataError as error:
                return [_text_error(str(error))] * len(part)
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if not is_lost(self._connection):  # the database said no, so nothing was done
                    message = (
                        f"the {self._connector.description} refused a write: {first_line(error)}. Nothing was written."
                    )
                    return [LogError(message)] * len(part)
                if monotonic() > until:
                    raise
            sleep(RETRY_SECONDS)

    def _write_once(self, part: list[_PendingWrite], is_retry: bool) -> list[object]:
        first = part[0]
        if callable(first.work):
            return [first.work(self._connection, is_retry)]
        answers: list[object] = [_find_fault(pending) for pending in part]
        left = [
            pending
            for pending, answer in zip(part, answers, strict=True)
            if answer is None and not (is_retry and self._is_written(pending))
        ]
        tokens = self._append(left) if left else {}
        asked = {pending.run_id for pending in left}
        return [
            answer
            if answer is not None
            else self._explain(pending)
            if pending.run_id in asked and pending.run_id not in tokens
            else self._finish(pending, tokens.get(pending.run_id))
            for pending, answer in zip(part, answers, strict=True)
        ]

    def _append(self, appends: list[_PendingWrite]) -> dict[str, int]:
        """Append in one statement. Return the runs whose entries continue them, and their tokens.

        A run that was started or answered without a lease is woken in the same transaction. With a lease, its release
        does that: no worker can have the run before.
        """
        scanned = [[ScannedEvent(entry) for entry in _entries_of(pending)] for pending in appends]
        changes = [find_row_change(events) for events in scanned]
        woken = [
            pending.run_id
            for pending, change in zip(appends, changes, strict=True)
            if change.is_woken and pending.token == NO_TOKEN and not pending.acquires
        ]
        places = count()
        events = [
            AppendedEvents(pending.run_id, pending.token, some, [next(places) for _ in some])
            for pending, some in zip(appends, scanned, strict=True)
        ]
        is_exact = False
        while True:
            try:
                update = self.indexer.project(self._connection, events, is_exact=is_exact)
                tokens = self._append_and_wake(appends, changes, update, woken)
            except psycopg.errors.UniqueViolation as error:
                self.indexer.forget()
                if is_exact or error.diag.constraint_name != ASKED_ONCE:
                    raise
                is_exact = True
            except BaseException:
                self.indexer.forget()
                raise
            else:
                self.indexer.remember(events, update, tokens)
                return tokens

    def _append_and_wake(
        self, appends: list[_PendingWrite], changes: list[RowChange], update: IndexUpdate, woken: list[str]
    ) -> dict[str, int]:
        if not woken:
            return self._append_statement(appends, changes, update)
        with self._connection.transaction():
            tokens = self._append_statement(appends, changes, update)
            execute(self._connection, QUERIES["wake"], ([run_id for run_id in woken if run_id in tokens],))
        return tokens

    def _append_statement(
        self, appends: list[_PendingWrite], changes: list[RowChange], update: IndexUpdate
    ) -> dict[str, int]:
        packed = [(pending, list(pack(_entries_of(pending)))) for pending in appends]
        (only, rows), *more = packed
        seq = rows[0][0]
        is_single = not more and len(rows) == 1 and changes[0].state != OVER
        if is_single and update.is_empty and not (only.acquires or only.releases):
            ((_, number, bodies, hashes),) = rows
            values = {"run_id": only.run_id, "seq": seq, "count": number, "token": only.token}
            values |= {"bodies": bodies, "hashes": hashes, **changes[0]._asdict()}
            found = execute(self._connection, QUERIES["append_one"], values)
            return {only.run_id: only.token} if found.fetchone() else {}
        return dict(self._append_many(packed, changes, update))

    def _append_many(
        self, packed: list[tuple[_PendingWrite, list[PackedRow]]], changes: list[RowChange], update: IndexUpdate
    ) -> list[tuple[Any, ...]]:
        rows = [(pending.run_id, *row) for pending, some in packed for row in some]
        places = [0]
        for row in rows:
            places.append(places[-1] + row[2])
        values = {
            "run_ids": [pending.run_id for pending, _ in packed],
            "seqs": [some[0][0] for _, some in packed],
            "counts": [len(_entries_of(pending)) for pending, _ in packed],
            "tokens": [pending.token for pending, _ in packed],
            "states": [change.state for change in changes],
            "woken": [change.is_woken for change in changes],
            "wake_ats": [change.wake_at for change in changes],
            "parents": [change.parent for change in changes],
            "updated_ats": [change.updated_at for change in changes],
            "holders": [self._leases.process if pending.acquires else None for pending, _ in packed],
            "released": [pending.releases for pending, _ in packed],
            "row_run_ids": [row[0] for row in rows],
            "row_seqs": [row[1] for row in rows],
            "row_counts": [row[2] for row in rows],
            "places": places[:-1],
            "bodies": [row[3] for row in rows],
            "hashes": [row[4] for row in rows],
            **update._asdict(),
        }
        query = "append_many" if update.is_empty else "append_listed"
        return execute(self._connection, QUERIES[query], values).fetchall()

    def _finish(self, pending: _PendingWrite, token: int | None) -> object:
        """Return the answer to an append that was written: now, or (without a token) by a try whose answer was lost."""
        if pending.acquires:
            return self._begin_lease(pending, token)
        if pending.releases:
            return self._leases.finish_release(self._connection, Lease(pending.run_id, pending.token))
        return None

    def _begin_lease(self, pending: _PendingWrite, token: int | None) -> Lease | LogFencedError:
        if token is None:
            row = execute(self._connection, QUERIES["load_head"], (pending.run_id,)).fetchone()
            _, token, holder = row or (0, NO_TOKEN, None)
            if not token or holder != self._leases.process:  # the lease was over before the answer came
                return fenced_error(pending.run_id, NO_TOKEN, load_process(self._connection, holder))
        lease = Lease(pending.run_id, token)
        self._leases.claims.add(lease)
        return lease

    def _is_written(self, pending: _PendingWrite) -> bool:
        """Return True if the last entry is in the log, so that all of them are."""
        last = _entries_of(pending)[-1]
        values = {"run_id": pending.run_id, "seq": last.seq}
        row = execute(self._connection, QUERIES["find_append"], values).fetchone()
        if row is None:
            return False
        at = (last.seq - row[0]) * HASH_BYTES
        return bytes(row[3])[at : at + HASH_BYTES] == last.hash

    def _explain(self, pending: _PendingWrite) -> LogFencedError:
        """Return the error for an append that was left out."""
        row = execute(self._connection, QUERIES["load_head"], (pending.run_id,)).fetchone()
        next_seq, token, holder = row or (0, NO_TOKEN, None)
        if token != pending.token:
            process = load_process(self._connection, holder) if token else None
            return fenced_error(pending.run_id, pending.token, process)
        return _discontinuity(_entries_of(pending)[0], pending.run_id, next_seq)

    def _end(self, group: list[_PendingWrite], refusal: str, cause: BaseException | None) -> None:
        self.refusal = refusal
        with suppress(psycopg.Error):
            self._connection.close()
        self._heartbeat.end()
        left = [self._queue.get() for _ in range(self._queue.qsize())]
        group = group + [pending for pending in left if pending is not None]
        deliver_results([(pending.future, _write_error(refusal, cause)) for pending in group])


def load_process(connection: Connection, number: int | None) -> ProcessIdentity | None:
    """Return a process by its number; None when it is forgotten."""
    row = execute(connection, QUERIES["load_process"], (number,)).fetchone()
    return None if row is None else ProcessIdentity(*row)


def deliver_results(results: Sequence[tuple["asyncio.Future[Any]", object]]) -> None:
    """Set results in the event loops of their callers."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], object]]] = {}
    for future, answer in results:
        by_loop.setdefault(future.get_loop(), []).append((future, answer))
    for loop, some in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed, so no caller waits any more
            loop.call_soon_threadsafe(_set_results, some)


def _set_results(results: list[tuple["asyncio.Future[Any]", object]]) -> None:
    for future, answer in results:
        if future.done():  # the caller was cancelled
            continue
        if isinstance(answer, LogError):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _split(group: list[_PendingWrite]) -> Iterator[list[_PendingWrite]]:
    """Yield what can be written in one statement: an operation, or appends of different runs."""
    part: list[_PendingWrite] = []
    runs: set[str] = set()
    count = 0
    for pending in group:
        size = 0 if callable(pending.work) else len(pending.work)
        if part and (callable(pending.work) or pending.run_id in runs or count + size > MAX_EVENTS):
            yield part
            part, runs, count = [], set[str](), 0
        part.append(pending)
        runs.add(pending.run_id)
        count += size
        if callable(pending.work):
            yield part
            part, runs, count = [], set[str](), 0
    if part:
        yield part


def _entries_of(pending: _PendingWrite) -> tuple[LogEntry, ...]:
    return () if callable(pending.work) else pending.work


def _find_fault(pending: _PendingWrite) -> LogError | None:
    """Return what is wrong with an append before it is sent."""
    entries = _entries_of(pending)
    for seq, entry in enumerate(entries, entries[0].seq):
        if entry.seq != seq or entry.run_id != pending.run_id:
            return _discontinuity(entry, pending.run_id, seq)
    if len(entries) > MAX_EVENTS:
        return LogError(f"an append of {len(entries):,} events is over the limit of {MAX_EVENTS:,}")
    return None


def _discontinuity(entry: LogEntry, run_id: str, next_seq: int) -> LogFencedError:
    return LogFencedError(
        f"event {entry.seq} of {entry.run_id} does not continue {run_id}, whose next event is {next_seq}"
    )


def _check_conflict(error: psycopg.Error) -> None:
    """Raise the error again where another try would fail, too."""
    if isinstance(error, psycopg.errors.UniqueViolation) and error.diag.constraint_name != _ONE_JOB:
        raise error


def _text_error(problem: str) -> LogError:
    return LogError(f"this cannot be written: {problem[:80]}. Nothing was written.")


def _write_error(refusal: str, cause: BaseException | None) -> LogWriteError:
    error = LogWriteError(refusal)
    error.__cause__ = cause
    return error
