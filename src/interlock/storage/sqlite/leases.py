"""Leases and commands in a SQLite log: operations of the writer thread, inside its transaction.

A released lease keeps its row, so that the next token is larger; its process has pid 0, which is none.

A living process keeps its leases. In this process more is known: a log that failed or was closed could not release its
leases, and nothing here can append with them. So every open log registers its leases here, and a lease of this process
that no open log has is free. After a fork the child is another process, and the copied registry does not apply.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from ...domain.errors import LogError, LogFencedError, RunClaimedError
from ..event_log import Lease, QueuedCommand
from ..leases import NO_TOKEN, ProcessIdentity, claimed_error, fenced_error, is_dead, this_process
from .queries import QUERIES


class OpenLeases:
    """The leases of one open log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.claims: set[Lease] = set()
        _open_logs.add(self)

    def close(self) -> None:
        """Drop the leases: the log can no longer append."""
        _open_logs.discard(self)

    def is_held(self, lease: Lease, holder: ProcessIdentity, here: ProcessIdentity) -> bool:
        """Return True if the lease is in force, as far as this log can tell."""
        if holder != here:
            return not is_dead(holder, here)
        return any(lease in other.claims for other in tuple(_open_logs) if other.path == self.path)


#: Shared by the threads of several logs; each access is one atomic step.
_open_logs: set[OpenLeases] = set()


def acquire(
    connection: sqlite3.Connection, run_id: str, force: bool, made: list[Lease], holding: OpenLeases
) -> Lease | RunClaimedError:
    """Acquire a lease inside the transaction. `made` also informs callers that stopped waiting."""
    token, holder = _load(connection, run_id)
    here = this_process()
    if not force and holder is not None and holding.is_held(Lease(run_id, token), holder, here):
        return claimed_error(run_id, holder, here)
    connection.execute(QUERIES["acquire_lease"], (run_id, token + 1, here.host, here.boot, here.pid, here.started))
    made.append(Lease(run_id, token + 1))
    holding.claims.add(made[0])
    return made[0]


def release(connection: sqlite3.Connection, claims: Sequence[Lease], holding: OpenLeases) -> None:
    connection.executemany(QUERIES["release_lease"], [(claim.run_id, claim.token) for claim in claims])
    holding.claims.difference_update(claims)


def build_fenced_error(connection: sqlite3.Connection, run_id: str, token: int) -> LogFencedError:
    _, holder = _load(connection, run_id)
    return fenced_error(run_id, token, holder)


def enqueue(connection: sqlite3.Connection, run_id: str, note: QueuedCommand) -> bool | LogError:
    run = connection.execute(QUERIES["find_run"], (run_id,)).fetchone()
    if run is None:
        return LogError(f"there is no run {run_id} in this log, so no note can be left for it. Nothing was written.")
    return connection.execute(QUERIES["enqueue_command"], (*run, note.key, note.body)).rowcount == 1


def ack(connection: sqlite3.Connection, run_id: str, key: str) -> None:
    connection.execute(QUERIES["ack_command"], (run_id, key))


def _load(connection: sqlite3.Connection, run_id: str) -> tuple[int, ProcessIdentity | None]:
    """Return the last token, 0 if there was none, and the current holder."""
    row = connection.execute(QUERIES["load_lease"], (run_id,)).fetchone()
    if row is None:
        return NO_TOKEN, None
    holder = ProcessIdentity(*row[1:])
    return row[0], holder if holder.pid else None
