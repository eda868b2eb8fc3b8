"""Pages of the index: how a query becomes one statement that reads no more rows than it needs.

A list is narrowed by one of several things that have an index of their own: a column that must have a value, together
with a status (`runs_by_agent` is agent, status, number). What it is narrowed by is the *lead*; a query over three
agents and two statuses has six of them. Each lead yields numbers in order, SQLite merges them, and stops when the page
is full. Everything else that is asked for is looked at row by row; a plus before a column keeps SQLite from taking its
index.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ....domain.errors import ConfigurationError
from ....domain.state.lifecycle import RUN_STATUS, ActionState, RunState
from .indexed import LEFT, searched
from .rows import ActionQuery, ActionRow, RunQuery, RunRow

MAX_LIMIT = 1_000
#: With more of them a scan in order is cheaper.
_MAX_LEADS = 60
_MAX_WORDS = 8
_MAX_CURSOR_CHARS = 32
_MAX_NUMBER = (1 << 63) - 1

KINDS = ("approval", "input", "consent")
RUN_WORDS = tuple(sorted(frozenset(RUN_STATUS.values())))
_ACTION_WORDS = (*(state.name for state in ActionState), LEFT)

RUN_COLUMNS = (
    "run_id, agent, state, requester, created_by, parent, task, message, created_at, updated_at, last_seq,"
    " open_questions"
)
ACTION_COLUMNS = (
    "action_id, run_id, agent, requester, created_by, call_id, tool, capability, kind, payload_hash, state, risk,"
    " asked_at, expires_at, asked_seq, decided_at, decided_by"
)


Value: TypeAlias = str | int


class BadCursorError(ConfigurationError):
    """A cursor that no page of this list has given out."""


class Statement(NamedTuple):
    """Its first column is the number of the row, the rest is what `run_row` and `action_row` take."""

    sql: str
    parameters: tuple[Value, ...]
    #: How many rows the page has at most; the statement finds one more when there is another page.
    limit: int


class _Table(NamedTuple):
    name: str
    columns: str
    order: str


_RUNS = _Table("runs", RUN_COLUMNS, "DESC")
_ACTIONS = _Table("actions", ACTION_COLUMNS, "ASC")


class _Condition(NamedTuple):
    sql: str
    parameters: tuple[Value, ...] = ()


def page_of_runs(query: RunQuery) -> Statement:
    rest = [
        *([] if query.inside or query.parent_run_id is not None else [_Condition("inside = 0")]),
        *_equal("requester", query.requester),
        *_equal("agent", query.agent),
        *_worded(query.text),
        *_visible(query.agents, query.person),
    ]
    if query.parent_run_id is not None:
        leads = [_Condition("parent = ? AND parent != ''", (query.parent_run_id,))]
        rest += _any_of("status", query.statuses)
    else:
        lead = _lead(("requester", query.requester), ("agent", query.agent))
        leads = _leads(lead or _owners(query.agents, query.person), query.statuses, RUN_WORDS)
    at = _number_in(query.cursor)
    rest += [_Condition("number < ?", (at,))] if at else []
    return _statement(_RUNS, leads, rest, query.limit)


def page_of_actions(query: ActionQuery) -> Statement:
    rest = [
        *_any_of("kind", query.kinds),
        *_equal("agent", query.agent),
        *_visible(query.agents, query.person),
    ]
    if query.run_id is not None:
        leads = [_Condition("run_id = ?", (query.run_id,))]
        states = None if query.statuses is None else {word.lower() for word in query.statuses}
        rest += _any_of("state", states)
    else:
        lead = _lead(("agent", query.agent))
        leads = _leads(lead or _owners(query.agents, query.person), query.statuses, _ACTION_WORDS)
    at = _number_in(query.cursor)
    rest += [_Condition("number > ?", (at,))] if at else []
    return _statement(_ACTIONS, leads, rest, query.limit)


def visible(agents: Collection[str] | None, person: str | None) -> _Condition:
    """Of these agents, or of this person; without both: all."""
    (condition,) = _visible(agents, person) or [_Condition("1")]
    return condition


def visible_parts(agents: Collection[str] | None, person: str | None) -> list[_Condition]:
    """The same in parts that have no row in common, each with an index of its own."""
    if agents is None and person is None:
        return [_Condition("1")]
    owned = tuple(sorted(agents or ()))
    parts = [_Condition("agent = ?", (agent,)) for agent in owned]
    if person is not None:
        others = f"+agent NOT IN ({_marks(owned)})"
        parts += [
            _Condition(f"requester = ? AND {others}", (person, *owned)),
            _Condition(f"created_by = ? AND +requester != ? AND {others}", (person, person, *owned)),
        ]
    return parts


def sees(agents: Collection[str] | None, person: str | None, row: RunRow) -> bool:
    """The same rule for one run."""
    if agents is None and person is None:
        return True
    return row.agent in (agents or ()) or (person is not None and person in (row.requester, row.created_by))


def bound(values: Iterable[Value]) -> list[Value | bytes]:
    """As SQLite takes them. Text that is no UTF-8 cannot be in a row: as bytes it is equal to none."""
    return [value if isinstance(value, int) else _text_or_bytes(value) for value in values]


def _text_or_bytes(text: str) -> str | bytes:
    raw = text.encode(errors="surrogatepass")
    return text if raw.decode(errors="replace") == text else raw


def cursor_at(number: int) -> str:
    return urlsafe_b64encode(b"%d" % number).decode().rstrip("=")


def run_row(row: Sequence[Any]) -> RunRow:
    run_id, agent, state, requester, created_by, parent, task, message, created_at, updated_at, last_seq, count = row
    return RunRow(
        run_id=run_id,
        agent=agent,
        state=RunState(state),
        requester=requester,
        created_by=created_by,
        parent_run_id=parent,
        task=task,
        message=message,
        created_at=created_at,
        updated_at=updated_at,
        last_seq=last_seq,
        open_questions=count,
    )


_ACTION_FIELDS = tuple(ACTION_COLUMNS.split(", "))
_decode_risk = msgspec.json.Decoder(tuple[str, ...]).decode


def action_row(row: Sequence[Any]) -> ActionRow:
    told: dict[str, Any] = dict(zip(_ACTION_FIELDS, row, strict=True))
    told["state"], told["risk"] = ActionState(told["state"]), _decode_risk(told["risk"])
    return ActionRow(**told)


def _lead(*given: tuple[str, str | None]) -> list[tuple[str, str]]:
    return [(column, value) for column, value in given if value is not None][:1]


def _owners(agents: Collection[str] | None, person: str | None) -> list[tuple[str, str]] | None:
    """Whose rows are asked for; None: everybody's."""
    if agents is None and person is None:
        return None
    people = [] if person is None else [("requester", person), ("created_by", person)]
    return [*(("agent", agent) for agent in sorted(agents or ())), *people]


def _leads(
    owners: list[tuple[str, str]] | None, statuses: Collection[str] | None, words: Sequence[str]
) -> list[_Condition]:
    """One for each owner and status. No owner or no status at all: no row."""
    known = words if statuses is None else [word for word in words if word in statuses]
    if owners is None:
        return [_Condition("1")] if statuses is None else [_Condition("status = ?", (word,)) for word in known]
    if len(owners) * len(known) > _MAX_LEADS:
        return [_Condition(f"+status IN ({_marks(known)})", tuple(known))]
    return [_Condition(f"{column} = ? AND status = ?", (value, word)) for column, value in owners for word in known]


def _statement(table: _Table, leads: Sequence[_Condition], rest: Sequence[_Condition], limit: int) -> Statement:
    limit = max(1, min(limit, MAX_LIMIT))
    leads = leads or [_Condition("0")]
    narrowed = " AND ".join(["", *(condition.sql for condition in rest)])
    numbers = " UNION ".join(
        f"SELECT number FROM {table.name} WHERE {lead.sql}{narrowed}"  # noqa: S608  # what people say is a parameter
        for lead in leads
    )
    given = [value for lead in leads for each in (lead, *rest) for value in each.parameters]
    sql = (
        f"SELECT number, {table.columns} FROM {table.name}"  # noqa: S608
        f" WHERE number IN ({numbers} ORDER BY number {table.order} LIMIT ?) ORDER BY number {table.order}"
    )
    return Statement(sql, (*given, limit + 1), limit)


def _equal(column: str, value: str | None) -> list[_Condition]:
    return [] if value is None else [_Condition(f"+{column} = ?", (value,))]


def _any_of(column: str, values: Collection[str] | None) -> list[_Condition]:
    return [] if values is None else [_Condition(f"+{column} IN ({_marks(values)})", tuple(sorted(values)))]


def _worded(text: str | None) -> list[_Condition]:
    """Every word is somewhere in it."""
    return [_Condition("instr(words, ?) > 0", (searched(word),)) for word in (text or "").split()[:_MAX_WORDS]]


def _visible(agents: Collection[str] | None, person: str | None) -> list[_Condition]:
    if agents is None and person is None:
        return []
    owned = sorted(agents or ())
    who = ["" if person is None else person] * 2
    people = "" if person is None else " OR +requester = ? OR +created_by = ?"
    return [_Condition(f"(+agent IN ({_marks(owned)}){people})", (*owned, *(who if people else ())))]


def _marks(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


def _number_in(cursor: str) -> int:
    """Where the page begins; 0: at the start."""
    if not cursor:
        return 0
    try:
        if len(cursor) > _MAX_CURSOR_CHARS:
            raise ValueError
        text = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        number = int(text) if text.isdigit() else 0
    except (ValueError, binascii.Error):
        number = 0
    if not 0 < number <= _MAX_NUMBER or cursor_at(number) != cursor:
        raise BadCursorError("The cursor is none that a page of this list has given out. Begin without one.")
    return number
