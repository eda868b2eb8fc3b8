"""What an append changes in the rows of lists, which are written in its transaction.

The process that appends works it out, so every process with this code keeps the rows right, and none has to catch up.
Most appends change nothing but the time of the last event, which needs no knowledge of the run. The others need its row
and its open questions: they come with the lease, as no other process can change them while it is in force.

A fault marks the row of its run as damaged, and never fails the append.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import psycopg

from ...domain.state.lifecycle import RUN_STATUS, ActionState
from ..leases import NO_TOKEN
from ..packing import unpack
from ..projection import (
    UNANSWERED_STATUS,
    IndexedAction,
    IndexedRun,
    apply_event,
    list_search_words,
    mark_damaged,
)
from .connection import Connection, execute
from .queries import QUERIES
from .run_state import ScannedEvent

#: An entry of an index in Postgres has at most 2,704 bytes, and a character up to 4.
_MAX_KEY_CHARS = 500
#: Violated when a question is asked that was asked before.
ASKED_ONCE = "indexed_actions_by_run"
#: Runs whose rows are known: more than a process has leases.
_MAX_KNOWN = 2_000

_RUN_FIELDS = IndexedRun.__struct_fields__
_ACTION_FIELDS = IndexedAction.__struct_fields__
_KEYS = frozenset({"agent", "requester", "created_by", "parent", "forked_from", "action_id"})
_encode = msgspec.json.Encoder().encode


class AppendedEvents(NamedTuple):
    """The events of one append, or of a whole run, in their order."""

    run_id: str
    token: int
    events: list[ScannedEvent]
    #: The place of each among those of its transaction, or its position.
    places: Sequence[int]


class IndexUpdate(NamedTuple):
    """Rows as parameters of the statement that appends: JSON, and None where there is none."""

    #: By run: whether rows are given that know all of its events.
    indexed: list[bool]
    indexed_runs: str | None
    asked: str | None
    answered: str | None

    @property
    def is_empty(self) -> bool:
        """True if no row of a list changes."""
        return self.indexed_runs is None


def rebuild(connection: Connection, number: int, run_id: str) -> tuple[IndexUpdate, int]:
    """Return the rows of a run, made again from all of its events, and the time of the last one."""
    rows = _Rows(connection, OrderedDict())
    run = rows.rebuild_run(number, run_id)
    return rows.build_update([True]), run.updated_at


class _KnownRun:
    """The row of a run, and its questions as far as they are known."""

    def __init__(self, run: IndexedRun, actions: dict[str, IndexedAction] | None = None) -> None:
        self.run = run
        self.actions = actions or {}
        self.asked: set[str] = set()
        self.answered: set[str] = set()


class RunIndexer:
    """Works out the rows of lists for the writer of a log. Used by one thread."""

    def __init__(self) -> None:
        #: By run, with the token of the lease under which they cannot change.
        self._known: OrderedDict[str, tuple[int, _KnownRun]] = OrderedDict()

    def project(self, connection: Connection, appends: Sequence[AppendedEvents], *, is_exact: bool) -> IndexUpdate:
        """Return the rows that these appends change. With `is_exact` nothing is taken from memory, and it is looked up
        whether a question was asked before; without, the statement fails if one was.
        """
        if is_exact:
            self._known.clear()
        rows = _Rows(connection, self._known, is_exact=is_exact)
        indexed = [_apply(append, rows) for append in appends]
        return rows.build_update(indexed)

    def remember(self, appends: Sequence[AppendedEvents], update: IndexUpdate, tokens: Mapping[str, int]) -> None:
        """Keep the rows of appends that were written, by the tokens of their leases, and forget those of others."""
        for append, is_indexed in zip(appends, update.indexed, strict=True):
            found = self._known.get(append.run_id)
            if not is_indexed or found is None:
                continue
            if (token := tokens.get(append.run_id, NO_TOKEN)) == NO_TOKEN:
                del self._known[append.run_id]
                continue
            known = found[1]
            self._known[append.run_id] = token, known
            known.asked, known.answered = set(), set()
            known.actions = {key: each for key, each in known.actions.items() if _can_change(each)}
            self._known.move_to_end(append.run_id)
        while len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)

    def learn(self, run_id: str, token: int, run: dict[str, Any] | None, actions: list[dict[str, Any]] | None) -> None:
        """Keep the rows of a run as they are when its lease is acquired: they cannot change while it is in force."""
        if run is not None:
            self._known[run_id] = token, _read_known(run_id, run, actions)
            self._known.move_to_end(run_id)
            if len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)

    def forget(self) -> None:
        """Forget all rows: it is unknown which of them were written."""
        self._known.clear()


class _Rows:
    """The rows that a group of appends touches."""

    def __init__(
        self,
        connection: Connection,
        known: OrderedDict[str, tuple[int, _KnownRun]],
        *,
        is_exact: bool = False,
        is_complete: bool = False,
    ) -> None:
        self._connection = connection
        self._known = known
        #: Look up whether a question was asked before.
        self._is_exact = is_exact
        #: All events of the run are applied, so the database knows no more.
        self._is_complete = is_complete
        self._touched: dict[str, _KnownRun] = {}

    def open_run(self, run_id: str, token: int, seq: int) -> None:
        """Make the row of a run known before its events, from `seq` on, are applied."""
        if seq == 0:
            known = _new_run(run_id)
        else:
            found = self._known.get(run_id)
            is_current = found is not None and found[0] == token != NO_TOKEN
            known = (found[1] if found and is_current else self._load(run_id)) or _new_run(run_id)
        self._known[run_id] = token, known
        self._touched[run_id] = known

    def rebuild_run(self, number: int, run_id: str) -> IndexedRun:
        """Make the rows of a run again, whether they are current or not."""
        self._touched[run_id] = known = self._project(number, run_id)
        return known.run

    def get_run(self, run_id: str) -> IndexedRun | None:
        """Return a run. One that is not appended to is the parent of one that is."""
        known = self._touched.get(run_id)
        if known is None:
            found = self._known.get(run_id)
            known = found[1] if found else self._load(run_id)
        return known.run if known else None

    def take_run(self, run_id: str) -> _KnownRun:
        """Return the rows of a run that events were applied to."""
        return self._touched[run_id]

    def add_run(self, run: IndexedRun) -> IndexedRun:
        """Add a run."""
        self._touched[run.run_id] = _KnownRun(run)
        return run

    def has_action(self, run_id: str, action_id: str) -> bool:
        """Return True if a question was asked before, as far as that is known."""
        if fit_key(action_id) in self._touched[run_id].actions:
            return True
        return self._is_exact and self.get_action(run_id, action_id) is not None

    def get_action(self, run_id: str, action_id: str) -> IndexedAction | None:
        """Return a question, or None. It is marked as changed."""
        known, key = self._touched[run_id], fit_key(action_id)
        if key not in known.actions and not self._is_complete:
            known.actions = self._load_actions(run_id) | known.actions
        known.answered.add(key)
        return known.actions.get(key)

    def add_action(self, action: IndexedAction) -> None:
        """Add a question that is asked."""
        known = self._touched[action.run_id]
        action.action_id = fit_key(action.action_id)
        known.actions[action.action_id] = action
        known.asked.add(action.action_id)

    def mark_unanswered(self, run_id: str) -> None:
        """Mark the open questions of a run as unanswered."""
        known = self._touched[run_id]
        for key, action in known.actions.items():
            if action.state is ActionState.PENDING:
                action.status = UNANSWERED_STATUS
                known.answered.add(key)

    def build_update(self, indexed: list[bool]) -> IndexUpdate:
        """Return the rows as parameters."""
        runs = [_to_run_values(known.run) for known in self._touched.values()]
        asked = [_to_action_values(known.actions[key]) for known in self._touched.values() for key in known.asked]
        answered = [
            _to_action_values(known.actions[key])
            for known in self._touched.values()
            for key in known.answered - known.asked
            if key in known.actions
        ]
        return IndexUpdate(indexed, *(_encode(rows).decode() if rows else None for rows in (runs, asked, answered)))

    def _load(self, run_id: str) -> _KnownRun | None:
        values = {"run_id": run_id, "are_all": False}
        row = execute(self._connection, QUERIES["load_indexed_run"], values).fetchone()
        if row is None:
            return None
        number, is_current, run, actions = row
        return _read_known(run_id, run, actions) if is_current and run else self._project(number, run_id)

    def _project(self, number: int, run_id: str) -> _KnownRun:
        """Make the rows of a run again, from all of its events."""
        rows = _Rows(self._connection, OrderedDict(), is_complete=True)
        found = execute(self._connection, QUERIES["read_positions"], (number,)).fetchall()
        entries = [
            (entry, position + place)
            for position, seq, count, bodies, hashes in found
            for place, entry in enumerate(unpack(run_id, seq, count, bytes(bodies), bytes(hashes)))
        ]
        if not entries:  # they were archived
            return _new_run(run_id)
        events = [ScannedEvent(entry) for entry, _ in entries]
        _apply(AppendedEvents(run_id, NO_TOKEN, events, [place for _, place in entries]), rows)
        known = rows.take_run(run_id)
        known.run.updated_at = next((event.at for event in reversed(events) if event.at), 0)
        stored = self._load_actions(run_id).keys()
        known.asked, known.answered = known.actions.keys() - stored, known.actions.keys() & stored
        return known

    def _load_actions(self, run_id: str) -> dict[str, IndexedAction]:
        values = {"run_id": run_id, "are_all": True}
        row = execute(self._connection, QUERIES["load_indexed_run"], values).fetchone()
        return _read_actions(run_id, row[3]) if row else {}


def _new_run(run_id: str) -> _KnownRun:
    return _KnownRun(IndexedRun(number=0, run_id=run_id))


def _read_known(run_id: str, run: dict[str, Any], actions: list[dict[str, Any]] | None) -> _KnownRun:
    found = msgspec.convert({**run, "run_id": run_id}, IndexedRun)
    return _KnownRun(found, _read_actions(run_id, actions))


def _read_actions(run_id: str, actions: list[dict[str, Any]] | None) -> dict[str, IndexedAction]:
    found = [msgspec.convert({**action, "run_id": run_id}, IndexedAction) for action in actions or ()]
    return {action.action_id: action for action in found}


def _apply(append: AppendedEvents, rows: _Rows) -> bool:
    """Apply events to rows. Return False where they change none, so that the rows need not be known."""
    events, seq = append.events, append.events[0].entry.seq
    if seq and not any(event.is_indexed for event in events):
        return False
    rows.open_run(append.run_id, append.token, seq)
    run = rows.take_run(append.run_id).run
    for event, place in zip(events, append.places, strict=True):
        if event.is_indexed or event.entry.seq == 0:
            run.last_seq = event.entry.seq - 1
            try:
                apply_event(event.entry, event.event, event.problem, place, rows)
            except psycopg.Error:
                raise
            except Exception as error:
                mark_damaged(run, rows, event.entry.seq, f"its row cannot be made: {error}")
    run.last_seq = events[-1].entry.seq
    return True


def _can_change(action: IndexedAction) -> bool:
    return action.state in (ActionState.PENDING, ActionState.APPROVED)


def fit_key(text: str) -> str:
    """Return a text that can be an entry of an index. One that is too long, or that Postgres cannot store, is cut, and
    named by its digest.
    """
    if len(text) <= _MAX_KEY_CHARS and clean_text(text) == text:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    return f"{clean_text(text)[: _MAX_KEY_CHARS - 100]} sha256:{digest}"


def clean_text(text: str) -> str:
    """Return a text without what Postgres cannot store."""
    if text.isascii():
        return text.replace("\0", "\ufffd")
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


def _to_run_values(run: IndexedRun) -> dict[str, object]:
    values = _to_values(run, _RUN_FIELDS)
    return values | {
        "status": RUN_STATUS[run.state],
        "inside": int(bool(run.parent)),
        "words": clean_text(list_search_words(run)),
    }


def _to_action_values(action: IndexedAction) -> dict[str, object]:
    return _to_values(action, _ACTION_FIELDS)


def _to_values(row: IndexedRun | IndexedAction, names: Sequence[str]) -> dict[str, object]:
    values = {name: getattr(row, name) for name in names}
    return {
        name: (fit_key(value) if name in _KEYS else clean_text(value)) if isinstance(value, str) else value
        for name, value in values.items()
    }
