"""Policies: the rules in force, why a call would be decided as it is, and what another policy would have said."""

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from ....domain.tool import Mode
from ...core.identity.permissions import Operation
from ...core.policies import Backtested, Explained, PolicyShown, WhatIf
from ..body import body, takes
from ..caller import Caller, Served, caller
from ..encoding import answer, answers
from ..schemas.requests import BacktestWish, ExplainWish

router = APIRouter(tags=["policy"])

_Reading = Annotated[Caller, caller(Operation.READ_POLICY)]


@router.get("/policy/{agent}", operation_id="getPolicy", **answers(PolicyShown))
async def get_policy(agent: str, by: _Reading, service: Served) -> Response:
    return answer(await service.policies.show(by.who, agent))


@router.post("/policy/{agent}/explain", operation_id="explainPolicy", **answers(Explained), **takes(ExplainWish))
async def explain_policy(
    agent: str, by: _Reading, service: Served, wish: Annotated[ExplainWish, body(ExplainWish)]
) -> Response:
    """How a call would be decided, and why. Nothing is executed."""
    what = WhatIf(
        tool=wish.tool,
        arguments=wish.arguments,
        mode=None if wish.mode is None else Mode(wish.mode),
        requester=wish.requester,
    )
    return answer(await service.policies.explain(by.who, agent, what))


@router.post(
    "/policy/{agent}/backtest",
    operation_id="backtestPolicy",
    **answers(Backtested),
    **takes(BacktestWish, required=False),
)
async def backtest_policy(
    agent: str, by: _Reading, service: Served, wish: Annotated[BacktestWish, body(BacktestWish)]
) -> Response:
    """What a policy would have said about recorded calls of this agent. Nothing is executed."""
    return answer(await service.policies.backtest(by.who, agent, wish.policy, wish.runs))
