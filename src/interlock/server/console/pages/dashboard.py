"""The dashboard: how many runs there are of each kind, who waits longest, what happened last, what failed."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...core.identity.permissions import Operation, may, visible
from ...core.identity.principal import Principal
from ...core.index.rows import ActionQuery, RunQuery
from ...core.service import Service
from ..rendering import Pages
from ..session import Visitor

_OLDEST = 6
_RECENT = 10
_FAILED = 5
#: Words of the API with what a person calls them, and the state whose colour they have.
TILES = (
    ("RUNNING", "Running", "running"),
    ("PAUSED_APPROVAL", "Wait for approval", "paused_approval"),
    ("PAUSED_CONSENT", "Wait for consent", "paused_consent"),
    ("COMPLETED", "Completed", "completed"),
    ("FAILED", "Failed", "failed"),
)


def routes(service: Service, pages: Pages) -> APIRouter:
    router = APIRouter()

    async def show(request: Request, visitor: Visitor) -> Response:
        who, seen = visitor.principal, visible(visitor.principal)
        reading = service.reading
        overview = await reading.overview(who, _RECENT)
        query = ActionQuery(statuses=frozenset(("PENDING",)), limit=_OLDEST)
        failed = RunQuery(statuses=frozenset(("FAILED",)), agents=seen.agents, person=seen.person, limit=_FAILED)
        return await pages.page(
            request,
            visitor,
            "dashboard.html",
            tiles=TILES,
            counts=overview.runs,
            open_questions=overview.open_questions,
            recent=overview.recent,
            oldest=(await reading.questions(who, query)).rows,
            failed=(await reading.runs(who, failed)).rows,
            health=await _health(service, who),
            agents=await reading.agents(who),
        )

    router.add_api_route("/", show, methods=["GET"])
    return router


async def _health(service: Service, who: Principal) -> list[tuple[str, bool]]:
    """Lines about the server, each with whether that is well."""
    trouble = await service.trouble()
    lines = [(words, False) for words in trouble] or [("Server ready", True)]
    live = len(service.fleet.live())
    lines.append((f"{live} run{'s' if live != 1 else ''} moving", True))
    if may(who, Operation.READ_FORWARDERS):
        lines += [
            (f"{status.name}: {status.waiting:,} events behind, {status.failures} failures", False)
            if status.last_error
            else (
                f"{status.name}: up to date" if not status.waiting else f"{status.name}: {status.waiting:,} to go",
                True,
            )
            for status in await service.forwarders.statuses()
        ]
    return lines
