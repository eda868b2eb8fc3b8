"""The index rows touched by a page of events: read at the first event that touches them, and written once at the end of
the page.
"""

import sqlite3
from collections.abc import Iterable

import msgspec

from ....domain.rendering import truncate
from ....domain.state.lifecycle import RUN_STATUS, ActionState, RunState

#: The status by which lists find a question that was never answered, in a run that is over: it needs no answer.
UNANSWERED_STATUS = "LEFT"
MAX_TEXT_CHARS = 300
_MAX_INTEGER = (1 << 63) - 1


class IndexedRun(msgspec.Struct, kw_only=True):
    """The indexed state of a run."""

    #: The position of its first event.
    number: int
    run_id: str
    state: RunState = RunState.RUNNING
    agent: str = ""
    requester: str = ""
    created_by: str = ""
    parent: str = ""
    task: str = ""
    message: str = ""
    created_at: int = 0
    updated_at: int = 0
    last_seq: int = -1
    open_questions: int = 0
    begun: bool = False
    #: The first event that could not be read or did not fit; -1: none.
    damaged_at: int = -1

    def mark_damaged(self, seq: int, reason: str) -> None:
        """Mark the run as damaged. The first damage is kept; later ones may be its consequence."""
        if self.damaged_at < 0:
            self.damaged_at = seq
            self.message = truncate(f"The log of this run is damaged at event {seq}: {reason}.", MAX_TEXT_CHARS)


class IndexedAction(msgspec.Struct, kw_only=True):
    """The indexed state of a question."""

    number: int
    action_id: str
    run_id: str
    state: ActionState = ActionState.PENDING
    status: str = ActionState.PENDING.name
    agent: str
    requester: str
    created_by: str
    call_id: str
    tool: str
    capability: str
    kind: str
    payload_hash: str
    risk: str
    asked_at: int
    expires_at: int
    asked_seq: int
    decided_at: int = 0
    decided_by: str = ""


_RUN_FIELDS = IndexedRun.__struct_fields__
_ACTION_FIELDS = IndexedAction.__struct_fields__
_RUN_EXTRA = ("status", "inside", "words")


def _build_upsert(table: str, columns: Iterable[str]) -> str:
    columns = tuple(columns)
    marks, changed = ", ".join("?" * len(columns)), ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608  # names of our own
        f" ON CONFLICT (number) DO UPDATE SET {changed}"
    )


_SELECT_RUN = f"SELECT {', '.join(_RUN_FIELDS)} FROM runs WHERE run_id = ?"  # noqa: S608
_SELECT_ACTION = f"SELECT {', '.join(_ACTION_FIELDS)} FROM actions WHERE run_id = ? AND action_id = ?"  # noqa: S608
_SELECT_PENDING = "SELECT action_id FROM actions WHERE run_id = ? AND state = 'pending'"
_UPSERT_RUN = _build_upsert("runs", (*_RUN_FIELDS, *_RUN_EXTRA))
_UPSERT_ACTION = _build_upsert("actions", _ACTION_FIELDS)


class RowBuffer:
    """The rows that one page of events touches."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._runs: dict[str, IndexedRun] = {}
        self._actions: dict[tuple[str, str], IndexedAction] = {}

    def get_run(self, run_id: str) -> IndexedRun | None:
        if run_id not in self._runs:
            found = self._connection.execute(_SELECT_RUN, (run_id,)).fetchone()
            if found is None:
                return None
            self._runs[run_id] = msgspec.convert(dict(zip(_RUN_FIELDS, found, strict=True)), IndexedRun, strict=False)
        return self._runs[run_id]

    def add_run(self, run: IndexedRun) -> IndexedRun:
        self._runs[run.run_id] = run
        return run

    def get_action(self, run_id: str, action_id: str) -> IndexedAction | None:
        key = (run_id, action_id)
        if key not in self._actions:
            found = self._connection.execute(_SELECT_ACTION, key).fetchone()
            if found is None:
                return None
            self._actions[key] = msgspec.convert(dict(zip(_ACTION_FIELDS, found, strict=True)), IndexedAction)
        return self._actions[key]

    def add_action(self, action: IndexedAction) -> None:
        self._actions[action.run_id, action.action_id] = action

    def mark_unanswered(self, run_id: str) -> None:
        """Mark the open questions of an ended run as unanswered."""
        for (action_id,) in self._connection.execute(_SELECT_PENDING, (run_id,)).fetchall():
            self.get_action(run_id, action_id)
        for action in self._actions.values():
            if action.run_id == run_id and action.state is ActionState.PENDING:
                action.status = UNANSWERED_STATUS

    def save(self) -> None:
        self._connection.executemany(_UPSERT_RUN, map(_to_run_values, self._runs.values()))
        self._connection.executemany(_UPSERT_ACTION, map(msgspec.structs.astuple, self._actions.values()))


def clamp_integer(value: int) -> int:
    """Limit an integer to 64 bits: a log edited by hand may have any number."""
    return min(max(value, -1), _MAX_INTEGER)


def normalize_search_text(text: str) -> str:
    """Return text in the form used for search: case-insensitive."""
    return text.casefold()


def _to_run_values(run: IndexedRun) -> tuple[object, ...]:
    words = normalize_search_text(f"{run.task}\n{run.run_id}")
    return *msgspec.structs.astuple(run), RUN_STATUS[run.state], bool(run.parent), words
