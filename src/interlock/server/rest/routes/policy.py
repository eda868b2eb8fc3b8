"""Policies: the rules in force, explanations of decisions, and backtests."""

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from ....domain.tool import PermissionMode
from ...core.identity.permissions import Operation
from ...core.policy_service import BacktestReport, ExampleCall, PolicyDetails, PolicyExplanation
from ..body import declare_body, json_body
from ..caller import Caller, ServiceDep, require_permission
from ..encoding import declare_responses, json_response
from ..schemas.requests import BacktestPolicyRequest, ExplainPolicyRequest

router = APIRouter(tags=["policy"])

_PolicyReader = Annotated[Caller, require_permission(Operation.READ_POLICY)]


@router.get("/policy/{agent}", operation_id="getPolicy", **declare_responses(PolicyDetails))
async def get_policy(agent: str, caller: _PolicyReader, service: ServiceDep) -> Response:
    return json_response(await service.policy_service.show(caller.principal, agent))


@router.post(
    "/policy/{agent}/explain",
    operation_id="explainPolicy",
    **declare_responses(PolicyExplanation),
    **declare_body(ExplainPolicyRequest),
)
async def explain_policy(
    agent: str,
    caller: _PolicyReader,
    service: ServiceDep,
    body: Annotated[ExplainPolicyRequest, json_body(ExplainPolicyRequest)],
) -> Response:
    """Return how a call would be decided, and why. Nothing is executed."""
    query = ExampleCall(
        tool=body.tool,
        arguments=body.arguments,
        mode=None if body.mode is None else PermissionMode(body.mode),
        requester=body.requester,
    )
    return json_response(await service.policy_service.explain(caller.principal, agent, query))


@router.post(
    "/policy/{agent}/backtest",
    operation_id="backtestPolicy",
    **declare_responses(BacktestReport),
    **declare_body(BacktestPolicyRequest, required=False),
)
async def backtest_policy(
    agent: str,
    caller: _PolicyReader,
    service: ServiceDep,
    body: Annotated[BacktestPolicyRequest, json_body(BacktestPolicyRequest)],
) -> Response:
    """Evaluate recorded calls of this agent with a policy. Nothing is executed."""
    return json_response(await service.policy_service.backtest(caller.principal, agent, body.policy, body.runs))
