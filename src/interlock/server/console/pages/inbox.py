"""The inbox: open questions, the longest waiting first, and the page of one question."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.responses import RedirectResponse, Response

from ....domain.ids import MAX_NAME_CHARS
from ....domain.state.lifecycle import ActionState
from ...core.errors import ConflictError, NotFoundError, RemovedError
from ...core.identity.principal import Principal
from ...core.index.rows import ActionQuery, ActionRow
from ...core.runs.queries import QuestionView
from ...core.service import Service
from ..session import Pages, Visit
from ..views.drift import detect_question_drift
from ..views.question import CallResult, build_approval_panel, build_call_result, describe_change, has_same_payload

_PER_PAGE = 50
_MAX_SAME = 50
_KINDS = frozenset(("approval", "input"))
_EMPTY_DETAIL: dict[str, Any] = {"view": None}


class InboxFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of the inbox."""

    agent: str = ""
    kind: str = ""
    #: Answered ones, too.
    all: str = ""
    cursor: str = ""

    @property
    def query(self) -> str:
        """The query string for another question under the same filters."""
        chosen = {name: value for name in self.__struct_fields__ if (value := getattr(self, name))}
        return f"?{urlencode(chosen)}" if chosen else ""


page = Pages()


@page("GET", "/inbox")
@page("GET", "/inbox/{action_id}")
async def show(visit: Visit, action_id: str = "") -> Response:
    """Render the open questions, and the selected one."""
    principal = visit.principal
    filters = _parse_filters(visit.request.query_params)
    query = ActionQuery(
        statuses=None if filters.all else frozenset(("PENDING",)),
        kinds=frozenset((filters.kind,)) if filters.kind else _KINDS,
        agent=filters.agent or None,
        limit=_PER_PAGE,
        cursor=filters.cursor,
    )
    found = await visit.service.run_queries.list_questions(principal, query)
    chosen, detail = "", _EMPTY_DETAIL
    for chosen in [action_id] if action_id else [row.action_id for row in found.rows]:
        try:
            detail = await _load_detail(visit.service, principal, chosen, found.rows)
            break
        except ConflictError as error:  # of a damaged run, whose questions leave the list
            if error.code != "log_damaged":
                raise
            if action_id:
                return RedirectResponse(f"/console/runs/{quote(error.details['run'], safe='')}", 303)
    if detail["view"] is not None and detail["view"].row.kind == "consent":
        return RedirectResponse("/console/consents", 303)
    return await visit.render(
        "inbox.html",
        rows=found.rows,
        chosen=chosen,
        is_chosen=bool(action_id),
        filters=filters,
        next_page=msgspec.structs.replace(filters, cursor=found.next_cursor).query if found.next_cursor else "",
        agents=await visit.service.run_queries.list_agents(principal),
        **detail,
    )


def _parse_filters(query: Mapping[str, str]) -> InboxFilters:
    kind = query.get("kind", "")
    return InboxFilters(
        agent=query.get("agent", "")[:MAX_NAME_CHARS],
        kind=kind if kind in _KINDS else "",
        all="1" if query.get("all") else "",
        cursor=query.get("cursor", "")[:MAX_NAME_CHARS],
    )


async def _load_detail(
    service: Service, principal: Principal, action_id: str, rows: tuple[ActionRow, ...]
) -> dict[str, Any]:
    view = await service.run_queries.get_question(principal, action_id)
    question = view.action.question
    is_open = view.row.state is ActionState.PENDING
    drift = await detect_question_drift(question, service.runners) if is_open else None
    can_keep = is_open and view.rule_target is not None and not view.rule_target.denied_reason
    return {
        "rule_preview": await service.policy_service.preview_rule(principal, view.run.agent, question.suggested_rule)
        if can_keep
        else "",
        "view": view,
        "question": question,
        "is_open": is_open,
        # In a thread: the arguments may be long.
        "shown": await asyncio.to_thread(build_approval_panel, question),
        "drifted": None if drift is None else [describe_change(change) for change in drift],
        "asked_before": [describe_change(change) for change in question.changes],
        "same": await _find_same_questions(service, principal, view, rows)
        if is_open and not view.denied_reason
        else [],
        "result": None if is_open else await _load_result(service, principal, view),
        "next_question": next((row.action_id for row in rows if _is_next(row, action_id)), ""),
    }


def _is_next(row: ActionRow, action_id: str) -> bool:
    return row.status == "PENDING" and row.action_id != action_id


async def _load_result(service: Service, principal: Principal, view: QuestionView) -> CallResult | None:
    """Return what became of the call that the question was about; None where the run was removed."""
    with suppress(RemovedError, NotFoundError):
        call = await service.run_queries.get_call(principal, view.row.run_id, view.row.call_id)
        return await asyncio.to_thread(build_call_result, call)
    return None


async def _find_same_questions(
    service: Service, principal: Principal, view: QuestionView, rows: tuple[ActionRow, ...]
) -> list[QuestionView]:
    """Find other open questions with exactly the same payload that the person may answer as well."""
    candidates = [row for row in rows if row.action_id != view.row.action_id and _looks_same(row, view.row)]
    found = list[QuestionView]()
    for row in candidates[:_MAX_SAME]:
        with suppress(ConflictError):  # of a damaged run
            found.append(await service.run_queries.get_question(principal, row.action_id))
    return [
        other
        for other in found
        if not other.denied_reason and has_same_payload(view.action.question, other.action.question)
    ]


def _looks_same(one: ActionRow, other: ActionRow) -> bool:
    """Return False quickly for rows that differ, without reading the question."""
    return one.status == "PENDING" and (one.kind, one.agent, one.tool, one.capability, one.requester) == (
        "approval",
        other.agent,
        other.tool,
        other.capability,
        other.requester,
    )
