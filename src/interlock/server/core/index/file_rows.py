"""The rows of the index in its file. Those that a page of events touches are read once, and written once at its end."""

import sqlite3
from collections.abc import Iterable, Sequence
from operator import attrgetter

import msgspec

from ....domain.rendering import truncate
from ....domain.state.lifecycle import RUN_STATUS, ActionState, RunState
from ....storage.projection import (
    MAX_TEXT_CHARS,
    UNANSWERED_STATUS,
    IndexedAction,
    IndexedRun,
    list_search_words,
    mark_damaged,
)
from ....storage.rollups import Rollups
from ..live.live_event import LiveEvent
from . import activity
from .activity import ActivityRow, list_activity_rows
from .rows import DamagedRun

#: So many events are added before the oldest rows of activity above those that are shown are deleted.
ACTIVITY_TRIM_SLACK = 1_000

_RUN_FIELDS = IndexedRun.__struct_fields__
_ACTION_FIELDS = IndexedAction.__struct_fields__
_RUN_EXTRA = ("status", "inside", "words")
#: What most events change. The rest is in the indexes, or in the words.
_CHANGING_FIELDS = (
    "message",
    "created_at",
    "updated_at",
    "last_seq",
    "open_questions",
    "code",
    "input_tokens",
    "output_tokens",
    "cost_nanos",
    "begun",
    "damaged_at",
)
_get_changing = attrgetter(*_CHANGING_FIELDS, "number")
_get_stable = attrgetter(*(name for name in _RUN_FIELDS if name not in _CHANGING_FIELDS))
#: The run's agent and status, the last two, are joined when the rows are read.
_ACTIVITY_FIELDS = ActivityRow.__struct_fields__[:-2]


def _build_upsert(table: str, columns: Iterable[str]) -> str:
    columns = tuple(columns)
    marks, changed = ", ".join("?" * len(columns)), ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608  # names of our own
        f" ON CONFLICT (number) DO UPDATE SET {changed}"
    )


_SELECT_RUNS = f"SELECT {', '.join(_RUN_FIELDS)} FROM runs WHERE run_id IN "  # noqa: S608
_UPDATE_RUN = f"UPDATE runs SET {', '.join(f'{name} = ?' for name in _CHANGING_FIELDS)} WHERE number = ?"  # noqa: S608
_SELECT_ACTION = f"SELECT {', '.join(_ACTION_FIELDS)} FROM actions WHERE run_id = ? AND action_id = ?"  # noqa: S608
_SELECT_PENDING = "SELECT action_id FROM actions WHERE run_id = ? AND state = 'pending'"
_UPSERT_RUN = _build_upsert("runs", (*_RUN_FIELDS, *_RUN_EXTRA))
_UPSERT_ACTION = _build_upsert("actions", _ACTION_FIELDS)

_INSERT_ACTIVITY = (
    f"INSERT OR REPLACE INTO activity (number, {', '.join(_ACTIVITY_FIELDS[1:])})"  # noqa: S608
    f" VALUES ({', '.join('?' * len(_ACTIVITY_FIELDS))})"
)
_FORGET = tuple(f"DELETE FROM {table} WHERE run_id = ?" for table in ("runs", "actions", "activity"))  # noqa: S608
_TRIM = "DELETE FROM activity WHERE number <= (SELECT number FROM activity ORDER BY number DESC LIMIT 1 OFFSET ?)"
_ADD_ROLLUP = (
    "INSERT INTO rollups (width, start, metric, agent, name, count, total) VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET count = count + excluded.count, total = total + excluded.total"
)


class RowBuffer:
    """The rows that one page of events touches."""

    def __init__(self, connection: sqlite3.Connection, run_ids: Iterable[str] = ()) -> None:
        """Read these runs, in one statement. Others are read when they are asked for."""
        self._connection = connection
        self._runs: dict[str, IndexedRun] = {}
        #: The runs that were looked for in the file, and of those that it has what seldom changes.
        self._sought: set[str] = set()
        self._stored: dict[str, object] = {}
        self._actions: dict[tuple[str, str], IndexedAction] = {}
        self._load_runs(tuple(run_ids))

    def _load_runs(self, run_ids: tuple[str, ...]) -> None:
        marks = ", ".join("?" * len(run_ids))
        for found in self._connection.execute(f"{_SELECT_RUNS}({marks})", run_ids) if run_ids else ():
            run = msgspec.convert(dict(zip(_RUN_FIELDS, found, strict=True)), IndexedRun, strict=False)
            self._runs[run.run_id] = run
            self._stored[run.run_id] = _get_stable(run)
        self._sought.update(run_ids)

    def get_run(self, run_id: str) -> IndexedRun | None:
        """Return a run from the buffer or the index, or None."""
        if run_id not in self._sought:
            self._load_runs((run_id,))
        return self._runs.get(run_id)

    def add_run(self, run: IndexedRun) -> IndexedRun:
        """Add a run to the buffer."""
        self._runs[run.run_id] = run
        return run

    def has_action(self, run_id: str, action_id: str) -> bool:
        """Return True if the buffer or the index has the action."""
        return self.get_action(run_id, action_id) is not None

    def get_action(self, run_id: str, action_id: str) -> IndexedAction | None:
        """Return an action from the buffer or the index, or None."""
        key = (run_id, action_id)
        if key not in self._actions:
            found = self._connection.execute(_SELECT_ACTION, key).fetchone()
            if found is None:
                return None
            self._actions[key] = msgspec.convert(dict(zip(_ACTION_FIELDS, found, strict=True)), IndexedAction)
        return self._actions[key]

    def find_asked_at(self, run: IndexedRun, action_id: str) -> int:
        """Return when a question was asked; 0 when it never was."""
        action = self.get_action(run.run_id, action_id)
        return action.asked_at if action else 0

    def add_action(self, action: IndexedAction) -> None:
        """Add an action to the buffer."""
        self._actions[action.run_id, action.action_id] = action

    def mark_unanswered(self, run_id: str) -> None:
        """Mark the open questions of an ended run as unanswered."""
        for (action_id,) in self._connection.execute(_SELECT_PENDING, (run_id,)).fetchall():
            self.get_action(run_id, action_id)
        for action in self._actions.values():
            if action.run_id == run_id and action.state is ActionState.PENDING:
                action.status = UNANSWERED_STATUS

    def save(self) -> None:
        """Write all buffered rows to the index."""
        updated: list[tuple[object, ...]] = []
        replaced: list[tuple[object, ...]] = []
        for run in self._runs.values():
            if self._stored.get(run.run_id) == _get_stable(run):
                updated.append(_get_changing(run))
            else:
                replaced.append(_to_run_values(run))
        self._connection.executemany(_UPDATE_RUN, updated)
        self._connection.executemany(_UPSERT_RUN, replaced)
        self._connection.executemany(_UPSERT_ACTION, map(msgspec.structs.astuple, self._actions.values()))


def _to_run_values(run: IndexedRun) -> tuple[object, ...]:
    return *msgspec.structs.astuple(run), RUN_STATUS[run.state], bool(run.parent), list_search_words(run)


def save_damage(connection: sqlite3.Connection, runs: Iterable[DamagedRun]) -> None:
    """Show runs as damaged, and closed ones as over."""
    rows = RowBuffer(connection)
    for damaged in runs:
        run = rows.get_run(damaged.run_id)
        if run is None:
            continue
        mark_damaged(run, rows, max(run.last_seq, 0), damaged.problem)
        run.message = truncate(damaged.message, MAX_TEXT_CHARS)
        if damaged.closed_by:
            run.state = RunState.CANCELLED
    rows.save()


def forget_runs(connection: sqlite3.Connection, run_ids: Sequence[str]) -> None:
    """Delete and overwrite what the index knows of runs."""
    connection.execute("PRAGMA secure_delete = ON")
    for statement in _FORGET:
        connection.executemany(statement, [(run_id,) for run_id in run_ids])


def save_rollups(connection: sqlite3.Connection, rollups: Rollups) -> None:
    """Add sums to the figures of their hours and days."""
    connection.executemany(_ADD_ROLLUP, ((*key, *sums) for key, sums in rollups.items()))


def save_activity(connection: sqlite3.Connection, page: Sequence[LiveEvent]) -> None:
    """Add events to the recent activity, and now and then delete the oldest above the limit."""
    rows = [msgspec.structs.astuple(row)[:-2] for live in page for row in list_activity_rows(live)]
    connection.executemany(_INSERT_ACTIVITY, rows)
    if page[0].position // ACTIVITY_TRIM_SLACK != page[-1].position // ACTIVITY_TRIM_SLACK:
        connection.execute(_TRIM, (activity.MAX_ACTIVITY_ROWS,))
