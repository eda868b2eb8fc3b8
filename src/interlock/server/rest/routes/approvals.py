"""The inbox: open questions for people, and their answers. The first answer counts."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from ...core.identity.permissions import Operation
from ...core.index.rows import ActionQuery, ActionRow, Page
from ...core.runs.approval_service import Approval, DecisionResult
from ...core.runs.queries import QuestionView
from ..caller import Call
from ..errors import FieldProblem, invalid_request
from ..routing import Routes
from ..schemas.requests import ApproveRequest, ProvideInputRequest, RefuseRequest, RejectRequest
from ..schemas.runs import ActionList, ActionStatus, ApprovalResponse, DecisionResponse
from .runs import PageFilters, TextFilter

route = Routes("decisions")

#: Later ones are more nanoseconds than the log and the database count.
_LAST_SECOND = 2**63 // 10**9 - 1


class QuestionFilters(PageFilters, frozen=True, kw_only=True):
    """Filters of questions."""

    status: Annotated[list[ActionStatus], Meta(max_length=6, description="Default: PENDING.")] | None = None
    agent: TextFilter = None
    run_id: TextFilter = None


@route("GET", "/approvals", Operation.LIST_QUESTIONS, ActionList)
async def list_approvals(call: Call, query: QuestionFilters) -> Page[ActionRow]:
    """List approvals, oldest first."""
    return await _list_questions(call, query, "approval")


@route("GET", "/approvals/{action_id}", Operation.READ_QUESTION, ApprovalResponse)
async def get_approval(call: Call, action_id: str) -> QuestionView:
    """Return an approval with everything that it is bound to, and whether you may decide it."""
    return await call.service.run_queries.get_question(call.principal, action_id)


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
    return await call.service.approval_service.approve(call.principal, action_id, approval)


@route("POST", "/approvals/{action_id}/reject", Operation.DECIDE, DecisionResponse)
async def reject(call: Call, action_id: str, body: RejectRequest) -> DecisionResult:
    """Reject the call. The agent's fail-safe policy decides what that does to the run; by default it fails."""
    return await call.service.approval_service.reject(call.principal, action_id, body.reason, body.payload_hash)


@route("GET", "/inputs", Operation.LIST_QUESTIONS, ActionList)
async def list_inputs(call: Call, query: QuestionFilters) -> Page[ActionRow]:
    """List requests for input, oldest first."""
    return await _list_questions(call, query, "input")


@route("GET", "/inputs/{action_id}", Operation.READ_QUESTION, ApprovalResponse)
async def get_input(call: Call, action_id: str) -> QuestionView:
    return await call.service.run_queries.get_question(call.principal, action_id)


@route("POST", "/inputs/{action_id}/provide", Operation.ANSWER, DecisionResponse)
async def provide(call: Call, action_id: str, body: ProvideInputRequest) -> DecisionResult:
    """Provide the requested value. The run resumes by itself."""
    return await call.service.approval_service.provide_input(call.principal, action_id, body.value, body.payload_hash)


@route("POST", "/inputs/{action_id}/refuse", Operation.ANSWER, DecisionResponse)
async def refuse(call: Call, action_id: str, body: RefuseRequest) -> DecisionResult:
    return await call.service.approval_service.refuse_input(call.principal, action_id, body.reason)


async def _list_questions(call: Call, query: QuestionFilters, kind: str) -> Page[ActionRow]:
    return await call.service.run_queries.list_questions(
        call.principal,
        ActionQuery(
            statuses=frozenset(query.status or ("PENDING",)),
            kinds=frozenset((kind,)),
            agent=query.agent,
            run_id=query.run_id,
            limit=query.limit,
            cursor=query.cursor,
        ),
    )


def parse_time(field: str, text: str) -> int:
    """Return the time in nanoseconds since 1970. Raise `ApiError` 422 where it is none, or has no time zone."""
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise ValueError("has to say its time zone, as in 2030-01-31T12:00:00Z")
        seconds = int(at.timestamp())
        if not 0 <= seconds <= _LAST_SECOND:
            raise ValueError("has to lie between 1970 and 2262")
    except (ValueError, OverflowError, OSError) as error:
        raise invalid_request(FieldProblem(field, f"is no time like 2030-01-31T12:00:00Z: {error}")) from None
    return seconds * 1_000_000_000 + at.microsecond * 1_000
