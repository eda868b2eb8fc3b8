"""Recent activity in all runs: the last few thousand events."""

import sqlite3
from collections.abc import Iterable

import msgspec

from ....domain.json import JsonObject
from ....domain.rendering import truncate
from ....history.run_view import to_run_events
from ....rendering.events import present_event
from ..live.live_event import LiveEvent
from .row_buffer import MAX_TEXT_CHARS, clamp_integer

MAX_ACTIVITY_ROWS = 10_000
#: So many more than that may be there before the oldest are deleted.
ACTIVITY_TRIM_SLACK = 1_000

_INSERT_ROW = (
    "INSERT OR REPLACE INTO activity (number, run_id, seq, at, type, title, tone, icon, tool, action_id, text)"
    " VALUES (?,?,?,?,?,?,?,?,?,?,?)"
)
_TRIM = "DELETE FROM activity WHERE number <= (SELECT number FROM activity ORDER BY number DESC LIMIT 1 OFFSET ?)"
_COUNT = "SELECT count(*) FROM activity"


class ActivityRow(msgspec.Struct, frozen=True, kw_only=True):
    """One recent event."""

    #: Its place among the events of all runs.
    position: int
    run_id: str
    agent: str
    #: The run's, now.
    status: str
    seq: int
    at: int
    #: An event type of the REST API: TOOL_CALL, APPROVAL_REQUIRED, ...
    type: str
    #: How it is shown.
    title: str
    tone: str
    icon: str
    tool: str = ""
    action_id: str = ""
    #: What there is to say about it, in a few words.
    text: str = ""


def save_activity(connection: sqlite3.Connection, page: Iterable[LiveEvent]) -> None:
    rows = [row for live in page for row in _to_rows(live)]
    if not rows:
        return
    connection.executemany(_INSERT_ROW, rows)
    if connection.execute(_COUNT).fetchone()[0] > MAX_ACTIVITY_ROWS + ACTIVITY_TRIM_SLACK:
        connection.execute(_TRIM, (MAX_ACTIVITY_ROWS,))


def _to_rows(live: LiveEvent) -> Iterable[tuple[object, ...]]:
    if live.event is None:
        return
    for shown in to_run_events(live.event):
        view = present_event(live.event.fact)
        about = (
            _get_text(shown.data, "tool"),
            _get_text(shown.data, "action_id"),
            truncate(view.detail, MAX_TEXT_CHARS),
        )
        columns = (shown.type, view.title, view.tone, view.icon, *about)
        yield live.position, live.entry.run_id, clamp_integer(shown.seq), clamp_integer(shown.at), *columns


def _get_text(data: JsonObject, name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
