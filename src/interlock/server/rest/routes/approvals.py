"""The inbox: open questions for people, and their answers. The first answer counts."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from ...core.identity.permissions import Operation
from ...core.index.rows import ActionQuery
from ...core.runs.approval_service import Approval
from ...core.service import Service
from ..body import declare_body, json_body
from ..caller import Caller, ServiceDep, require_permission
from ..encoding import declare_responses, json_response
from ..errors import FieldProblem, invalid_request
from ..schemas.requests import ApproveRequest, ProvideInputRequest, RefuseRequest, RejectRequest
from ..schemas.runs import ActionList, ActionResponse, ActionStatus, ApprovalResponse, DecisionResponse
from ..times import to_nanoseconds
from .runs import PageFilters

router = APIRouter(tags=["decisions"])

_QuestionLister = Annotated[Caller, require_permission(Operation.LIST_QUESTIONS)]
_QuestionReader = Annotated[Caller, require_permission(Operation.READ_QUESTION)]
_Decider = Annotated[Caller, require_permission(Operation.DECIDE)]
_Answerer = Annotated[Caller, require_permission(Operation.ANSWER)]


class QuestionFilters(PageFilters):
    """Filters of questions."""

    status: list[ActionStatus] | None = Field(None, max_length=6, description="Default: PENDING.")
    agent: str | None = Field(None, max_length=256)
    run_id: str | None = Field(None, max_length=256)


@router.get("/approvals", operation_id="listApprovals", **declare_responses(ActionList))
async def list_approvals(
    caller: _QuestionLister, service: ServiceDep, filters: Annotated[QuestionFilters, Query()]
) -> Response:
    """List approvals, oldest first."""
    return await _list_actions(caller, service, filters, "approval")


@router.get("/approvals/{action_id}", operation_id="getApproval", **declare_responses(ApprovalResponse))
async def get_approval(action_id: str, caller: _QuestionReader, service: ServiceDep) -> Response:
    """Return an approval with everything that it is bound to, and whether you may decide it."""
    return json_response(
        ApprovalResponse.from_domain(await service.run_queries.get_question(caller.principal, action_id))
    )


@router.post(
    "/approvals/{action_id}/approve",
    operation_id="approve",
    **declare_responses(DecisionResponse),
    **declare_body(ApproveRequest),
)
async def approve(
    action_id: str, caller: _Decider, service: ServiceDep, body: Annotated[ApproveRequest, json_body(ApproveRequest)]
) -> Response:
    """Approve exactly the payload with this hash. The run resumes by itself."""
    approval = Approval(
        payload_hash=body.payload_hash,
        reason=body.reason,
        scope=body.scope,
        until=_parse_until(body.until),
        rule=body.rule,
        arguments=body.arguments,
    )
    return json_response(
        DecisionResponse.from_domain(await service.approval_service.approve(caller.principal, action_id, approval))
    )


@router.post(
    "/approvals/{action_id}/reject",
    operation_id="reject",
    **declare_responses(DecisionResponse),
    **declare_body(RejectRequest),
)
async def reject(
    action_id: str, caller: _Decider, service: ServiceDep, body: Annotated[RejectRequest, json_body(RejectRequest)]
) -> Response:
    """Reject the call. The agent's fail-safe policy decides what that does to the run; by default it fails."""
    decided = await service.approval_service.reject(caller.principal, action_id, body.reason, body.payload_hash)
    return json_response(DecisionResponse.from_domain(decided))


@router.get("/inputs", operation_id="listInputs", **declare_responses(ActionList))
async def list_inputs(
    caller: _QuestionLister, service: ServiceDep, filters: Annotated[QuestionFilters, Query()]
) -> Response:
    """List requests for input, oldest first."""
    return await _list_actions(caller, service, filters, "input")


@router.get("/inputs/{action_id}", operation_id="getInput", **declare_responses(ApprovalResponse))
async def get_input(action_id: str, caller: _QuestionReader, service: ServiceDep) -> Response:
    return json_response(
        ApprovalResponse.from_domain(await service.run_queries.get_question(caller.principal, action_id))
    )


@router.post(
    "/inputs/{action_id}/provide",
    operation_id="provide",
    **declare_responses(DecisionResponse),
    **declare_body(ProvideInputRequest),
)
async def provide(
    action_id: str,
    caller: _Answerer,
    service: ServiceDep,
    body: Annotated[ProvideInputRequest, json_body(ProvideInputRequest)],
) -> Response:
    """Provide the requested value. The run resumes by itself."""
    return json_response(
        DecisionResponse.from_domain(
            await service.approval_service.provide_input(caller.principal, action_id, body.value, body.payload_hash)
        )
    )


@router.post(
    "/inputs/{action_id}/refuse",
    operation_id="refuse",
    **declare_responses(DecisionResponse),
    **declare_body(RefuseRequest, required=False),
)
async def refuse(
    action_id: str, caller: _Answerer, service: ServiceDep, body: Annotated[RefuseRequest, json_body(RefuseRequest)]
) -> Response:
    return json_response(
        DecisionResponse.from_domain(
            await service.approval_service.refuse_input(caller.principal, action_id, body.reason)
        )
    )


async def _list_actions(caller: Caller, service: Service, filters: QuestionFilters, kind: str) -> Response:
    page = await service.run_queries.list_questions(
        caller.principal,
        ActionQuery(
            statuses=frozenset(filters.status or ("PENDING",)),
            kinds=frozenset((kind,)),
            agent=filters.agent,
            run_id=filters.run_id,
            limit=filters.limit,
            cursor=filters.cursor,
        ),
    )
    return json_response(
        ActionList(actions=list(map(ActionResponse.from_domain, page.rows)), next_cursor=page.next_cursor)
    )


def _parse_until(text: str | None) -> int:
    return 0 if text is None else parse_time("until", text)


def parse_time(field: str, text: str) -> int:
    """Return the time in nanoseconds since 1970."""
    try:
        return to_nanoseconds(datetime.fromisoformat(text))
    except (ValueError, OverflowError, OSError) as error:
        raise invalid_request(
            FieldProblem(field=field, problem=f"is no time like 2030-01-31T12:00:00Z: {error}")
        ) from None
