"""Take the events of runs out of a database, and put them back: operations of the writer thread.

Each is one transaction, and needs the role that owns the tables: the role of workers cannot delete events.
"""

from collections.abc import Sequence

import psycopg

from ...domain.errors import LogError
from ...domain.event import LogEntry
from ..packing import HASH_BYTES
from ..removal import RemovedRun, StoredRecord, decode_record, encode_record, find_removal_problem, pack_restored
from .connection import Connection, execute
from .queries import QUERIES


def remove_runs(connection: Connection, is_retry: bool, removed: Sequence[RemovedRun]) -> LogError | None:
    """Remove the events of runs, and leave the records. Lists forget a run that is erased."""
    try:
        with connection.transaction():
            return _remove(connection, is_retry, removed)
    except psycopg.errors.InsufficientPrivilege:
        return _role_error()


def _remove(connection: Connection, is_retry: bool, removed: Sequence[RemovedRun]) -> LogError | None:
    newest = execute(connection, QUERIES["newest_position"]).fetchone()
    records: list[tuple[int, StoredRecord]] = []
    for run in removed:
        row = execute(connection, QUERIES["lock_removable"], (run.run_id,)).fetchone()
        if row is None:
            return LogError(f"there is no run {run.run_id} in this log. Nothing was removed.")
        number, is_held = row
        if is_retry and execute(connection, QUERIES["find_removed"], (run.run_id,)).fetchone():
            return None
        rows = execute(connection, QUERIES["load_places"], (number,)).fetchall()
        last_hash = bytes(rows[-1][3])[-HASH_BYTES:] if rows else b""
        places = [row[:3] for row in rows]
        problem = find_removal_problem(run, places, last_hash, newest[0] if newest else 0)
        if is_held:
            problem = f"{run.run_id} is in use"
        if problem:
            return LogError(f"{problem}. Nothing was removed.")
        records.append((number, StoredRecord(run, tuple(places))))
    for number, record in records:
        execute(connection, QUERIES["add_removed"], (number, encode_record(record), record.run.is_erased))
        for query in ("mark_removed", "remove_appends", "remove_commands"):
            execute(connection, QUERIES[query], (number,))
        execute(connection, QUERIES["remove_snapshot"], (record.run.run_id,))
        if record.run.is_erased:
            _forget(connection, number, record.run.run_id)
    return None


def _forget(connection: Connection, number: int, run_id: str) -> None:
    """Delete what lists and servers have of an erased run."""
    for query in ("remove_listed_actions", "remove_listed_run"):
        execute(connection, QUERIES[query], (number,))
    execute(connection, QUERIES["forget_erased"], {"run_id": run_id})


def update_removed(connection: Connection, _: bool, removed: Sequence[RemovedRun]) -> LogError | None:
    """Replace the records of removed runs. Lists forget a run that is erased."""
    try:
        with connection.transaction():
            for run in removed:
                found = execute(connection, QUERIES["find_removed"], (run.run_id,)).fetchone()
                if found is None:
                    raise LogError(f"{run.run_id} is not removed. Nothing was changed.")
                record = encode_record(StoredRecord(run, decode_record(bytes(found[1])).places))
                values = {"number": found[0], "record": record, "is_erased": run.is_erased}
                execute(connection, QUERIES["update_removed"], values)
                if run.is_erased:
                    _forget(connection, found[0], run.run_id)
            return None
    except LogError as error:
        return error
    except psycopg.errors.InsufficientPrivilege:
        return _role_error()


def restore_run(connection: Connection, is_retry: bool, run_id: str, entries: Sequence[LogEntry]) -> LogError | None:
    """Put the events of a run back, and remove the record."""
    try:
        with connection.transaction():
            found = execute(connection, QUERIES["find_removed"], (run_id,)).fetchone()
            if found is None:
                return None if is_retry else LogError(f"{run_id} is not archived. Nothing was restored.")
            for row in pack_restored(decode_record(bytes(found[1])), entries):
                execute(connection, QUERIES["restore_append"], (found[0], *row))
            execute(connection, QUERIES["forget_removed"], (found[0],))
            execute(connection, QUERIES["mark_over"], (found[0],))
            return None
    except LogError as error:
        return error
    except psycopg.errors.InsufficientPrivilege:
        return _role_error()


def _role_error() -> LogError:
    return LogError("This role cannot remove events. Use the role that owns the tables. Nothing was changed.")
