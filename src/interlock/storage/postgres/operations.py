"""Leases, commands and claims in a log in Postgres: operations of the writer thread.

Each gets the connection, and whether an earlier try may have been executed: then it must not be done twice.
"""

import psycopg

from ...domain.errors import LogError
from ..event_log import EffectClaim, Lease, QueuedCommand
from ..leases import ProcessIdentity, claimed_error, this_process
from .connection import Connection, execute, is_lost
from .indexing import RunIndexer
from .queries import QUERIES
from .queues import wake_runs
from .writer import load_process


class ProcessLeases:
    """The leases of one open log, which is one process for the others."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.claims: set[Lease] = set()

    def acquire(
        self, connection: Connection, is_retry: bool, run_id: str, force: bool, indexer: RunIndexer
    ) -> Lease | LogError:
        """Acquire the lease of a run, unless a living process has it."""
        values = {"run_id": run_id, "process": self.process, "force": force}
        while True:
            row = execute(connection, QUERIES["acquire"], values).fetchone()
            lease = Lease(run_id, row[0]) if row else self._find_own(connection, run_id) if is_retry else None
            if row:
                indexer.learn(run_id, *row)
            if lease is not None:
                self.claims.add(lease)
                return lease
            holder = self._find_holder(connection, run_id)
            if holder is not None:  # else it was released meanwhile
                return claimed_error(run_id, holder, this_process())

    def release(self, connection: Connection, _: bool, lease: Lease) -> bool:
        """Release a lease. Return True if commands are queued for the run."""
        row = execute(connection, QUERIES["release"], (lease.run_id, lease.token)).fetchone()
        self.claims.discard(lease)
        if row and row[0]:  # a child run; when this process ends here, a worker finds it
            execute(connection, QUERIES["wake"], ([lease.run_id],))
        # After the release, and not with it: a process that queues one meanwhile may find the run still held.
        row = execute(connection, QUERIES["has_commands"], (lease.run_id,)).fetchone()
        return bool(row and row[0])

    def finish_release(self, connection: Connection, lease: Lease) -> bool:
        """Do what is left after an append that released the lease of its run. Return as `release` does."""
        self.claims.discard(lease)
        try:
            row = execute(connection, QUERIES["find_released"], (lease.run_id,)).fetchone()
            has_commands, is_awaited = row or (False, False)
            if is_awaited:
                wake_runs(connection, [lease.run_id])
        except psycopg.Error:
            if is_lost(connection):  # it is done again on the next one
                raise
            return True  # the events are written, whatever this was: so commands are looked for once more
        return has_commands

    def _find_own(self, connection: Connection, run_id: str) -> Lease | None:
        """Return a lease that was acquired by the try whose answer was lost."""
        row = execute(connection, QUERIES["load_head"], (run_id,)).fetchone()
        lease = Lease(run_id, row[1]) if row and row[1] and row[2] == self.process else None
        return None if lease in self.claims else lease

    def _find_holder(self, connection: Connection, run_id: str) -> ProcessIdentity | None:
        row = execute(connection, QUERIES["load_head"], (run_id,)).fetchone()
        return load_process(connection, row[2]) if row and row[1] else None


def enqueue(connection: Connection, is_retry: bool, run_id: str, command: QueuedCommand) -> bool | LogError:
    """Queue a command. Return False if its key is queued already."""
    if execute(connection, QUERIES["enqueue"], (command.key, command.body, run_id)).fetchone():
        return True
    found = execute(connection, QUERIES["find_command"], (command.key, run_id)).fetchone()
    if found is None:
        return LogError(f"there is no run {run_id} in this log, so no note can be left for it. Nothing was written.")
    return is_retry and found[1] is not None and bytes(found[1]) == command.body


def claim_effect(connection: Connection, _: bool, effect: str, claim: EffectClaim, after: int) -> bool:
    """Claim an effect. Return False if another call claimed it after the given number."""
    values = {"effect": effect, "run_id": claim.run_id, "call_id": claim.call_id, "at": claim.at, "after": after}
    with connection.transaction():
        execute(connection, QUERIES["lock_effect"], (effect,))
        return execute(connection, QUERIES["claim_effect"], values).fetchone() is not None
