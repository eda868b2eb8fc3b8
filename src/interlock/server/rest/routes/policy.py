"""Policies: the rules in force, explanations of decisions, and backtests."""

from ....domain.tool import PermissionMode
from ...core.identity.permissions import Operation
from ...core.policy_service import BacktestReport, ExampleCall, PolicyDetails, PolicyExplanation
from ..caller import Call
from ..routing import Routes
from ..schemas.requests import BacktestPolicyRequest, ExplainPolicyRequest

route = Routes("policy")


@route("GET", "/agents/{agent}/policy", Operation.READ_POLICY, PolicyDetails)
async def get_policy(call: Call, agent: str) -> PolicyDetails:
    return await call.service.policy_service.show(call.principal, agent)


@route("POST", "/agents/{agent}/policy/explain", Operation.READ_POLICY, PolicyExplanation)
async def explain_policy(call: Call, agent: str, body: ExplainPolicyRequest) -> PolicyExplanation:
    """Return how a call would be decided, and why. Nothing is executed."""
    mode = None if body.mode is None else PermissionMode(body.mode)
    example = ExampleCall(tool=body.tool, arguments=body.arguments, mode=mode, requester=body.requester)
    return await call.service.policy_service.explain(call.principal, agent, example)


@route("POST", "/agents/{agent}/policy/backtest", Operation.READ_POLICY, BacktestReport)
async def backtest_policy(call: Call, agent: str, body: BacktestPolicyRequest) -> BacktestReport:
    """Evaluate recorded calls of this agent with a policy. Nothing is executed."""
    return await call.service.policy_service.backtest(call.principal, agent, body.policy, body.runs)
