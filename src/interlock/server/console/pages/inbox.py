"""The inbox: what runs ask of people, who waits longest first, and one question with all that it is about."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ....domain.ids import MAX_NAME_CHARS
from ....domain.state.lifecycle import ActionState
from ...core.errors import InvalidError
from ...core.identity.principal import Principal
from ...core.index.index import BadCursorError
from ...core.index.rows import ActionQuery, ActionRow, Page
from ...core.runs.queries import QuestionView
from ...core.service import Service
from ..rendering import Pages
from ..session import Visitor
from ..views.drift import drift
from ..views.question import change_words, question_view, same_payload

_PER_PAGE = 50
_MAX_SAME = 50
_MAX_WORDS = MAX_NAME_CHARS
_KINDS = frozenset(("approval", "input"))
_NOTHING: dict[str, Any] = {"view": None}


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    agent: str = ""
    kind: str = ""
    #: Answered ones, too.
    all: str = ""
    cursor: str = ""

    @property
    def query(self) -> str:
        """For the address of another question under the same filters."""
        chosen = {name: value for name in self.__struct_fields__ if (value := getattr(self, name))}
        return f"?{urlencode(chosen)}" if chosen else ""


def routes(service: Service, pages: Pages) -> APIRouter:
    router = APIRouter()

    async def show(request: Request, visitor: Visitor, action_id: str = "") -> Response:
        who = visitor.principal
        filters = _filters(request.query_params)
        page = await _questions(service, who, filters)
        chosen = action_id or (page.rows[0].action_id if page.rows else "")
        detail = await _detail(service, who, chosen, page.rows) if chosen else _NOTHING
        if detail["view"] is not None and detail["view"].row.kind == "consent":
            return RedirectResponse("/console/consents", 303)
        next_page = msgspec.structs.replace(filters, cursor=page.next_cursor).query if page.next_cursor else ""
        return await pages.page(
            request,
            visitor,
            "inbox.html",
            rows=page.rows,
            chosen=chosen,
            is_chosen=bool(action_id),
            filters=filters,
            next_page=next_page,
            agents=await service.reading.agents(who),
            **detail,
        )

    router.add_api_route("/inbox", show, methods=["GET"])
    router.add_api_route("/inbox/{action_id}", show, methods=["GET"])
    return router


def _filters(given: Mapping[str, str]) -> Filters:
    kind = given.get("kind", "")
    return Filters(
        agent=given.get("agent", "")[:_MAX_WORDS],
        kind=kind if kind in _KINDS else "",
        all="1" if given.get("all") else "",
        cursor=given.get("cursor", "")[:_MAX_WORDS],
    )


async def _questions(service: Service, who: Principal, filters: Filters) -> Page[ActionRow]:
    query = ActionQuery(
        statuses=None if filters.all else frozenset(("PENDING",)),
        kinds=frozenset((filters.kind,)) if filters.kind else _KINDS,
        agent=filters.agent or None,
        limit=_PER_PAGE,
        cursor=filters.cursor,
    )
    try:
        return await service.reading.questions(who, query)
    except BadCursorError as error:
        raise InvalidError("cursor", str(error)) from None


async def _detail(service: Service, who: Principal, action_id: str, rows: tuple[ActionRow, ...]) -> dict[str, Any]:
    view = await service.reading.question(who, action_id)
    question = view.action.question
    is_open = view.row.state is ActionState.PENDING
    drifted = await drift(question, service.fleet) if is_open else None
    return {
        "view": view,
        "question": question,
        "is_open": is_open,
        # In a thread: the arguments may be long.
        "shown": await asyncio.to_thread(question_view, question),
        "drifted": None if drifted is None else [change_words(change) for change in drifted],
        "asked_before": [change_words(change) for change in question.changes],
        "same": await _same(service, who, view, rows) if is_open and not view.why_not else [],
    }


async def _same(
    service: Service, who: Principal, view: QuestionView, rows: tuple[ActionRow, ...]
) -> list[QuestionView]:
    """Other open questions about exactly the same, which they may answer, too."""
    alike = [row for row in rows if row.action_id != view.row.action_id and _looks_same(row, view.row)]
    found = [await service.reading.question(who, row.action_id) for row in alike[:_MAX_SAME]]
    return [other for other in found if not other.why_not and same_payload(view.action.question, other.action.question)]


def _looks_same(one: ActionRow, other: ActionRow) -> bool:
    """What can be told without reading the question."""
    return one.status == "PENDING" and (one.kind, one.agent, one.tool, one.capability, one.requester) == (
        "approval",
        other.agent,
        other.tool,
        other.capability,
        other.requester,
    )
