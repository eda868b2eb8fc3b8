"""The list of runs: by state, agent, person, words and time, in an order, page by page."""

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from ....domain.errors import ConfigurationError
from ....domain.ids import MAX_NAME_CHARS
from ....domain.state.lifecycle import RUN_STATUS
from ....rendering.run_states import RUN_STATES, DisplayState, RunKind
from ...core.identity.permissions import Operation, RunOwnershipData, is_allowed
from ...core.index.rows import RunOrder, RunQuery, RunRow
from ...core.notices.quiet_hours import load_time_zone
from ..session import Pages, Visit
from ..views.durations import format_span

_PER_PAGE = 50
_FILTERS = ("status", "kind", "agent", "requester", "q", "inside", "since", "until", "zone", "sort")
#: Filters that narrow nothing by themselves.
_SETTINGS = frozenset(("zone", "sort"))
#: Kinds of runs, as people know them.
_KINDS = {RunKind.AGENT: "agents", RunKind.SESSION: "sessions"}
#: States that a list can be narrowed to: those that rows know.
_STATES = tuple(
    (state.value, RUN_STATES[state].label)
    for state in DisplayState
    if state not in (DisplayState.IDLE, DisplayState.STOPPED, DisplayState.DAMAGED)
)
_STATUSES = frozenset(RUN_STATUS.values())
_ORDERS = {
    RunOrder.NEWEST: "newest first",
    RunOrder.OLDEST: "oldest first",
    RunOrder.UPDATED: "last event first",
    RunOrder.DURATION: "longest first",
    RunOrder.TOKENS: "most tokens first",
    RunOrder.COST: "most expensive first",
}


class Column(NamedTuple):
    """A column that the list can be sorted by: the query of its heading, and which way it is sorted now."""

    label: str
    query: str
    direction: str
    is_figure: bool


class ListedRun(NamedTuple):
    """A run in the list, and how long it took, or has taken."""

    row: RunRow
    took: str


page = Pages()


@page("GET", "/runs")
async def show(visit: Visit) -> Response:
    """Render the list of runs."""
    given, principal = visit.request.query_params, visit.principal
    cursor = given.get("cursor", "")[:MAX_NAME_CHARS]
    chosen = {name: value[:MAX_NAME_CHARS] for name in _FILTERS if (value := given.get(name))}
    order = RunOrder(chosen["sort"]) if chosen.get("sort") in _ORDERS else RunOrder.NEWEST
    found = await visit.service.run_queries.list_runs(principal, _build_query(chosen, order, cursor))
    agents = await visit.service.run_queries.list_agents(principal)
    now = visit.service.now()
    return await visit.render(
        "runs.html",
        runs=[_measure(row, now) for row in found.rows],
        given={name: chosen.get(name, "") for name in _FILTERS},
        is_filtered=not chosen.keys() <= _SETTINGS,
        states=_STATES,
        kinds=_KINDS.items(),
        orders=_ORDERS.items(),
        order=order,
        columns=_list_columns(chosen, order),
        agents=agents,
        to_begin=[
            agent for agent in agents if is_allowed(principal, Operation.CREATE_RUN, RunOwnershipData(agent=agent.name))
        ],
        more=urlencode(chosen | {"cursor": found.next_cursor}) if found.next_cursor else "",
        first=urlencode(chosen),
        is_first=not cursor,
    )


def _measure(row: RunRow, now: int) -> ListedRun:
    return ListedRun(row, format_span((row.updated_at if row.is_over else now) - row.created_at))


def _build_query(chosen: dict[str, str], order: RunOrder, cursor: str) -> RunQuery:
    """Build the query. What is no value of a filter finds no run, but a day that is none is left out."""
    status = chosen.get("status", "")
    states, statuses = (None, frozenset((status,))) if status in _STATUSES else (_read_states(status), None)
    return RunQuery(
        statuses=statuses,
        states=states,
        agent=chosen.get("agent"),
        requester=chosen.get("requester"),
        kind=RunKind(chosen["kind"]) if chosen.get("kind") in _KINDS else None,
        text=chosen.get("q"),
        include_child_runs="inside" in chosen,
        started_since=_parse_day(chosen, "since", 0),
        started_before=_parse_day(chosen, "until", 1),
        order=order,
        limit=_PER_PAGE,
        cursor=cursor,
    )


def _read_states(status: str) -> frozenset[DisplayState] | None:
    if not status:
        return None
    return frozenset((DisplayState(status),)) if status in frozenset(DisplayState) else frozenset()


def _parse_day(chosen: dict[str, str], name: str, days: int) -> int | None:
    """Return when a day begins in the reader's time zone, so many days later; None where there is no such day."""
    try:
        day = date.fromisoformat(chosen[name]) + timedelta(days=days)
        begins = datetime(day.year, day.month, day.day, tzinfo=_find_zone(chosen.get("zone", "")))
        return int(begins.timestamp()) * 1_000_000_000
    except (KeyError, ValueError, OverflowError):
        return None


def _find_zone(name: str) -> tzinfo:
    """Return a time zone; UTC where it is not known here."""
    try:
        return load_time_zone(name or "UTC")
    except ConfigurationError:
        return UTC


def _list_columns(chosen: dict[str, str], order: RunOrder) -> list[Column]:
    """Return the columns to sort by. The heading of the one that is sorted by start turns the order around."""
    by_start = RunOrder.OLDEST if order is RunOrder.NEWEST else RunOrder.NEWEST
    directions = {RunOrder.NEWEST: "descending", RunOrder.OLDEST: "ascending"}
    started = Column("Started", urlencode(chosen | {"sort": by_start.value}), directions.get(order, ""), False)
    figures = (("Duration", RunOrder.DURATION), ("Tokens", RunOrder.TOKENS), ("Cost", RunOrder.COST))
    return [
        started,
        *(
            Column(label, urlencode(chosen | {"sort": by.value}), "descending" if by is order else "", True)
            for label, by in figures
        ),
    ]
