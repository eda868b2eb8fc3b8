"""Claims and notes in a SQLite log: what the writing thread does for them, inside its transaction.

A claim that was given back keeps its row, so that the next token is larger; its process has number 0, which is nobody.

A living process keeps its claims. This very one can know better: a log that failed, or was closed, could not give its
claims back, and nobody here can append with them. So every open log tells here what it has, and a claim of this process
that no open log has is free. After a fork the child is another process, and what it copied says nothing.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from ...domain.errors import LogError, LogFencedError, RunClaimedError
from ..event_log import Lease, QueuedCommand
from ..leases import NO_TOKEN, ProcessIdentity, claimed_error, fenced_error, is_dead, this_process

_LOAD = "SELECT token, host, boot, pid, started FROM claims WHERE run_id = ?"
_ACQUIRE = "INSERT OR REPLACE INTO claims (run_id, token, host, boot, pid, started) VALUES (?, ?, ?, ?, ?, ?)"
_RELEASE = "UPDATE claims SET pid = 0 WHERE run_id = ? AND token = ?"
_FIND_RUN = "SELECT number FROM runs WHERE run_id = ?"
_ENQUEUE = "INSERT OR IGNORE INTO notes (run, key, body) VALUES (?, ?, ?)"
_ACK = "DELETE FROM notes WHERE run = (SELECT number FROM runs WHERE run_id = ?) AND key = ?"


class OpenLeases:
    """The claims that one open log has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.claims: set[Lease] = set()
        _open_logs.add(self)

    def close(self) -> None:
        """The log can append no more."""
        _open_logs.discard(self)

    def is_held(self, lease: Lease, holder: ProcessIdentity, here: ProcessIdentity) -> bool:
        """Is it in force, as far as can be seen from this log?"""
        if holder != here:
            return not is_dead(holder, here)
        return any(lease in other.claims for other in tuple(_open_logs) if other.path == self.path)


#: Threads of several logs use it, each for one step that no other thread can come into.
_open_logs: set[OpenLeases] = set()


def acquire(
    connection: sqlite3.Connection, run_id: str, force: bool, made: list[Lease], holding: OpenLeases
) -> Lease | RunClaimedError:
    """`made` tells also those who stopped waiting for the answer."""
    token, holder = _load(connection, run_id)
    here = this_process()
    if not force and holder is not None and holding.is_held(Lease(run_id, token), holder, here):
        return claimed_error(run_id, holder, here)
    connection.execute(_ACQUIRE, (run_id, token + 1, here.host, here.boot, here.pid, here.started))
    made.append(Lease(run_id, token + 1))
    holding.claims.add(made[0])
    return made[0]


def release(connection: sqlite3.Connection, claims: Sequence[Lease], holding: OpenLeases) -> None:
    connection.executemany(_RELEASE, [(claim.run_id, claim.token) for claim in claims])
    holding.claims.difference_update(claims)


def build_fenced_error(connection: sqlite3.Connection, run_id: str, token: int) -> LogFencedError:
    _, holder = _load(connection, run_id)
    return fenced_error(run_id, token, holder)


def enqueue(connection: sqlite3.Connection, run_id: str, note: QueuedCommand) -> bool | LogError:
    run = connection.execute(_FIND_RUN, (run_id,)).fetchone()
    if run is None:
        return LogError(f"there is no run {run_id} in this log, so no note can be left for it. Nothing was written.")
    return connection.execute(_ENQUEUE, (*run, note.key, note.body)).rowcount == 1


def ack(connection: sqlite3.Connection, run_id: str, key: str) -> None:
    connection.execute(_ACK, (run_id, key))


def _load(connection: sqlite3.Connection, run_id: str) -> tuple[int, ProcessIdentity | None]:
    """The last token, 0 if there was none, and who has the claim now."""
    row = connection.execute(_LOAD, (run_id,)).fetchone()
    if row is None:
        return NO_TOKEN, None
    holder = ProcessIdentity(*row[1:])
    return row[0], holder if holder.pid else None
