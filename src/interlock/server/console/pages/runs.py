"""The list of runs: newest first, by status, agent, person and words, page by page."""

from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ....domain.ids import MAX_NAME_CHARS
from ...core.errors import InvalidRequestError
from ...core.identity.permissions import Operation, RunOwnershipData, is_allowed
from ...core.index.rows import Page, RunQuery, RunRow
from ...core.index.run_index import BadCursorError
from ...core.service import Service
from ..rendering import PageRenderer
from ..session import Visitor
from .dashboard import STATUS_TILES

_PER_PAGE = 50
_MAX_FILTER_CHARS = MAX_NAME_CHARS
_FILTERS = ("status", "agent", "requester", "q", "inside")
_STATUSES = tuple((word, words) for word, words, _ in STATUS_TILES)


def routes(service: Service, pages: PageRenderer) -> APIRouter:
    router = APIRouter()

    async def show(request: Request, visitor: Visitor) -> Response:
        given = request.query_params
        cursor = given.get("cursor", "")[:_MAX_FILTER_CHARS]
        chosen = {name: value[:_MAX_FILTER_CHARS] for name in _FILTERS if (value := given.get(name))}
        page = await _load_page(service, visitor, chosen, cursor)
        agents = await service.run_queries.list_agents(visitor.principal)
        more = urlencode(chosen | {"cursor": page.next_cursor}) if page.next_cursor else ""
        return await pages.render_page(
            request,
            visitor,
            "runs.html",
            rows=page.rows,
            given={name: chosen.get(name, "") for name in _FILTERS},
            is_filtered=bool(chosen),
            statuses=_STATUSES,
            agents=agents,
            to_begin=[agent for agent in agents if _can_start(visitor, agent.name)],
            more=more,
            is_first=not cursor,
        )

    router.add_api_route("/runs", show, methods=["GET"])
    return router


def _can_start(visitor: Visitor, agent: str) -> bool:
    return is_allowed(visitor.principal, Operation.CREATE_RUN, RunOwnershipData(agent=agent))


async def _load_page(service: Service, visitor: Visitor, chosen: dict[str, str], cursor: str) -> Page[RunRow]:
    status = chosen.get("status", "")
    query = RunQuery(
        statuses=frozenset((status,)) if status else None,
        agent=chosen.get("agent"),
        requester=chosen.get("requester"),
        text=chosen.get("q"),
        include_child_runs=bool(chosen.get("inside")),
        limit=_PER_PAGE,
        cursor=cursor,
    )
    try:
        return await service.run_queries.list_runs(visitor.principal, query)
    except BadCursorError as error:
        raise InvalidRequestError("cursor", str(error)) from None
