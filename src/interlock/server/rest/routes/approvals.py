"""Approvals: what runs wait for, and the answers of people. The first answer counts."""

from typing import Annotated

from msgspec import Meta

from ...core.identity.permissions import Operation
from ...core.inbox.filters import MAX_SEARCH_CHARS
from ...core.index.rows import ActionOrder, ActionQuery, ActionRow, Page
from ...core.runs.approval_service import Approval, DecisionResult
from ...core.runs.queries import QuestionView
from ..body import parse_time
from ..caller import Call
from ..errors import FieldProblem, invalid_request
from ..routing import Routes
from ..schemas.requests import AnswerRequest, ApproveRequest, RejectRequest
from ..schemas.runs import ActionStatus, ApprovalKind, ApprovalList, ApprovalReviewResponse, DecisionResponse
from .runs import PageFilters, TextFilter

route = Routes("approvals")


class ApprovalFilters(PageFilters, frozen=True, kw_only=True):
    """Filters of approvals."""

    kind: Annotated[list[ApprovalKind], Meta(max_length=3, description="Default: all kinds.")] | None = None
    status: Annotated[list[ActionStatus], Meta(max_length=6, description="Default: PENDING.")] | None = None
    agent: TextFilter = None
    run_id: TextFilter = None
    requester: TextFilter = None
    tool: TextFilter = None
    risk: Annotated[TextFilter, Meta(description="One of its risks: read, write, execute, network, ...")] = None
    rule: Annotated[TextFilter, Meta(description="The id of a rule that asks.")] = None
    created_before: Annotated[TextFilter, Meta(description="Asked at this time or earlier.")] = None
    q: (
        Annotated[
            str,
            Meta(
                max_length=MAX_SEARCH_CHARS,
                description="Words in the title or the arguments, and bounds of their numbers, such as `amount>=500`.",
            ),
        ]
        | None
    ) = None
    assigned: Annotated[TextFilter, Meta(description="`me`, `none`, or the name of an account.")] = None
    sort: Annotated[ActionOrder, Meta(description="`deadline` is for open ones: those that never expire are last.")] = (
        ActionOrder.OLDEST
    )


@route("GET", "/approvals", Operation.LIST_QUESTIONS, ApprovalList)
async def list_approvals(call: Call, query: ApprovalFilters) -> Page[ActionRow]:
    """List approvals, inputs and consents that runs wait for, oldest first."""
    statuses = frozenset[str](query.status or ("PENDING",))
    if query.sort is ActionOrder.DEADLINE and statuses != frozenset(("PENDING",)):
        raise invalid_request(FieldProblem("sort", "`deadline` is for status=PENDING; use `oldest` or `newest`"))
    return await call.service.inbox.list_questions(
        call.principal,
        ActionQuery(
            statuses=statuses,
            kinds=frozenset(query.kind) if query.kind else None,
            agent=query.agent,
            run_id=query.run_id,
            requester=query.requester,
            tool=query.tool,
            risk=query.risk,
            rule=query.rule,
            asked_before=None if query.created_before is None else parse_time("created_before", query.created_before),
            text=query.q,
            order=query.sort,
            limit=query.limit,
            cursor=query.cursor,
        ),
        query.assigned or "",
    )


@route("GET", "/approvals/{action_id}", Operation.READ_QUESTION, ApprovalReviewResponse)
async def get_approval(call: Call, action_id: str) -> QuestionView:
    """Return an approval with everything that it is bound to, and whether you may decide it."""
    return await call.service.inbox.get_question(call.principal, action_id)


@route("POST", "/approvals/{action_id}/approve", Operation.DECIDE, DecisionResponse)
async def approve(call: Call, action_id: str, body: ApproveRequest) -> DecisionResult:
    """Approve exactly the payload with this hash. The run resumes by itself."""
    approval = Approval(
        payload_hash=body.payload_hash,
        reason=body.reason,
        scope=body.scope,
        until=0 if body.until is None else parse_time("until", body.until),
        rule=body.rule,
        arguments=body.arguments,
    )
    return await call.service.approval_service.approve(call.principal, action_id, approval, call.channel)


@route("POST", "/approvals/{action_id}/reject", Operation.DECIDE, DecisionResponse)
async def reject(call: Call, action_id: str, body: RejectRequest) -> DecisionResult:
    """Reject the call, or the request for input. By default the run fails; see `on_rejection` of the agent."""
    return await call.service.approval_service.reject(
        call.principal, action_id, body.reason, body.payload_hash, call.channel
    )


@route("POST", "/approvals/{action_id}/answer", Operation.ANSWER, DecisionResponse)
async def answer(call: Call, action_id: str, body: AnswerRequest) -> DecisionResult:
    """Provide the requested value. The run resumes by itself."""
    return await call.service.approval_service.provide_input(
        call.principal, action_id, body.value, body.payload_hash, call.channel
    )
