"""Pack the events that older versions stored one by one. Nothing of them changes but where they are.

A step is one transaction of the writer thread, so a log in use can be packed, and what breaks off loses nothing.
"""

import sqlite3
from itertools import pairwise

from ...domain.event import LogEntry
from ..packing import HASH_BYTES, pack
from .queries import QUERIES

#: Rows of one transaction: other writers wait for it.
STEP_ROWS = 2_000
_MAX_GROUP_ROWS = 64


def pack_old_events(connection: sqlite3.Connection, after: int = 0) -> int | None:
    """Pack the events of the next rows behind a position. Return the position to continue behind; None at the end.

    A row that no version has written, such as one that was edited by hand, stays as it is.
    """
    rows = connection.execute(QUERIES["old_events"], (after, STEP_ROWS)).fetchall()
    for group in _group_rows([row for row in rows if _is_sound(*row)]):
        position, run = group[0][:2]
        for packed in pack([LogEntry("", *row[2:]) for row in group]):
            connection.execute(QUERIES["add_append"], (position, run, *packed))
            position += packed[1]
        connection.execute(QUERIES["remove_old_events"], (group[0][0], group[-1][0]))
    return rows[-1][0] if rows else None


def _group_rows(rows: list[tuple[int, int, int, bytes, bytes]]) -> list[list[tuple[int, int, int, bytes, bytes]]]:
    """Return rows that follow each other, in the file and in their run, as groups."""
    groups = [rows[:1]] if rows else []
    for (position, run, seq, *_), row in pairwise(rows):
        if row[:3] == (position + 1, run, seq + 1) and len(groups[-1]) < _MAX_GROUP_ROWS:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _is_sound(position: int, run: object, seq: object, body: object, digest: object) -> bool:
    is_event = isinstance(run, int) and isinstance(seq, int) and seq >= 0 and isinstance(body, bytes)
    return is_event and isinstance(digest, bytes) and len(digest) == HASH_BYTES
