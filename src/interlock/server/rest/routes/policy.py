"""Policies: the rules in force, explanations of decisions, backtests, and suggested rules."""

from typing import Annotated

from msgspec import Meta

from ....domain.tool import PermissionMode
from ...core.identity.permissions import Operation
from ...core.policy_service import BacktestReport, ExampleCall, PolicyDetails, PolicyExplanation, SuggestionReport
from ..body import RequestModel
from ..caller import Call
from ..routing import Routes
from ..schemas.requests import BacktestPolicyRequest, ExplainPolicyRequest

route = Routes("policy")


class SuggestionFilters(RequestModel, frozen=True, kw_only=True):
    """How often people have to have approved the same."""

    min_count: Annotated[int, Meta(ge=1, le=1_000, description="Minimum number of approvals for a suggestion.")] = 3


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


@route("GET", "/agents/{agent}/policy/suggestions", Operation.READ_POLICY, SuggestionReport)
async def suggest_rules(call: Call, agent: str, query: SuggestionFilters) -> SuggestionReport:
    """Return rules that would have answered recorded questions of this agent as people did. Nothing is applied."""
    return await call.service.policy_service.suggest(call.principal, agent, query.min_count)
