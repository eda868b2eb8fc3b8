"""The projection of events to index rows: one small function per event type, without folding.

Rows are read at the first event of a page that touches them, and written once at its end. The states come from the
tables of `domain/state/lifecycle`, so they are those of the run's ledger. An event that cannot be read or does not fit
marks the row of its run and changes nothing else: what comes after it is applied as far as it fits, and other runs are
not affected. Recent activity in all runs is kept, too: the last few thousand events.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from ....domain import event as facts
from ....domain.errors import IllegalTransitionError
from ....domain.event import Event
from ....domain.json import JsonObject
from ....domain.rendering import truncate
from ....domain.state.lifecycle import (
    ACTION_TRANSITIONS,
    RUN_STATUS,
    RUN_TRANSITIONS,
    ActionState,
    RunState,
    next_state,
)
from ....history.run_view import to_run_events
from ....rendering.events import present_event
from ....rendering.run_states import RunKind
from ..live.live_event import LiveEvent
from .rows import MAX_TEXT_CHARS, DamagedRun

#: The status by which lists find a question that was never answered, in a run that is over: it needs no answer.
UNANSWERED_STATUS = "LEFT"
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
    framework: str = ""
    kind: RunKind = RunKind.AGENT
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
        """Return a run from the buffer or the index, or None."""
        if run_id not in self._runs:
            found = self._connection.execute(_SELECT_RUN, (run_id,)).fetchone()
            if found is None:
                return None
            self._runs[run_id] = msgspec.convert(dict(zip(_RUN_FIELDS, found, strict=True)), IndexedRun, strict=False)
        return self._runs[run_id]

    def add_run(self, run: IndexedRun) -> IndexedRun:
        """Add a run to the buffer."""
        self._runs[run.run_id] = run
        return run

    def get_action(self, run_id: str, action_id: str) -> IndexedAction | None:
        """Return an action from the buffer or the index, or None."""
        key = (run_id, action_id)
        if key not in self._actions:
            found = self._connection.execute(_SELECT_ACTION, key).fetchone()
            if found is None:
                return None
            self._actions[key] = msgspec.convert(dict(zip(_ACTION_FIELDS, found, strict=True)), IndexedAction)
        return self._actions[key]

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


_encode = msgspec.json.Encoder().encode


class _EventContext(NamedTuple):
    """An event in its place, with the rows that it changes."""

    event: Event
    position: int
    run: IndexedRun
    rows: RowBuffer


def apply_event(live: LiveEvent, rows: RowBuffer) -> IndexedRun:
    """Apply an event to the rows, and return the row of its run, damaged or not."""
    entry, event = live.entry, live.event
    run_id = str(entry.run_id)  # a file edited by hand may have anything there
    run = rows.get_run(run_id) or rows.add_run(IndexedRun(number=live.position, run_id=run_id))
    expected = run.last_seq + 1
    if entry.seq != expected:
        _mark_damaged(run, rows, expected, f"event {entry.seq} comes in its place")
    run.last_seq = entry.seq if type(entry.seq) is int else expected
    if event is None:
        _mark_damaged(run, rows, run.last_seq, live.problem)
        return run
    run.updated_at = clamp_integer(event.at)
    run.created_at = run.created_at or run.updated_at
    try:
        handler = _HANDLERS.get(type(event.fact))
        if handler is not None:
            handler(_EventContext(event, live.position, run, rows), event.fact)
    except IllegalTransitionError as error:
        _mark_damaged(run, rows, entry.seq, str(error))
    return run


def apply_damage(damaged: DamagedRun, rows: RowBuffer) -> None:
    """Apply to the rows that a run is damaged, and that it was closed, if it was."""
    run = rows.get_run(damaged.run_id)
    if run is None:
        return
    _mark_damaged(run, rows, max(run.last_seq, 0), damaged.problem)
    run.message = truncate(damaged.message, MAX_TEXT_CHARS)
    if damaged.closed_by:
        run.state = RunState.CANCELLED


def _mark_damaged(run: IndexedRun, rows: RowBuffer, seq: int, reason: str) -> None:
    """Mark the run as damaged, and take its questions out of the lists: they cannot be answered."""
    run.mark_damaged(seq, reason)
    run.open_questions = 0
    rows.mark_unanswered(run.run_id)


def _apply_run_started(context: _EventContext, fact: facts.RunStarted) -> None:
    run = context.run
    if run.begun:
        raise IllegalTransitionError(f"{run.run_id} started twice")
    if fact.schema > facts.SCHEMA_VERSION:
        raise IllegalTransitionError(f"it was written with event schema {fact.schema}, which is newer than this server")
    run.begun = True
    run.agent, run.parent = fact.agent, fact.parent_run_id
    run.framework = truncate(fact.settings.get("framework", ""), MAX_TEXT_CHARS)
    run.kind = RunKind.SESSION if fact.is_session else RunKind.AGENT
    # A child run acts for the same user as its parent.
    parent = context.rows.get_run(fact.parent_run_id) if fact.parent_run_id else None
    run.requester = fact.requester or (parent.requester if parent else "")
    run.created_by = fact.created_by or (parent.created_by if parent else "")


def _apply_user_said(context: _EventContext, fact: facts.UserMessageReceived) -> None:
    context.run.task = context.run.task or truncate(fact.text, MAX_TEXT_CHARS)


def _apply_run_paused(context: _EventContext, fact: facts.RunPaused) -> None:
    context.run.state = next_state(RUN_TRANSITIONS, context.run.state, f"paused for {fact.kind}")


def _apply_run_resumed(context: _EventContext, fact: facts.RunResumed) -> None:
    context.run.state = next_state(RUN_TRANSITIONS, context.run.state, facts.event_type(fact))


def _apply_run_ended(
    context: _EventContext, fact: facts.RunCompleted | facts.RunDegraded | facts.RunFailed | facts.RunCancelled
) -> None:
    run = context.run
    run.state = next_state(RUN_TRANSITIONS, run.state, facts.event_type(fact))
    if run.damaged_at < 0:
        run.message = truncate(fact.message, MAX_TEXT_CHARS)
    run.open_questions = 0
    context.rows.mark_unanswered(run.run_id)


def _apply_question_asked(
    context: _EventContext, fact: facts.ApprovalRequested | facts.InputRequested | facts.ConsentRequested
) -> None:
    question, run = fact.question, context.run
    if context.rows.get_action(run.run_id, question.action_id) is not None:
        raise IllegalTransitionError(f"{question.action_id} was asked twice")
    is_open = not run.state.is_over and run.damaged_at < 0
    context.rows.add_action(
        IndexedAction(
            number=context.position,
            action_id=question.action_id,
            run_id=run.run_id,
            status=ActionState.PENDING.name if is_open else UNANSWERED_STATUS,
            agent=run.agent,
            requester=run.requester,
            created_by=run.created_by,
            call_id=question.call_id,
            tool=question.tool_name,
            capability=question.capability,
            kind=question.kind,
            payload_hash=question.payload_hash,
            risk=_encode(question.risk).decode(),
            asked_at=clamp_integer(question.asked_at),
            expires_at=clamp_integer(question.expires_at),
            asked_seq=context.event.seq,
        )
    )
    run.open_questions += is_open


def _apply_granted(context: _EventContext, fact: Any) -> None:
    _apply_decision(context, fact, "granted")


def _apply_rejected(context: _EventContext, fact: Any) -> None:
    _apply_decision(context, fact, "rejected")


def _apply_expired(context: _EventContext, fact: Any) -> None:
    _apply_decision(context, fact, "expired")


def _apply_decision(context: _EventContext, fact: Any, transition: str) -> None:
    action = _transition_action(context, fact.action_id, transition)
    action.decided_at, action.decided_by = clamp_integer(context.event.at), fact.answer.by


def _apply_action_voided(context: _EventContext, fact: facts.ApprovalVoided) -> None:
    _transition_action(context, fact.action_id, "voided")


def _apply_invocation_started(context: _EventContext, fact: facts.InvocationStarted) -> None:
    if fact.action_id:
        _transition_action(context, fact.action_id, "tool.invocation.started")


def _transition_action(context: _EventContext, action_id: str, transition: str) -> IndexedAction:
    action = context.rows.get_action(context.run.run_id, action_id)
    if action is None:
        raise IllegalTransitionError(f"{action_id} was never asked")
    state = next_state(ACTION_TRANSITIONS, action.state, transition)
    if action.status == ActionState.PENDING.name:
        context.run.open_questions -= 1
    action.state, action.status = state, state.name
    return action


_EventHandler = Callable[[_EventContext, Any], None]

#: Every other fact changes no row beyond its last event.
_HANDLERS = cast(
    Mapping[type, _EventHandler],
    {
        facts.RunStarted: _apply_run_started,
        facts.UserMessageReceived: _apply_user_said,
        facts.RunPaused: _apply_run_paused,
        facts.RunResumed: _apply_run_resumed,
        facts.RunCompleted: _apply_run_ended,
        facts.RunDegraded: _apply_run_ended,
        facts.RunFailed: _apply_run_ended,
        facts.RunCancelled: _apply_run_ended,
        facts.ApprovalRequested: _apply_question_asked,
        facts.InputRequested: _apply_question_asked,
        facts.ConsentRequested: _apply_question_asked,
        facts.ApprovalGranted: _apply_granted,
        facts.InputProvided: _apply_granted,
        facts.ConsentGranted: _apply_granted,
        facts.ApprovalRejected: _apply_rejected,
        facts.InputRefused: _apply_rejected,
        facts.ConsentRefused: _apply_rejected,
        facts.ApprovalExpired: _apply_expired,
        facts.InputExpired: _apply_expired,
        facts.ConsentExpired: _apply_expired,
        facts.ApprovalVoided: _apply_action_voided,
        facts.InvocationStarted: _apply_invocation_started,
    },
)


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
    """Add events to the recent activity and delete the oldest above the limit."""
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
