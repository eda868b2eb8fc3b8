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
from ..event_log import Claim, Note
from ..leases import NO_TOKEN, claimed, fenced
from ..process import Process, is_gone, this_process

_LOAD = "SELECT token, host, boot, pid, started FROM claims WHERE run_id = ?"
_TAKE = "INSERT OR REPLACE INTO claims (run_id, token, host, boot, pid, started) VALUES (?, ?, ?, ?, ?, ?)"
_GIVE_BACK = "UPDATE claims SET pid = 0 WHERE run_id = ? AND token = ?"
_FIND_RUN = "SELECT number FROM runs WHERE run_id = ?"
_POST = "INSERT OR IGNORE INTO notes (run, key, body) VALUES (?, ?, ?)"
_TAKE_AWAY = "DELETE FROM notes WHERE run = (SELECT number FROM runs WHERE run_id = ?) AND key = ?"


class Holding:
    """The claims that one open log has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.claims: set[Claim] = set()
        _open_here.add(self)

    def end(self) -> None:
        """The log can append no more."""
        _open_here.discard(self)

    def has(self, claim: Claim, holder: Process, here: Process) -> bool:
        """Is it in force, as far as can be seen from this log?"""
        if holder != here:
            return not is_gone(holder, here)
        return any(claim in other.claims for other in tuple(_open_here) if other.path == self.path)


#: Threads of several logs use it, each for one step that no other thread can come into.
_open_here: set[Holding] = set()


def take(
    connection: sqlite3.Connection, run_id: str, force: bool, made: list[Claim], holding: Holding
) -> Claim | RunClaimedError:
    """`made` tells also those who stopped waiting for the answer."""
    token, holder = _load(connection, run_id)
    here = this_process()
    if not force and holder is not None and holding.has(Claim(run_id, token), holder, here):
        return claimed(run_id, holder, here)
    connection.execute(_TAKE, (run_id, token + 1, here.host, here.boot, here.pid, here.started))
    made.append(Claim(run_id, token + 1))
    holding.claims.add(made[0])
    return made[0]


def give_back(connection: sqlite3.Connection, claims: Sequence[Claim], holding: Holding) -> None:
    connection.executemany(_GIVE_BACK, [(claim.run_id, claim.token) for claim in claims])
    holding.claims.difference_update(claims)


def refuse_append(connection: sqlite3.Connection, run_id: str, token: int) -> LogFencedError:
    _, holder = _load(connection, run_id)
    return fenced(run_id, token, holder)


def post(connection: sqlite3.Connection, run_id: str, note: Note) -> bool | LogError:
    run = connection.execute(_FIND_RUN, (run_id,)).fetchone()
    if run is None:
        return LogError(f"there is no run {run_id} in this log, so no note can be left for it. Nothing was written.")
    return connection.execute(_POST, (*run, note.key, note.body)).rowcount == 1


def take_away(connection: sqlite3.Connection, run_id: str, key: str) -> None:
    connection.execute(_TAKE_AWAY, (run_id, key))


def _load(connection: sqlite3.Connection, run_id: str) -> tuple[int, Process | None]:
    """The last token, 0 if there was none, and who has the claim now."""
    row = connection.execute(_LOAD, (run_id,)).fetchone()
    if row is None:
        return NO_TOKEN, None
    holder = Process(*row[1:])
    return row[0], holder if holder.pid else None
