"""Take the events of runs out of a file, and put them back: operations of the writer thread.

Each is one transaction. What may be wrong is found before anything is changed.
"""

import sqlite3
from collections.abc import Sequence

from ...domain.errors import LogError
from ...domain.event import LogEntry
from ..packing import HASH_BYTES
from ..removal import RemovedRun, StoredRecord, decode_record, encode_record, find_removal_problem, pack_restored
from .queries import QUERIES


def remove_runs(connection: sqlite3.Connection, removed: Sequence[RemovedRun]) -> LogError | None:
    """Remove the events of runs, and leave the records. What is erased is overwritten."""
    (newest,) = connection.execute(QUERIES["feed_position"]).fetchone()
    records: list[tuple[int, StoredRecord]] = []
    for run in removed:
        number, places, last_hash = _load_places(connection, run.run_id)
        problem = find_removal_problem(run, places, last_hash, newest)
        if not problem and connection.execute(QUERIES["has_old_events"], (number,)).fetchone()[0]:
            problem = f"{run.run_id} is stored as older versions did: run `interlock storage upgrade` first"
        if problem:
            return LogError(f"{problem}. Nothing was removed.")
        records.append((number, StoredRecord(run, tuple(places))))
    if any(run.is_erased for run in removed):
        connection.execute("PRAGMA secure_delete = ON").fetchall()
    for number, record in records:
        row = (number, record.run.event_count, encode_record(record), record.run.is_erased)
        connection.execute(QUERIES["add_removed"], row)
        for query in ("remove_appends", "remove_commands"):
            connection.execute(QUERIES[query], (number,))
        connection.execute(QUERIES["remove_snapshot"], (record.run.run_id,))
    return None


def update_removed(connection: sqlite3.Connection, removed: Sequence[RemovedRun]) -> LogError | None:
    """Replace the records of removed runs."""
    for run in removed:
        found = connection.execute(QUERIES["find_removed"], (run.run_id,)).fetchone()
        if found is None:
            return LogError(f"{run.run_id} is not removed. Nothing was changed.")
    for run in removed:
        number, record = connection.execute(QUERIES["find_removed"], (run.run_id,)).fetchone()
        stored = StoredRecord(run, decode_record(record).places)
        connection.execute(QUERIES["update_removed"], (number, encode_record(stored), run.is_erased))
    return None


def restore_run(connection: sqlite3.Connection, run_id: str, entries: Sequence[LogEntry]) -> LogError | None:
    """Put the events of a run back, and remove the record."""
    found = connection.execute(QUERIES["find_removed"], (run_id,)).fetchone()
    if found is None:
        return LogError(f"{run_id} is not archived. Nothing was restored.")
    try:
        rows = pack_restored(decode_record(found[1]), entries)
    except LogError as error:
        return error
    for position, *row in rows:
        connection.execute(QUERIES["add_append"], (position, found[0], *row))
    connection.execute(QUERIES["forget_removed"], (found[0],))
    return None


def _load_places(connection: sqlite3.Connection, run_id: str) -> tuple[int, list[tuple[int, int, int]], bytes]:
    rows = connection.execute(QUERIES["load_places"], (run_id,)).fetchall()
    number, last_hash = (rows[-1][0], rows[-1][4][-HASH_BYTES:]) if rows else (0, b"")
    return number, [row[1:4] for row in rows], last_hash
