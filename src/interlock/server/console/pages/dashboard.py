"""The dashboard: counts of runs, longest waiting questions, recent activity, recent failures."""

from starlette.responses import Response

from ....domain.state.lifecycle import RUN_STATUS
from ....rendering.run_states import RUN_STATES
from ...core.identity.permissions import Operation, get_visibility, is_allowed
from ...core.identity.principal import Principal
from ...core.index.rows import ActionQuery, RunQuery
from ...core.service import Service
from ..session import Pages, Visit

_MAX_OLDEST = 6
_MAX_RECENT = 10
_MAX_FAILED = 5
#: The status values of the API, each with how it is shown.
STATUS_TILES = tuple((status, RUN_STATES[status.lower()]) for status in dict.fromkeys(RUN_STATUS.values()))


page = Pages()


@page("GET", "/")
async def show(visit: Visit) -> Response:
    """Render the dashboard."""
    principal, seen = visit.principal, get_visibility(visit.principal)
    queries = visit.service.run_queries
    overview = await queries.get_overview(principal, _MAX_RECENT)
    oldest = ActionQuery(statuses=frozenset(("PENDING",)), limit=_MAX_OLDEST)
    failed = RunQuery(statuses=frozenset(("FAILED",)), agents=seen.agents, person=seen.person, limit=_MAX_FAILED)
    return await visit.render(
        "dashboard.html",
        tiles=STATUS_TILES,
        counts=overview.runs,
        open_questions=overview.open_questions,
        recent=overview.recent,
        oldest=(await queries.list_questions(principal, oldest)).rows,
        failed=(await queries.list_runs(principal, failed)).rows,
        health=await _load_health(visit.service, principal),
        agents=await queries.list_agents(principal),
    )


async def _load_health(service: Service, principal: Principal) -> list[tuple[str, bool]]:
    """Return lines about the state of the server, each with whether it is healthy."""
    problems = await service.find_readiness_problems()
    lines = [(words, False) for words in problems] or [("Server ready", True)]
    live = len(service.runners.list_live_handles())
    lines.append((f"{live} active run{'s' if live != 1 else ''}", True))
    if is_allowed(principal, Operation.READ_FORWARDERS):
        lines += [
            (f"{status.name}: {status.pending_count:,} events behind, {status.failures} failures", False)
            if status.last_error
            else (
                f"{status.name}: up to date"
                if not status.pending_count
                else f"{status.name}: {status.pending_count:,} to go",
                True,
            )
            for status in await service.forwarders.list_statuses()
        ]
    return lines
