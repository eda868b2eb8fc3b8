"""Leases and commands in a SQLite log: operations of the writer thread, inside its transaction.

A released lease keeps its row, so that the next token is larger; its process has pid 0, which is none.

A living process keeps its leases. A process that has a lease also locks one byte of a file beside the log, and the
system drops that lock when the process ends. So a holder is seen alive or gone from another container, too, which has
other process numbers and often another host name: a log in WAL mode is used under one kernel only.

In this process more is known: a log that failed or was closed could not release its leases, and nothing here can append
with them. So every open log registers its leases here, and a lease of this process that no open log has is free. After
a fork the child is another process, and the copied registry does not apply.
"""

import fcntl
import os
import sqlite3
import struct
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from ...domain.errors import LogError, LogFencedError
from ..event_log import Lease, QueuedCommand
from ..leases import NO_TOKEN, ProcessIdentity, claimed_error, fenced_error, is_dead, this_process
from .queries import QUERIES


class HolderLocks:
    """Locks that show which processes have leases: each locks the byte that its identity is hashed to. They belong to
    the open file, so several logs of one process do not disturb each other.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def hold(self, process: ProcessIdentity) -> None:
        """Show that this process is alive, until `close` or its end."""
        if _OFD_LOCKS:
            fcntl.fcntl(self._open(), fcntl.F_OFD_SETLK, self._describe(fcntl.F_RDLCK, process))

    def is_held(self, process: ProcessIdentity, *, otherwise: bool) -> bool:
        """Return whether the process is alive; `otherwise` where the system has no such locks."""
        if not _OFD_LOCKS:
            return otherwise
        try:
            found = fcntl.fcntl(self._open(), fcntl.F_OFD_GETLK, self._describe(fcntl.F_WRLCK, process))
        except OSError:
            return otherwise
        return struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK

    def close(self) -> None:
        """Close the lock file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> int:
        if self._file < 0:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        return self._file

    def _describe(self, kind: int, process: ProcessIdentity) -> bytes:
        name = f"{process.host}\n{process.boot}\n{process.pid}\n{process.started}"
        place = int.from_bytes(sha256(name.encode()).digest()[:7])
        return struct.pack(_FLOCK, kind, os.SEEK_SET, place, 1, 0)


#: `struct flock`, with the padding at its end.
_FLOCK = "hhqqi0q"
_OFD_LOCKS = hasattr(fcntl, "F_OFD_SETLK")


class OpenLeases:
    """The leases of one open log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.claims: set[Lease] = set()
        self.locks = HolderLocks(path.with_name(f"{path.name}-lock"))
        _open_logs.add(self)

    def close(self) -> None:
        """Drop the leases: the log can no longer append."""
        _open_logs.discard(self)
        self.locks.close()

    def is_held(self, lease: Lease, holder: ProcessIdentity, here: ProcessIdentity) -> bool:
        """Return True if the lease is in force, as far as this log can determine."""
        if holder == here:
            return any(lease in other.claims for other in tuple(_open_logs) if other.path == self.path)
        is_neighbour = holder.host == here.host
        if is_neighbour and holder.boot and here.boot and holder.boot != here.boot:
            return False
        if is_neighbour and not is_dead(holder, here):
            return True
        return self.locks.is_held(holder, otherwise=not is_neighbour)


#: Shared by the threads of several logs; each access is one atomic step.
_open_logs: set[OpenLeases] = set()


def acquire(
    connection: sqlite3.Connection, run_id: str, force: bool, made: list[Lease], holding: OpenLeases
) -> Lease | LogError:
    """Acquire a lease inside the transaction. `made` also informs callers that stopped waiting."""
    token, holder = _load(connection, run_id)
    here = this_process()
    if not force and holder is not None and holding.is_held(Lease(run_id, token), holder, here):
        return claimed_error(run_id, holder, here)
    try:
        holding.locks.hold(here)
    except OSError as error:
        return LogError(f"the lease of {run_id} cannot be shown to other processes: {error}. Nothing was written.")
    connection.execute(QUERIES["acquire_lease"], (run_id, token + 1, here.host, here.boot, here.pid, here.started))
    made.append(Lease(run_id, token + 1))
    holding.claims.add(made[0])
    return made[0]


def release(connection: sqlite3.Connection, claims: Sequence[Lease], holding: OpenLeases) -> bool:
    """Release leases in the database. Return True if commands are queued for one of the runs."""
    connection.executemany(QUERIES["release_lease"], [(claim.run_id, claim.token) for claim in claims])
    holding.claims.difference_update(claims)
    has_commands = QUERIES["has_commands"]
    return any(connection.execute(has_commands, (claim.run_id,)).fetchone()[0] for claim in claims)


def build_fenced_error(connection: sqlite3.Connection, run_id: str, token: int) -> LogFencedError:
    """Build the error for a write with a lost lease."""
    _, holder = _load(connection, run_id)
    return fenced_error(run_id, token, holder)


def enqueue(connection: sqlite3.Connection, run_id: str, note: QueuedCommand) -> bool | LogError:
    """Queue a command. Return False if its key is queued already."""
    run = connection.execute(QUERIES["find_run"], (run_id,)).fetchone()
    if run is None:
        return LogError(f"there is no run {run_id} in this log, so no note can be left for it. Nothing was written.")
    return connection.execute(QUERIES["enqueue_command"], (*run, note.key, note.body)).rowcount == 1


def ack(connection: sqlite3.Connection, run_id: str, key: str) -> None:
    """Remove a queued command."""
    connection.execute(QUERIES["ack_command"], (run_id, key))


def _load(connection: sqlite3.Connection, run_id: str) -> tuple[int, ProcessIdentity | None]:
    """Return the last token, 0 if there was none, and the current holder."""
    row = connection.execute(QUERIES["load_lease"], (run_id,)).fetchone()
    if row is None:
        return NO_TOKEN, None
    holder = ProcessIdentity(*row[1:])
    return row[0], holder if holder.pid else None
