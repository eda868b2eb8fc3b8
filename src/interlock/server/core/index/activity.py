"""What happened lately, in all runs: the last few thousand events that an operator is shown."""

import sqlite3
from collections.abc import Iterable

import msgspec

from ....domain.json import JsonObject
from ....history.run_view import run_events
from ..live.event import LiveEvent
from .indexed import cut, stored_int

KEPT = 10_000
#: So many more than that may be there before the oldest are deleted.
SPARE = 1_000

_ADD = "INSERT OR REPLACE INTO activity (number, run_id, seq, at, type, tool, action_id, text) VALUES (?,?,?,?,?,?,?,?)"
_TRIM = "DELETE FROM activity WHERE number <= (SELECT number FROM activity ORDER BY number DESC LIMIT 1 OFFSET ?)"
_COUNT = "SELECT count(*) FROM activity"


class ActivityRow(msgspec.Struct, frozen=True, kw_only=True):
    #: Its place among the events of all runs.
    position: int
    run_id: str
    agent: str
    #: The run's, now.
    status: str
    seq: int
    at: int
    #: A word of the REST API: TOOL_CALL, APPROVAL_REQUIRED, ...
    type: str
    tool: str = ""
    action_id: str = ""
    #: The first words of what it says.
    text: str = ""


def keep(connection: sqlite3.Connection, page: Iterable[LiveEvent]) -> None:
    rows = [row for live in page for row in _shown(live)]
    if not rows:
        return
    connection.executemany(_ADD, rows)
    if connection.execute(_COUNT).fetchone()[0] > KEPT + SPARE:
        connection.execute(_TRIM, (KEPT,))


def _shown(live: LiveEvent) -> Iterable[tuple[object, ...]]:
    if live.event is None:
        return
    for shown in run_events(live.event):
        data = shown.data
        words = _text(data, "prompt") or _text(data, "message") or _text(data, "reason") or _text(data, "model")
        about = (shown.type, _text(data, "tool"), _text(data, "action_id"), cut(words))
        yield live.position, live.entry.run_id, stored_int(shown.seq), stored_int(shown.at), *about


def _text(data: JsonObject, name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
