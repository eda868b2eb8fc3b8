"""REST schemas of work in the inbox: assignments, comments, saved views, and many decisions at once."""

from typing import Annotated, Literal

from msgspec import Meta, field

from ...core.inbox.comments import MAX_COMMENT_CHARS
from ...core.inbox.saved_views import MAX_VIEW_QUERY_CHARS
from ...core.inbox.service import MAX_DECISIONS
from ..body import RequestModel
from ..responses import ResponseModel, Time


class AssignRequest(RequestModel, frozen=True, kw_only=True):
    """The account that is to answer a question."""

    #: Empty: no one.
    account: Annotated[str, Meta(max_length=80, examples=["ada"])]


class AssignmentResponse(ResponseModel, frozen=True, kw_only=True):
    """To whom a question is assigned."""

    action_id: str
    #: `user:ada`; empty: no one.
    account: str = field(name="assignee")
    assigned_by: str
    assigned_at: Time


class CommentRequest(RequestModel, frozen=True, kw_only=True):
    """A comment on a question. No run and no model gets it."""

    text: Annotated[str, Meta(min_length=1, max_length=MAX_COMMENT_CHARS)]


class CommentResponse(ResponseModel, frozen=True, kw_only=True):
    """A comment on a question."""

    number: int
    author: str
    text: str
    created_at: Time


class CommentList(ResponseModel, frozen=True, kw_only=True):
    """Comments, oldest first."""

    comments: list[CommentResponse]


class ShownApproval(RequestModel, frozen=True, kw_only=True):
    """An approval as a person saw it."""

    action_id: Annotated[str, Meta(min_length=1, max_length=256)]
    payload_hash: Annotated[str, Meta(min_length=1, max_length=200, examples=["sha256:9f86d081884c7d65..."])]


class DecideManyRequest(RequestModel, frozen=True, kw_only=True):
    """The same answer to many approvals, each exactly as it was shown."""

    approved: bool
    #: Recorded with each. Required for a rejection: the model gets it.
    reason: Annotated[str, Meta(max_length=2_000)] = ""
    approvals: Annotated[list[ShownApproval], Meta(min_length=1, max_length=MAX_DECISIONS)]


class DecisionOutcomeResponse(ResponseModel, frozen=True, kw_only=True):
    """What became of the answer to one of many approvals."""

    action_id: str
    #: `skipped`: it was answered or changed meanwhile, or you may not decide it. Nothing was decided about it.
    outcome: Literal["recorded", "queued", "skipped"]
    #: Why it was skipped.
    code: str
    message: str


class DecisionOutcomeList(ResponseModel, frozen=True, kw_only=True):
    """One result for each approval."""

    results: list[DecisionOutcomeResponse]


class SaveViewRequest(RequestModel, frozen=True, kw_only=True):
    """The filters of a saved view."""

    #: The query string of the inbox page.
    query: Annotated[str, Meta(max_length=MAX_VIEW_QUERY_CHARS, examples=["?q=amount>=500&sort=deadline"])]


class SavedViewResponse(ResponseModel, frozen=True, kw_only=True):
    """A saved view of the inbox."""

    name: str
    query: str


class SavedViewList(ResponseModel, frozen=True, kw_only=True):
    """Saved views, by name."""

    views: list[SavedViewResponse]
