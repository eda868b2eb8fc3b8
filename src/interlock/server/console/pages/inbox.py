"""The inbox: questions with search, filters and saved views, the page of one question, and the list of selected ones
that is looked through before they are approved.
"""

import asyncio
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.responses import RedirectResponse, Response

from ....domain.state.lifecycle import ActionState
from ...core.errors import ConflictError, NotFoundError, RemovedError
from ...core.identity.permissions import Operation, is_allowed
from ...core.identity.principal import Principal
from ...core.inbox.filters import AGES, ASSIGNED_TO_ME, UNASSIGNED, InboxFilters, parse_filters, parse_query_string
from ...core.inbox.saved_views import MAX_VIEW_NAME_CHARS
from ...core.index.rows import ActionRow
from ...core.runs.queries import QuestionView
from ...core.service import Service
from ..session import Pages, Visit
from ..views.drift import detect_question_drift
from ..views.question import (
    ApprovalPanel,
    CallResult,
    build_approval_panel,
    build_call_result,
    describe_change,
    has_same_payload,
)

_PER_PAGE = 50
_MAX_SAME = 50
#: Looked through and approved at once.
_MAX_REVIEWED = 50
_EMPTY_DETAIL: dict[str, Any] = {"view": None}
_RISKS = ("read", "write", "execute", "network", "delegate")
_ORDERS = (("", "oldest first"), ("newest", "newest first"), ("deadline", "next deadline first"))
_KIND_LABELS = (("", "any"), ("approval", "approval"), ("input", "a value"))
_FILTER_LABELS = {
    "agent": "agent",
    "requester": "for",
    "tool": "tool",
    "risk": "risk",
    "rule": "rule",
    "kind": "asks for",
    "age": "older than",
    "assigned": "assigned to",
}

page = Pages()


class ReviewItem(msgspec.Struct, frozen=True):
    """A selected question, in the list that is looked through."""

    view: QuestionView
    panel: ApprovalPanel


@page("GET", "/inbox/review")
async def review(visit: Visit) -> Response:
    """Render the selected questions, each in full, to be looked through and approved."""
    query = visit.request.query_params
    items, excluded = list[ReviewItem](), list[tuple[str, str, str]]()
    for action_id in list(dict.fromkeys(query.getlist("id")))[:_MAX_REVIEWED]:
        try:
            view = await visit.service.inbox.get_question(visit.principal, action_id)
        except (NotFoundError, RemovedError, ConflictError) as error:
            excluded.append((action_id, action_id, str(error)))
            continue
        panel = await asyncio.to_thread(build_approval_panel, view.action.question)
        drift = await detect_question_drift(view.action.question, visit.service.runners)
        if problem := _find_review_problem(view, panel, is_changed=bool(drift)):
            excluded.append((action_id, view.action.question.headline, problem))
        else:
            items.append(ReviewItem(view, panel))
    back = parse_query_string(query.get("back", "")).query
    return await visit.render("inbox_review.html", items=items, excluded=excluded, back=back)


def _find_review_problem(view: QuestionView, panel: ApprovalPanel, *, is_changed: bool) -> str:
    """Return why a question cannot be approved in a list; empty: it can."""
    if view.row.state is not ActionState.PENDING:
        return "It is not open any more."
    if view.row.kind != "approval":
        return "It asks for a value, which only its own page takes."
    if view.denied_reason:
        return view.denied_reason
    if is_changed:
        return "Something changed since it was asked. An approval would be void."
    is_long = bool(panel.rest) or (panel.trial is not None and panel.trial.is_diff_cut)
    return "It is too long for a list: look at it on its own page." if is_long else ""


@page("GET", "/inbox")
@page("GET", "/inbox/{action_id}")
async def show(visit: Visit, action_id: str = "") -> Response:
    """Render the questions that the filters find, and the selected one."""
    principal, service = visit.principal, visit.service
    filters = parse_filters(visit.request.query_params)
    query = filters.to_action_query(service.now(), _PER_PAGE)
    found = await service.inbox.list_questions(principal, query, filters.assigned)
    chosen, detail = "", _EMPTY_DETAIL
    for chosen in [action_id] if action_id else [row.action_id for row in found.rows]:
        try:
            detail = await _load_detail(service, principal, chosen, found.rows)
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
        selectable={row.action_id for row in found.rows if _is_selectable(principal, row)},
        chosen=chosen,
        is_chosen=bool(action_id),
        filters=filters,
        active=[(_FILTER_LABELS[name], value, filters.without(name).query) for name, value in filters.active],
        choices={"risks": _RISKS, "orders": _ORDERS, "kinds": _KIND_LABELS, "ages": AGES},
        assigned={"me": ASSIGNED_TO_ME, "none": UNASSIGNED},
        views=await service.inbox.views.list(principal.name),
        max_view_name=MAX_VIEW_NAME_CHARS,
        next_page=_link_next(filters, found.next_cursor),
        agents=await service.run_queries.list_agents(principal),
        # Of the notice that a link was in.
        linked_payload=visit.request.query_params.get("payload", ""),
        **detail,
    )


def _link_next(filters: InboxFilters, cursor: str) -> str:
    return msgspec.structs.replace(filters, cursor=cursor).query if cursor else ""


def _is_selectable(principal: Principal, row: ActionRow) -> bool:
    return row.status == "PENDING" and is_allowed(principal, Operation.DECIDE, row)


async def _load_detail(
    service: Service, principal: Principal, action_id: str, rows: tuple[ActionRow, ...]
) -> dict[str, Any]:
    view = await service.inbox.get_question(principal, action_id)
    question = view.action.question
    is_open = view.row.state is ActionState.PENDING
    drift = await detect_question_drift(question, service.runners) if is_open else None
    can_keep = is_open and view.rule_target is not None and not view.rule_target.denied_reason
    can_assign = is_open and is_allowed(principal, Operation.ASSIGN, view.run)
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
        "comments": await service.inbox.list_comments(principal, action_id),
        "can_comment": is_allowed(principal, Operation.COMMENT, view.run),
        "can_assign": can_assign,
        "candidates": await service.inbox.list_candidates(principal, view) if can_assign else (),
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
