"""The agents of this server: their runs, and whether they are switched off."""

from starlette.responses import Response

from ....engine.switches import ALL_AGENTS
from ...core.identity.permissions import Operation, RunOwnershipData, is_allowed
from ...core.index.rows import RunQuery
from ...core.index.statistics import StatisticsPeriod
from ..session import Pages, Visit
from .dashboard import list_tiles

_MAX_RUNS = 5

page = Pages()


@page("GET", "/agents")
async def show(visit: Visit) -> Response:
    """Show every agent: its state and tools, its runs now and of the last week, and the newest of them."""
    service, principal = visit.service, visit.principal
    queries, index = service.run_queries, service.index
    agents = [
        (
            agent,
            list_tiles(
                await index.count_unfinished_runs(frozenset((agent.name,))),
                await queries.get_statistics(principal, StatisticsPeriod.WEEK, service.now(), agent.name),
                agent.name,
            ),
            (await queries.list_runs(principal, RunQuery(agent=agent.name, limit=_MAX_RUNS))).rows,
            {
                name: is_allowed(principal, operation, RunOwnershipData(agent=agent.name))
                for name, operation in (("switch", Operation.SWITCH_AGENT), ("policy", Operation.READ_POLICY))
            },
        )
        for agent in await queries.list_agents(principal)
    ]
    return await visit.render(
        "agents.html",
        agents=agents,
        all_off=(await service.switches.list("agent")).get(ALL_AGENTS),
        may_switch_all=is_allowed(principal, Operation.SWITCH_ALL_AGENTS),
        may_see_triggers=is_allowed(principal, Operation.LIST_TRIGGERS),
        is_shared=service.worker.is_shared,
    )
