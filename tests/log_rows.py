"""Change the events in the file of a log, as a person with another tool could."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from interlock.storage.packing import unpack
from interlock.storage.sqlite.upgrade import pack_old_events


def edit_events(path: Path, *statements: str, parameters: Any = ()) -> int:
    """Execute statements on the events as rows of a table `events`, and pack them again. Return how many rows the last
    one changed. Rows that no version has written stay in that table.
    """
    with closing(sqlite3.connect(path, timeout=60)) as connection, connection:
        connection.execute("BEGIN IMMEDIATE")
        unpack_events(connection)
        changed = 0
        for statement in statements:
            changed = connection.execute(statement, parameters).rowcount
        position: int | None = 0
        while position is not None:
            position = pack_old_events(connection, position)
    return changed


def unpack_events(connection: sqlite3.Connection) -> None:
    """Store the events one by one, as versions up to 3 of the schema did."""
    rows = connection.execute("SELECT position, run, seq, count, bodies, hashes FROM appends").fetchall()
    for position, run, *packed in rows:
        for at, entry in enumerate(unpack("", *packed)):
            row = (position + at, run, entry.seq, entry.body, entry.hash)
            connection.execute("INSERT INTO events (rowid, run, seq, body, hash) VALUES (?, ?, ?, ?, ?)", row)
    connection.execute("DELETE FROM appends")
