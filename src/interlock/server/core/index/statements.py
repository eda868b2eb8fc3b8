"""Pages of the index: how a query becomes one statement that reads no more rows than it needs.

A list is narrowed by one of several things that have their own index: a column that must have a value, together
with a status (`runs_by_agent` is agent, status, number). What it is narrowed by is the *lead*; a query over three
agents and two statuses has six of them. Each lead yields as many numbers as the page has, in order, so a page costs the
same in an index of any size. Everything else that is asked for is looked at row by row; a plus before a column keeps
SQLite from taking its index. The same statements read a file and Postgres: a `Dialect` has what differs.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ....domain.errors import ConfigurationError
from ....domain.state.lifecycle import RUN_STATUS, ActionState, RunState
from ....rendering.run_states import CODES_BY_STATE, DisplayState, RunKind
from ....storage.projection import UNANSWERED_STATUS
from ....storage.question_search import normalize_search_text, parse_search
from .rows import ActionOrder, ActionQuery, ActionRow, RunOrder, RunQuery, RunRow

MAX_LIMIT = 1_000
#: SQLite takes 500 parts in one compound statement. With more leads than this a scan in order is cheaper.
_MAX_PARTS = 400
_MAX_LEADS = 4_000
_MAX_SEARCH_WORDS = 8
_MAX_CURSOR_CHARS = 64
_MAX_NUMBER = (1 << 63) - 1

#: What runs are sorted by, none of it negative. A clock that was set back gives 0.
_DURATION = "(CASE WHEN updated_at > created_at THEN updated_at - created_at ELSE 0 END)"
_RUN_KEYS = {
    RunOrder.UPDATED: "updated_at",
    RunOrder.DURATION: _DURATION,
    RunOrder.TOKENS: "(input_tokens + output_tokens)",
    RunOrder.COST: "cost_nanos",
}
#: When a question expires; one that never does is last.
_DEADLINE = f"(CASE WHEN expires_at > 0 THEN expires_at ELSE {_MAX_NUMBER} END)"

QUESTION_KINDS = ("approval", "input", "consent")
RUN_STATUSES = tuple(sorted(frozenset(RUN_STATUS.values())))
_ACTION_STATUSES = (*(state.name for state in ActionState), UNANSWERED_STATUS)

RUN_COLUMNS = (
    "run_id, agent, state, requester, created_by, parent, framework, kind, task, message, created_at, updated_at,"
    " last_seq, open_questions, damaged_at, code, input_tokens, output_tokens, cost_nanos"
)
ACTION_COLUMNS = (
    "action_id, run_id, agent, requester, created_by, call_id, tool, capability, title, kind, payload_hash, state,"
    " risk, asked_at, expires_at, asked_seq, decided_at, decided_by, rules"
)


#: A tuple is one parameter: a list of names (`Dialect.names`).
SqlValue: TypeAlias = str | int | float | tuple[str, ...]


class BadCursorError(ConfigurationError):
    """A cursor that no page of this list has given out."""


class Dialect(NamedTuple):
    """What differs between the databases of an index."""

    runs: str
    actions: str
    #: The tables that have what a list is narrowed by, but for the id of a question's run.
    run_leads: str
    action_leads: str
    placeholder: str
    #: Before a column: do not take its index.
    unindexed: str
    #: The function that finds one text in another.
    find: str
    true: str
    false: str
    #: After the name of a table: take this index.
    by_expiry: str
    #: The rows of a list of names that is one parameter, and a number of a question by its name.
    names: str
    number: str


SQLITE = Dialect(
    runs="runs",
    actions="actions",
    run_leads="runs",
    action_leads="actions",
    placeholder="?",
    unindexed="+",
    find="instr",
    true="1",
    false="0",
    by_expiry=" INDEXED BY actions_by_expiry",
    names="SELECT value FROM json_each(?)",
    number="(SELECT value FROM json_each(numbers) WHERE key = ?)",
)
POSTGRES = Dialect(
    runs="listed_runs",
    actions="listed_actions",
    run_leads="indexed_runs",
    action_leads="indexed_actions",
    placeholder="%s",
    unindexed="",
    find="strpos",
    true="true",
    false="false",
    by_expiry="",
    names="SELECT unnest(?::text[])",
    number="(numbers::jsonb ->> ?::text)::double precision",
)


class SqlStatement(NamedTuple):
    """A statement. Its first column is the number of the row, the rest is for `to_run_row` and `to_action_row`."""

    sql: str
    parameters: tuple[SqlValue, ...]
    #: How many rows the page has at most; the statement finds one more when there is another page.
    limit: int


class _Table(NamedTuple):
    name: str
    #: Where the numbers of a page are found.
    leads: str
    columns: str
    order: str


class SqlCondition(NamedTuple):
    """A condition for rows."""

    sql: str
    parameters: tuple[SqlValue, ...] = ()


class StatementBuilder:
    """Builds the statements of lists for one kind of database."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._all, self._none = SqlCondition(dialect.true), SqlCondition(dialect.false)

    def build_runs(self, query: RunQuery) -> SqlStatement:
        """Build the query for a list of runs."""
        rest = [
            *([] if query.include_child_runs or query.parent_run_id is not None else [SqlCondition("inside = 0")]),
            *self._build_equals("requester", query.requester),
            *self._build_equals("agent", query.agent),
            *self._build_equals("kind", query.kind),
            *self._build_states(query.states),
            *([] if query.started_since is None else [SqlCondition("created_at >= ?", (query.started_since,))]),
            *([] if query.started_before is None else [SqlCondition("created_at < ?", (query.started_before,))]),
            *self._build_text_search(query.text),
        ]
        if query.order in _RUN_KEYS:
            return self._build_by_key(query, rest)
        statuses = _narrow_statuses(query.statuses, query.states)
        sees_all = query.agents is None and query.person is None  # else the owners are the narrower lead
        kind = query.kind if sees_all else None
        lead = _take_first_given(("requester", query.requester), ("agent", query.agent), ("kind", kind))
        related = _take_first_given(("parent", query.parent_run_id), ("forked_from", query.forked_from))
        if related:
            leads = [SqlCondition(f"{column} = ? AND {column} != ''", (run_id,)) for column, run_id in related]
            rest += self._build_any_of("status", statuses)
        else:
            owners = lead or _list_owners(query.agents, query.person)
            leads = self._build_leads(owners, statuses, RUN_STATUSES)
        if lead or related or len(leads) == 1:  # else every lead says whose rows they are
            rest += self._build_visibility(query.agents, query.person)
        at, is_newest = _decode_cursor(query.cursor), query.order is RunOrder.NEWEST
        rest += [SqlCondition(f"number {'<' if is_newest else '>'} ?", (at,))] if at else []
        table = _Table(self._dialect.runs, self._dialect.run_leads, RUN_COLUMNS, "DESC" if is_newest else "ASC")
        return self._build_page(table, leads, rest, query.limit)

    def _build_by_key(self, query: RunQuery, rest: list[SqlCondition]) -> SqlStatement:
        """Build the query for runs by a figure, highest first. It sorts those that match."""
        key = _RUN_KEYS[query.order]
        conditions = [
            *rest,
            *self._build_any_of("status", query.statuses),
            *self._build_equals("parent", query.parent_run_id),
            *self._build_equals("forked_from", query.forked_from),
            *self._build_visibility(query.agents, query.person),
        ]
        if query.cursor:
            above, at = _decode_pair_cursor(query.cursor)
            conditions.append(SqlCondition(f"({key} < ? OR ({key} = ? AND number < ?))", (above - 1, above - 1, at)))
        limit = max(1, min(query.limit, MAX_LIMIT))
        where = " AND ".join(each.sql for each in conditions) or self._dialect.true
        sql = (
            f"SELECT number, {RUN_COLUMNS} FROM {self._dialect.runs} WHERE {where}"  # noqa: S608
            f" ORDER BY {key} DESC, number DESC LIMIT {limit + 1}"
        )
        return SqlStatement(self.render(sql), tuple(value for each in conditions for value in each.parameters), limit)

    def build_actions(self, query: ActionQuery) -> SqlStatement:
        """Build the query for a list of actions."""
        rest = [
            *self._build_any_of("kind", query.kinds),
            *self._build_equals("agent", query.agent),
            *self._build_equals("requester", query.requester),
            *self._build_equals("tool", query.tool),
            *self._build_contains("risk", query.risk),
            *self._build_contains("rules", query.rule),
            *([] if query.asked_before is None else [SqlCondition("asked_at <= ?", (query.asked_before,))]),
            *self._build_question_search(query.text),
            *self._build_names("action_id", query.action_ids),
            *self._build_names("action_id", query.other_than_ids, "NOT "),
        ]
        if query.order is ActionOrder.DEADLINE:
            return self._build_by_deadline(query, rest)
        lead = _take_first_given(("requester", query.requester), ("agent", query.agent))
        if query.run_id is not None:
            leads = [SqlCondition("run_id = ?", (query.run_id,))]
            states = None if query.statuses is None else {word.lower() for word in query.statuses}
            rest += self._build_any_of("state", states)
        else:
            owners = lead or _list_owners(query.agents, query.person)
            leads = self._build_leads(owners, query.statuses, _ACTION_STATUSES)
        if lead or query.run_id is not None or len(leads) == 1:  # else every lead says whose rows they are
            rest += self._build_visibility(query.agents, query.person)
        at, is_newest = _decode_cursor(query.cursor), query.order is ActionOrder.NEWEST
        rest += [SqlCondition(f"number {'<' if is_newest else '>'} ?", (at,))] if at else []
        found_in = self._dialect.action_leads if query.run_id is None else self._dialect.actions
        table = _Table(self._dialect.actions, found_in, ACTION_COLUMNS, "DESC" if is_newest else "ASC")
        return self._build_page(table, leads, rest, query.limit)

    def _build_by_deadline(self, query: ActionQuery, rest: list[SqlCondition]) -> SqlStatement:
        """Build the query for open questions by deadline. It sorts those that are open, however many are answered."""
        conditions = [
            SqlCondition("status = 'PENDING'"),
            *([] if query.run_id is None else [SqlCondition("run_id = ?", (query.run_id,))]),
            *rest,
            *self._build_visibility(query.agents, query.person),
        ]
        if query.cursor:
            due, at = _decode_pair_cursor(query.cursor)
            conditions.append(SqlCondition(f"({_DEADLINE} > ? OR ({_DEADLINE} = ? AND number > ?))", (due, due, at)))
        limit = max(1, min(query.limit, MAX_LIMIT))
        sql = (
            f"SELECT number, {ACTION_COLUMNS} FROM {self._dialect.actions}"  # noqa: S608
            f" WHERE {' AND '.join(each.sql for each in conditions)} ORDER BY {_DEADLINE}, number LIMIT {limit + 1}"
        )
        return SqlStatement(self.render(sql), tuple(value for each in conditions for value in each.parameters), limit)

    def build_counts(
        self, column: str, rows: str, agents: Collection[str] | None, person: str | None
    ) -> list[SqlCondition]:
        """Build the queries that count these rows by a column: one for each disjoint part, with its own index."""
        return [
            self._render(f"SELECT {column}, count(*) FROM {rows} AND {part.sql} GROUP BY {column}", part.parameters)  # noqa: S608
            for part in self._build_disjoint_visibility(agents, person)
        ]

    def build_visibility_condition(self, agents: Collection[str] | None, person: str | None) -> SqlCondition:
        """Return the condition for these agents, or this person; without both: all."""
        (condition,) = self._build_visibility(agents, person) or [self._all]
        return self._render(*condition)

    def render(self, sql: str) -> str:
        """Return a statement with the placeholders of the database."""
        return sql.replace("?", self._dialect.placeholder)

    def _render(self, sql: str, parameters: tuple[SqlValue, ...]) -> SqlCondition:
        return SqlCondition(self.render(sql), parameters)

    def _build_disjoint_visibility(self, agents: Collection[str] | None, person: str | None) -> list[SqlCondition]:
        if agents is None and person is None:
            return [self._all]
        owned = tuple(sorted(agents or ()))
        parts = [SqlCondition("agent = ?", (agent,)) for agent in owned]
        if person is not None:
            plus = self._dialect.unindexed
            others = f"{plus}agent NOT IN ({_build_placeholders(owned)})" if owned else self._dialect.true
            parts += [
                SqlCondition(f"requester = ? AND {others}", (person, *owned)),
                SqlCondition(f"created_by = ? AND {plus}requester != ? AND {others}", (person, person, *owned)),
            ]
        return parts

    def _build_leads(
        self, owners: list[tuple[str, str]] | None, statuses: Collection[str] | None, all_statuses: Sequence[str]
    ) -> list[SqlCondition]:
        """Build a condition for each owner and status. Without owners or statuses there is no row."""
        known = all_statuses if statuses is None else [word for word in all_statuses if word in statuses]
        if owners is None:
            return [self._all] if statuses is None else [SqlCondition("status = ?", (word,)) for word in known]
        if len(owners) * len(known) > _MAX_LEADS:
            return self._build_any_of("status", known)
        return [
            SqlCondition(f"{column} = ? AND status = ?", (value, word)) for column, value in owners for word in known
        ]

    def _build_page(
        self, table: _Table, leads: Sequence[SqlCondition], rest: Sequence[SqlCondition], limit: int
    ) -> SqlStatement:
        limit = max(1, min(limit, MAX_LIMIT))
        leads = leads or [self._none]
        # As a number and not as a parameter: a plan for any limit expects a tenth of the table.
        in_order = f"ORDER BY number {table.order} LIMIT {limit + 1}"
        narrowed = "".join(f" AND {condition.sql}" for condition in rest)
        numbers = [
            f"SELECT number FROM (SELECT number FROM {table.leads} WHERE {lead.sql}{narrowed} {in_order}) AS subquery"  # noqa: S608
            for lead in leads
        ]
        if len(numbers) > _MAX_PARTS:
            parts = [numbers[start : start + _MAX_PARTS] for start in range(0, len(numbers), _MAX_PARTS)]
            numbers = [f"SELECT number FROM ({' UNION '.join(part)}) AS subquery" for part in parts]  # noqa: S608
        narrowing = [value for condition in rest for value in condition.parameters]
        given = tuple(value for lead in leads for value in (*lead.parameters, *narrowing))
        sql = (
            f"SELECT number, {table.columns} FROM {table.name}"  # noqa: S608
            f" WHERE number IN ({' UNION '.join(numbers)} {in_order}) ORDER BY number {table.order}"
        )
        return SqlStatement(self.render(sql), given, limit)

    def _build_equals(self, column: str, value: str | None) -> list[SqlCondition]:
        return [] if value is None else [SqlCondition(f"{self._dialect.unindexed}{column} = ?", (value,))]

    def _build_any_of(self, column: str, values: Collection[str] | None) -> list[SqlCondition]:
        if values is None:
            return []
        if not values:
            return [self._none]
        condition = f"{self._dialect.unindexed}{column} IN ({_build_placeholders(values)})"
        return [SqlCondition(condition, tuple(sorted(values)))]

    def _build_states(self, states: Collection[DisplayState] | None) -> list[SqlCondition]:
        """Build the condition for states as people see them: of runs that failed, the code says which it is."""
        if states is None:
            return []
        plain = sorted(state.value for state in RunState if state is not RunState.FAILED and state in states)
        parts = [SqlCondition(f"state IN ({_build_placeholders(plain)})", tuple(plain))] if plain else []
        for state, codes in CODES_BY_STATE.items():
            if state in states:
                named = f"code IN ({_build_placeholders(codes)})"
                parts.append(SqlCondition(f"(state = 'failed' AND {named})", codes))
        if DisplayState.FAILED in states:
            codes = tuple(code for each in CODES_BY_STATE.values() for code in each)
            parts.append(SqlCondition(f"(state = 'failed' AND code NOT IN ({_build_placeholders(codes)}))", codes))
        if not parts:
            return [self._none]
        values = tuple(value for part in parts for value in part.parameters)
        return [SqlCondition(f"({' OR '.join(part.sql for part in parts)})", values)]

    def _build_contains(self, column: str, value: str | None) -> list[SqlCondition]:
        """Build the condition that a list of names, written as JSON, has this one."""
        if value is None:
            return []
        name = msgspec.json.encode(value.encode(errors="replace").decode()).decode()
        return [SqlCondition(f"{self._dialect.find}({column}, ?) > 0", (name,))]

    def _build_text_search(self, text: str | None) -> list[SqlCondition]:
        """Build the conditions that every word occurs in the text."""
        return [
            SqlCondition(f"{self._dialect.find}(words, ?) > 0", (normalize_search_text(word),))
            for word in (text or "").split()[:_MAX_SEARCH_WORDS]
        ]

    def _build_question_search(self, text: str | None) -> list[SqlCondition]:
        """Build the conditions of a search in questions: every word occurs, and every number is within its bounds."""
        search = parse_search(text or "")
        return [
            *(SqlCondition(f"{self._dialect.find}(words, ?) > 0", (word,)) for word in search.words),
            *(
                SqlCondition(f"{self._dialect.number} {bound.comparison} ?", (bound.name, bound.value))
                for bound in search.bounds
            ),
        ]

    def _build_names(self, column: str, names: Collection[str] | None, negation: str = "") -> list[SqlCondition]:
        """Build the condition that a column has one of these names, which may be thousands, or none of them."""
        if names is None:
            return []
        condition = f"{self._dialect.unindexed}{column} {negation}IN ({self._dialect.names})"
        return [SqlCondition(condition, (tuple(sorted(names)),))]

    def _build_visibility(self, agents: Collection[str] | None, person: str | None) -> list[SqlCondition]:
        if agents is None and person is None:
            return []
        owned, plus = sorted(agents or ()), self._dialect.unindexed
        own = [f"{plus}agent IN ({_build_placeholders(owned)})"] if owned else []
        people = [] if person is None else [f"{plus}requester = ? OR {plus}created_by = ?"]
        values = (*owned, *(() if person is None else (person, person)))
        return [SqlCondition(f"({' OR '.join(own + people)})", values) if values else self._none]


def is_visible(agents: Collection[str] | None, person: str | None, row: RunRow) -> bool:
    """Apply the same rule to one run."""
    if agents is None and person is None:
        return True
    return row.agent in (agents or ()) or (person is not None and person in (row.requester, row.created_by))


def to_sql_values(values: Iterable[SqlValue]) -> list[SqlValue | bytes]:
    """Return values for SQLite. Text that is no UTF-8 cannot be in a row: as bytes it equals none."""
    return [_to_sql_value(value) for value in values]


def _to_sql_value(value: SqlValue) -> SqlValue | bytes:
    if isinstance(value, tuple):
        return msgspec.json.encode([name.encode(errors="replace").decode() for name in value]).decode()
    return _text_or_bytes(value) if isinstance(value, str) else value


def _text_or_bytes(text: str) -> str | bytes:
    raw = text.encode(errors="surrogatepass")
    return text if raw.decode(errors="replace") == text else raw


def encode_cursor(number: int) -> str:
    """Encode the position of a page as an opaque cursor."""
    return urlsafe_b64encode(b"%d" % number).decode().rstrip("=")


def encode_run_cursor(row: RunRow, order: RunOrder, number: int) -> str:
    """Encode the position of a page of runs by a figure."""
    key = {
        RunOrder.UPDATED: row.updated_at,
        RunOrder.DURATION: row.updated_at - row.created_at,
        RunOrder.TOKENS: row.input_tokens + row.output_tokens,
        RunOrder.COST: row.cost_nanos,
    }[order]
    return urlsafe_b64encode(f"{max(key, 0) + 1}-{number}".encode()).decode().rstrip("=")


def encode_deadline_cursor(row: ActionRow, number: int) -> str:
    """Encode the position of a page of questions by deadline."""
    text = f"{row.expires_at or _MAX_NUMBER}-{number}"
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def to_run_row(row: Sequence[Any]) -> RunRow:
    """Convert a row of the index to a run."""
    run_id, agent, state, requester, created_by, parent, framework, kind, task, message, *numbers = row
    created_at, updated_at, last_seq, count, damaged_at, code, input_tokens, output_tokens, cost_nanos = numbers
    return RunRow(
        run_id=run_id,
        agent=agent,
        state=RunState(state),
        requester=requester,
        created_by=created_by,
        parent_run_id=parent,
        framework=framework,
        kind=RunKind(kind),
        task=task,
        message=message,
        created_at=created_at,
        updated_at=updated_at,
        last_seq=last_seq,
        open_questions=count,
        is_damaged=damaged_at >= 0,
        code=code,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cost_nanos=cost_nanos,
    )


_ACTION_FIELDS = tuple(ACTION_COLUMNS.split(", "))
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


def to_action_row(row: Sequence[Any]) -> ActionRow:
    """Convert a row of the index to an action."""
    values: dict[str, Any] = dict(zip(_ACTION_FIELDS, row, strict=True))
    values["state"] = ActionState(values["state"])
    values["risk"], values["rules"] = _decode_names(values["risk"]), _decode_names(values["rules"])
    return ActionRow(**values)


def _narrow_statuses(
    statuses: Collection[str] | None, states: Collection[DisplayState] | None
) -> Collection[str] | None:
    """Return the statuses that these states can have, which are found by an index."""
    if states is None:
        return statuses
    ended = {DisplayState.REJECTED: RunState.FAILED, DisplayState.EXPIRED: RunState.FAILED}
    found = {
        RUN_STATUS[ended.get(state) or RunState(state)] for state in states if state in ended or state in RUN_STATUS
    }
    return found if statuses is None else found.intersection(statuses)


def _take_first_given(*given: tuple[str, str | None]) -> list[tuple[str, str]]:
    return [(column, value) for column, value in given if value is not None][:1]


def _list_owners(agents: Collection[str] | None, person: str | None) -> list[tuple[str, str]] | None:
    """Return whose rows are asked for; None: all."""
    if agents is None and person is None:
        return None
    people = [] if person is None else [("requester", person), ("created_by", person)]
    return [*(("agent", agent) for agent in sorted(agents or ())), *people]


def _build_placeholders(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


def _decode_cursor(cursor: str) -> int:
    """Decode where the page begins; 0 at the start."""
    if not cursor:
        return 0
    (number,) = _decode_numbers(cursor, 1)
    return number


def _decode_pair_cursor(cursor: str) -> tuple[int, int]:
    key, number = _decode_numbers(cursor, 2)
    return key, number


def _decode_numbers(cursor: str, count: int) -> list[int]:
    """Decode the numbers of a cursor. Raise `BadCursorError` unless a page of this kind of list could have made it."""
    try:
        if len(cursor) > _MAX_CURSOR_CHARS:
            raise ValueError
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        numbers = [int(part) if part.isdigit() else 0 for part in raw.split(b"-")]
        again = urlsafe_b64encode(b"-".join(b"%d" % number for number in numbers)).decode().rstrip("=")
    except (ValueError, binascii.Error):
        numbers, again = [], ""
    if len(numbers) != count or again != cursor or not all(0 < number <= _MAX_NUMBER for number in numbers):
        raise BadCursorError("The cursor is none that a page of this list has given out. Begin without one.")
    return numbers
