"""The list of runs: newest first, by status, agent, person and words, page by page."""

from urllib.parse import urlencode

from starlette.responses import Response

from ....domain.ids import MAX_NAME_CHARS
from ....rendering.run_states import RunKind
from ...core.identity.permissions import Operation, RunOwnershipData, is_allowed
from ...core.index.rows import RunQuery
from ..session import Pages, Visit
from .dashboard import STATUS_TILES

_PER_PAGE = 50
_FILTERS = ("status", "kind", "agent", "requester", "q", "inside")
#: Kinds of runs, as people know them.
_KINDS = {RunKind.AGENT: "agents", RunKind.SESSION: "sessions"}


page = Pages()


@page("GET", "/runs")
async def show(visit: Visit) -> Response:
    """Render the list of runs."""
    given, principal = visit.request.query_params, visit.principal
    cursor = given.get("cursor", "")[:MAX_NAME_CHARS]
    chosen = {name: value[:MAX_NAME_CHARS] for name in _FILTERS if (value := given.get(name))}
    query = RunQuery(
        statuses=frozenset((chosen["status"],)) if "status" in chosen else None,
        agent=chosen.get("agent"),
        requester=chosen.get("requester"),
        kind=RunKind(chosen["kind"]) if chosen.get("kind") in _KINDS else None,
        text=chosen.get("q"),
        include_child_runs="inside" in chosen,
        limit=_PER_PAGE,
        cursor=cursor,
    )
    found = await visit.service.run_queries.list_runs(principal, query)
    agents = await visit.service.run_queries.list_agents(principal)
    return await visit.render(
        "runs.html",
        rows=found.rows,
        given={name: chosen.get(name, "") for name in _FILTERS},
        is_filtered=bool(chosen),
        statuses=[(status, shown.label) for status, shown in STATUS_TILES],
        kinds=_KINDS.items(),
        agents=agents,
        to_begin=[
            agent for agent in agents if is_allowed(principal, Operation.CREATE_RUN, RunOwnershipData(agent=agent.name))
        ],
        more=urlencode(chosen | {"cursor": found.next_cursor}) if found.next_cursor else "",
        is_first=not cursor,
    )
