"""The agents of this server, and their runs."""

from starlette.responses import Response

from ...core.index.rows import RunQuery
from ..session import Pages, Visit
from .dashboard import STATUS_TILES

_MAX_RUNS = 5

page = Pages()


@page("GET", "/agents")
async def show(visit: Visit) -> Response:
    """Show every agent with its tools, its runs by status, and the newest of them."""
    queries, index = visit.service.run_queries, visit.service.index
    agents = [
        (
            agent,
            await index.count_runs(frozenset((agent.name,)), None),
            (await queries.list_runs(visit.principal, RunQuery(agent=agent.name, limit=_MAX_RUNS))).rows,
        )
        for agent in await queries.list_agents(visit.principal)
    ]
    return await visit.render("agents.html", agents=agents, tiles=STATUS_TILES)
