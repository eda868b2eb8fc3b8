"""Work in the inbox: assignments, comments, many decisions at once, and the views that people saved."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from ...core.identity.permissions import Operation
from ...core.inbox.assignments import Assignment
from ...core.inbox.comments import Comment
from ...core.inbox.saved_views import MAX_VIEW_NAME_CHARS, SavedView
from ...core.inbox.service import ManyDecisions, ShownQuestion
from ..caller import Call
from ..errors import FieldProblem, invalid_request
from ..routing import Routes
from ..schemas.inbox import (
    AssignmentResponse,
    AssignRequest,
    CommentList,
    CommentRequest,
    CommentResponse,
    DecideManyRequest,
    DecisionOutcomeList,
    SavedViewList,
    SavedViewResponse,
    SaveViewRequest,
)

route = Routes("approvals")

_ViewName = Annotated[str, Meta(min_length=1, max_length=MAX_VIEW_NAME_CHARS)]


@route("POST", "/approvals/decisions", Operation.DECIDE, DecisionOutcomeList)
async def decide_many(call: Call, body: DecideManyRequest) -> dict[str, Sequence[Any]]:
    """Give many approvals the same answer, each with the checks of its own decision. One that was answered or changed
    meanwhile is skipped.
    """
    if not body.approved and not body.reason.strip():
        raise invalid_request(FieldProblem("reason", "is required for a rejection"))
    questions = tuple(ShownQuestion(each.action_id, each.payload_hash) for each in body.approvals)
    decisions = ManyDecisions(approved=body.approved, reason=body.reason, questions=questions)
    return {"results": await call.service.inbox.decide_many(call.principal, decisions, call.channel)}


@route("PUT", "/approvals/{action_id}/assignee", Operation.ASSIGN, AssignmentResponse)
async def assign_approval(call: Call, action_id: str, body: AssignRequest) -> Assignment:
    """Say who is to answer: an account that may, or no one. It stays open to all others who may."""
    return await call.service.inbox.assign(call.principal, action_id, body.account)


@route("GET", "/approvals/{action_id}/comments", Operation.READ_QUESTION, CommentList)
async def list_comments(call: Call, action_id: str) -> dict[str, Sequence[Any]]:
    """List what people noted about an approval, oldest first."""
    return {"comments": await call.service.inbox.list_comments(call.principal, action_id)}


@route("POST", "/approvals/{action_id}/comments", Operation.COMMENT, CommentResponse, status=201)
async def add_comment(call: Call, action_id: str, body: CommentRequest) -> Comment:
    """Note something about an approval, for people. No run and no model gets it."""
    return await call.service.inbox.add_comment(call.principal, action_id, body.text)


@route("GET", "/me/inbox-views", Operation.OWN_ACCOUNT, SavedViewList)
async def list_inbox_views(call: Call) -> dict[str, Sequence[Any]]:
    """List your saved views of the inbox."""
    return {"views": await call.service.inbox.views.list(call.principal.name)}


@route("PUT", "/me/inbox-views/{name}", Operation.OWN_ACCOUNT, SavedViewResponse)
async def save_inbox_view(call: Call, name: _ViewName, body: SaveViewRequest) -> SavedView:
    """Save a view of the inbox, or replace the one with this name."""
    return await call.service.inbox.views.save(call.principal.name, name, body.query)


@route("DELETE", "/me/inbox-views/{name}", Operation.OWN_ACCOUNT, status=204)
async def delete_inbox_view(call: Call, name: _ViewName) -> None:
    """Delete a saved view."""
    await call.service.inbox.views.delete(call.principal.name, name)
