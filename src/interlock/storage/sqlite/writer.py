"""The writer thread of a SQLite log, with one commit for all waiting callers.

Theory of operation. An append costs one hop to this thread and one back. While a commit runs, further appends of any
run and any event loop queue up; the next commit takes them all. So one caller waits for one commit, and a hundred
callers wait for one or two.

A transaction holds the write lock from its first statement, so `PRAGMA data_version` shows reliably whether another
connection wrote since our last commit. As long as it did not, the remembered heads are the heads in the file; when it
did, they are read again. An append that does not continue its run, or does not show the run's lease, is left out of the
transaction before anything of it is written, and only its caller fails (`LogFencedError`). Other operations
are functions of the connection and run in order in the same transaction, so an append sees every lease that
was acquired before it and none that was acquired after it.

While another process holds the write lock, a group waits. After `BUSY_SECONDS` its callers are refused (`LogError`):
nothing of it was written, and the thread continues with the next group.

Anything else that goes wrong ends the thread: every append of the group fails, the connection is closed so that its
locks are free when the file is reopened, and from then on `refusal` says why nothing is accepted. `refusal` is set
before the queue is emptied for the last time and looked at after an append was queued; so no append is forgotten.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread, current_thread
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ...domain.errors import LogError, LogFencedError, LogWriteError
from ...domain.event import LogEntry
from ..direct_future import DirectFuture, complete_all
from ..event_log import Lease
from ..leases import NO_TOKEN
from ..packing import pack
from .journal import JournalSpace
from .leases import OpenLeases, acquire, build_fenced_error, release
from .queries import QUERIES

T = TypeVar("T")

#: Between commits without a break, so that another process that polls for the write lock gets it in time.
PAUSE_SECONDS = 0.0002

#: How long a write waits for another process that writes, and how often it looks.
BUSY_SECONDS = 10.0
POLL_SECONDS = 0.001

#: A write that waits longer than this, for another process or for the disk, is a problem while it lasts.
STALL_SECONDS = 0.7
DISK_STALL_SECONDS = 5.0

#: Heads are remembered for this many runs and then forgotten together; a forgotten one is one query.
MAX_HEADS = 10_000

_LOAD_HEAD, _ADD_RUN, _ADD_APPEND = QUERIES["load_head"], QUERIES["add_run"], QUERIES["add_append"]
_HAS_COMMAND = QUERIES["has_command"]

#: The position, the number of the run, and the packed events.
_Row: TypeAlias = tuple[int, int, int, int, bytes, bytes]
_Operation: TypeAlias = Callable[[sqlite3.Connection], object]


class _LockedError(Exception):
    """Another process kept the write lock for too long; no transaction was begun."""


class _PendingWrite(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: DirectFuture[Any]
    run_id: str
    work: tuple[LogEntry, ...] | _Operation
    token: int
    #: Append only if no command is queued under this key; empty: always.
    free_key: str = ""
    #: The lease begins, or ends, with this append.
    acquires: bool = False
    releases: bool = False


class _RunHead(NamedTuple):
    """The head of a run: its number, 0 for a new one, its next `seq`, and the token needed to append."""

    number: int
    seq: int
    token: int


class SqliteWriter:
    """The writer thread of one log. Owns `connection`, and closes the leases when nothing is accepted any more."""

    def __init__(self, connection: sqlite3.Connection, leases: OpenLeases, journal: JournalSpace) -> None:
        #: Why nothing is accepted any more; empty as long as all is well.
        self.refusal = ""
        self._connection = connection
        self._leases = leases
        self._journal = journal
        self._queue: SimpleQueue[_PendingWrite | None] = SimpleQueue()
        self._heads: dict[str, _RunHead] = {}
        self._version = -1
        #: Of the newest event of the file.
        self._position = 0
        #: How many transactions were committed. Read by other threads, too.
        self.commit_count = 0
        #: What the group that is being written waits for, and from when on that is a problem.
        self._waiting: tuple[str, float] | None = None
        # A daemon, because the interpreter would wait for another thread before it runs the exit hook that stops it.
        self._thread = Thread(target=self._run, name="interlock-log", daemon=True)
        self._thread.start()

    def append(self, run_id: str, entries: tuple[LogEntry, ...], token: int) -> asyncio.Future[None]:
        """Queue an append. It is written even if the caller stops waiting."""
        return self._submit(run_id, entries, token)

    def append_unless_queued(
        self, run_id: str, entries: tuple[LogEntry, ...], token: int, key: str
    ) -> asyncio.Future[bool]:
        """Queue an append that is left out if a command is queued under the key. The result is whether it was made."""
        return self._submit(run_id, entries, token, key)

    def append_and_acquire(self, run_id: str, entries: tuple[LogEntry, ...]) -> "asyncio.Future[Lease]":
        """Queue the first append of a run, with which its lease begins."""
        return self._submit(run_id, entries, NO_TOKEN, acquires=True)

    def append_and_release(self, run_id: str, entries: tuple[LogEntry, ...], token: int) -> asyncio.Future[bool]:
        """Queue an append with which the lease ends."""
        return self._submit(run_id, entries, token, releases=True)

    def run_operation(
        self, run_id: str, operation: Callable[[sqlite3.Connection], T | LogError]
    ) -> "asyncio.Future[T]":
        """Queue another operation on the run. Its return value, or its exception, is the result."""
        return self._submit(run_id, operation, NO_TOKEN)

    def _submit(  # noqa: PLR0913 - what makes a write different from the usual one
        self,
        run_id: str,
        work: tuple[LogEntry, ...] | _Operation,
        token: int,
        free_key: str = "",
        *,
        acquires: bool = False,
        releases: bool = False,
    ) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: DirectFuture[Any] = DirectFuture(loop=loop)
        if not self.refusal:
            self._queue.put(_PendingWrite(loop, future, run_id, work, token, free_key, acquires, releases))
        if self.refusal:
            future.cancel()
            raise LogWriteError(self.refusal)
        return future

    def find_problem(self) -> str:
        """Return why nothing can be written now; empty when writes work."""
        waiting = self._waiting
        return self.refusal or (waiting[0] if waiting and monotonic() > waiting[1] else "")

    def stop(self) -> None:
        """Finish what was queued, then end. Blocks; may be called twice, and by the garbage collector."""
        self._queue.put(None)
        if self._thread is not current_thread():
            self._thread.join()

    def _run(self) -> None:
        while self._serve_group():
            pass

    def _serve_group(self) -> bool:
        get = self._queue.get
        taken = [get()]
        taken += [get() for _ in range(self._queue.qsize())]
        group = [pending for pending in taken if pending is not None]
        try:
            answers = self._write(group) if group else []
        except _LockedError as error:
            message = f"another process holds the write lock of the log ({error}). Nothing was written."
            answers = [LogError(message) for _ in group]
        except BaseException as error:  # whatever it was, it may have been written
            self._end(group, f"a write failed ({error}): reopen the run, the log decides what was written", error)
            return False
        finally:
            self._waiting = None
        back_to_back = self._queue.qsize() > 0
        _deliver_results(group, answers)
        if len(group) < len(taken):
            self._end([], "the log is closed", None)
            return False
        if back_to_back:
            sleep(PAUSE_SECONDS)
        return True

    def _write(self, group: list[_PendingWrite]) -> list[object]:
        execute = self._connection.execute
        self._waiting = "another process holds the write lock", monotonic() + STALL_SECONDS
        try:
            execute_with_retry(self._connection, "BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if is_busy(error):
                raise _LockedError(error) from error
            raise
        self._waiting = "the disk does not confirm a write", monotonic() + DISK_STALL_SECONDS
        (version,) = execute("PRAGMA data_version").fetchone()
        if version != self._version or len(self._heads) > MAX_HEADS:
            self._version = version
            self._heads.clear()
            (self._position,) = execute(QUERIES["feed_position"]).fetchone()
        rows: list[_Row] = []
        answers = [self._stage(pending, rows) for pending in group]
        if rows:
            self._connection.executemany(_ADD_APPEND, rows)
        self._journal.reserve()
        execute("COMMIT")
        self.commit_count += 1
        return answers

    def _stage(self, pending: _PendingWrite, rows: list[_Row]) -> object:
        """Add the append to the transaction if it may be written; return the result for the caller."""
        _, _, run_id, work, token, free_key, acquires, releases = pending
        if callable(work):
            return self._apply_operation(run_id, work, rows)
        number, seq, needed = self._heads.get(run_id) or self._load_head(run_id)
        if token != needed:
            return build_fenced_error(self._connection, run_id, token)
        fault = _find_fault(run_id, work, seq, is_first=acquires)
        if fault is not None:
            return fault
        answer: object = None
        if free_key:
            answer = not self._connection.execute(_HAS_COMMAND, (run_id, free_key)).fetchone()[0]
        elif releases:
            answer, needed = release(self._connection, [Lease(run_id, token)], self._leases), NO_TOKEN
        elif acquires:
            answer = acquire(self._connection, run_id, force=False, made=[], holding=self._leases)
            needed = answer.token if isinstance(answer, Lease) else NO_TOKEN
        if isinstance(answer, LogError) or (free_key and not answer):
            return answer
        number = number or self._add_run(run_id)
        for packed in pack(work):
            rows.append((self._position + 1, number, *packed))
            self._position += packed[1]
        self._heads[run_id] = _RunHead(number, seq + len(work), needed)
        return answer

    def _apply_operation(self, run_id: str, operation: _Operation, rows: list[_Row]) -> object:
        """Run an operation. The run is read again after it, so staged rows are written first."""
        if rows:
            self._connection.executemany(_ADD_APPEND, rows)
            rows.clear()
        self._heads.pop(run_id, None)
        try:
            return operation(self._connection)
        except UnicodeEncodeError as error:  # before the statement was executed
            return LogError(f"this cannot be written in UTF-8: {ascii(error.object)[:80]}. Nothing was written.")

    def _load_head(self, run_id: str) -> _RunHead:
        return _RunHead(*self._connection.execute(_LOAD_HEAD, (run_id,)).fetchone())

    def _add_run(self, run_id: str) -> int:
        return self._connection.execute(_ADD_RUN, (run_id,)).lastrowid or 0

    def _end(self, group: list[_PendingWrite], refusal: str, cause: BaseException | None) -> None:
        self.refusal = refusal
        with suppress(sqlite3.Error):
            self._connection.close()
        self._leases.close()
        self._journal.close()
        left = [self._queue.get() for _ in range(self._queue.qsize())]
        group = group + [pending for pending in left if pending is not None]
        _deliver_results(group, [_write_error(refusal, cause) for _ in group])


def _find_fault(run_id: str, entries: tuple[LogEntry, ...], seq: int, *, is_first: bool) -> LogFencedError | None:
    """Return why the entries do not continue a run whose next event is `seq`."""
    if is_first and seq:
        return LogFencedError(f"{run_id} has events already, so it cannot begin. Nothing was written.")
    for expected, entry in enumerate(entries, seq):
        if entry.seq != expected or entry.run_id != run_id:
            return LogFencedError(
                f"event {entry.seq} of {entry.run_id} does not continue {run_id}, whose next event is {expected}"
            )
    return None


def execute_with_retry(
    connection: sqlite3.Connection, sql: str, parameters: tuple[str | int, ...] = ()
) -> sqlite3.Cursor:
    """Wait for other writers. SQLite's own wait backs off to 100 ms, too seldom to meet a busy writer's pauses."""
    deadline = monotonic() + BUSY_SECONDS
    while True:
        try:
            return connection.execute(sql, parameters)
        except sqlite3.OperationalError as error:
            if not is_busy(error) or monotonic() > deadline:
                raise
        sleep(POLL_SECONDS)


def is_busy(error: sqlite3.Error) -> bool:
    """Return True if another connection had locked the file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _write_error(refusal: str, cause: BaseException | None) -> LogWriteError:
    error = LogWriteError(refusal)
    error.__cause__ = cause
    return error


def _deliver_results(group: list[_PendingWrite], answers: Sequence[object]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[DirectFuture[Any], object]]] = {}
    for pending, answer in zip(group, answers, strict=True):
        by_loop.setdefault(pending.loop, []).append((pending.future, answer))
    for loop, results in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed, so no caller waits any more
            loop.call_soon_threadsafe(complete_all, results)
