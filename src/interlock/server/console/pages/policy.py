"""The policy pages: the rules of an agent, explanations of decisions, backtests, and suggested rules. All of it works
without scripts. Nothing here changes a policy.
"""

from collections.abc import Sequence
from typing import Annotated, Any, cast

from msgspec import Meta
from starlette.responses import RedirectResponse, Response

from ....domain import json
from ....domain.ids import MAX_NAME_CHARS
from ....domain.json import JsonObject
from ....policy.files.yaml_text import to_yaml
from ...core.errors import InvalidRequestError, UnavailableError
from ...core.identity.permissions import Operation, RunOwnershipData, is_allowed
from ...core.identity.principal import Principal
from ...core.policy_service import MAX_ARGUMENTS_CHARS, MAX_POLICY_CHARS, MAX_RUNS, SUGGESTION_RUNS, ExampleCall
from ...core.service import Service
from ..markup import build_outline
from ..session import Pages, Visit

#: What is shown of a long answer; the count says how many there are.
MAX_FLIPS = 200
_MIN_APPROVALS = 3

_Name = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]
# One more than is allowed, so that what is too long is said to be that, on the page.
_Arguments = Annotated[str, Meta(max_length=MAX_ARGUMENTS_CHARS + 1)]
_Policy = Annotated[str, Meta(max_length=MAX_POLICY_CHARS + 1)]

_EMPTY_VALUES: dict[str, Any] = {
    "tool": "",
    "arguments": "{}",
    "policy_text": "",
    "explained": None,
    "tried": None,
    "flips": (),
    "explain_problem": "",
    "backtest_problem": "",
}


page = Pages()


@page("GET", "/policy")
async def show(visit: Visit, agent: str = "") -> Response:
    """Render the policy of an agent."""
    return await _render(visit, agent[:MAX_NAME_CHARS], {})


@page("GET", "/policy/explain")
@page("GET", "/policy/backtest")
async def redirect(visit: Visit) -> Response:
    """Redirect when the result of a form is reloaded."""
    return RedirectResponse("/console/policy", 303)


@page("POST", "/policy/explain")
async def explain(visit: Visit, agent: _Name, tool: _Name = "", arguments: _Arguments = "") -> Response:
    """Explain the decision about an example call."""
    values: dict[str, Any] = {"tool": tool, "arguments": arguments}
    try:
        example = ExampleCall(tool=tool.strip(), arguments=_parse_object(arguments))
        values["explained"] = await visit.service.policy_service.explain(visit.principal, agent, example)
    except InvalidRequestError as error:
        values["explain_problem"] = str(error)
    return await _render(visit, agent, values, 422 if "explain_problem" in values else 200)


@page("POST", "/policy/backtest")
async def backtest(visit: Visit, agent: _Name, policy: _Policy = "") -> Response:
    """Compare a draft policy with past decisions."""
    values: dict[str, Any] = {"policy_text": policy}
    try:
        tried = await visit.service.policy_service.backtest(visit.principal, agent, policy)
        flips = sorted(tried.result.flips, key=lambda flip: not flip.looser)[:MAX_FLIPS]
        values |= {"tried": tried, "flips": [(flip, build_outline(flip.arguments)) for flip in flips]}
    except (InvalidRequestError, UnavailableError) as error:
        values["backtest_problem"] = str(error)
    return await _render(visit, agent, values, 422 if "backtest_problem" in values else 200)


@page("GET", "/policy/suggestions")
async def suggest(visit: Visit, agent: str = "", rule: str = "") -> Response:
    """Render suggested rules, and rules that asked: of an agent, or of the first one that has this rule."""
    service, principal, agents = visit.service, visit.principal, _list_agents(visit)
    chosen = agent[:MAX_NAME_CHARS] or await _find_agent(service, principal, agents, rule)
    values: dict[str, Any] = {"report": None, "suggestions": (), "problem": ""}
    try:
        if chosen:
            report = await service.policy_service.suggest(principal, chosen, _MIN_APPROVALS)
            texts = [(each, to_yaml([each.rule])) for each in report.suggestions]
            values |= {"report": report, "suggestions": texts}
    except UnavailableError as error:
        values["problem"] = str(error)
    frame = {"agents": agents, "agent": chosen, "chosen_rule": rule}
    limits = {"min_count": _MIN_APPROVALS, "max_runs": SUGGESTION_RUNS}
    status = 503 if values["problem"] else 200
    return await visit.render("policy_suggestions.html", status=status, **(frame | limits | values))


def _list_agents(visit: Visit) -> list[str]:
    return [
        name
        for name in sorted(visit.service.runners.served_agents)
        if is_allowed(visit.principal, Operation.READ_POLICY, RunOwnershipData(agent=name))
    ]


async def _find_agent(service: Service, principal: Principal, agents: Sequence[str], rule: str) -> str:
    """Return the first agent that has the rule, else the first one; empty if there is none."""
    for name in agents if rule else ():
        shown = await service.policy_service.show(principal, name)
        if any(each.id == rule for each in shown.rules):
            return name
    return agents[0] if agents else ""


async def _render(visit: Visit, agent: str, values: dict[str, Any], status: int = 200) -> Response:
    principal, agents = visit.principal, _list_agents(visit)
    chosen = agent or (agents[0] if agents else "")
    shown = await visit.service.policy_service.show(principal, chosen) if chosen else None
    frame = {"agents": agents, "shown": shown, "max_runs": MAX_RUNS, "max_flips": MAX_FLIPS}
    return await visit.render("policy.html", status=status, **(_EMPTY_VALUES | frame | values))


def _parse_object(text: str) -> JsonObject:
    try:
        value = json.parse(text or "{}")
    except json.InvalidJsonError as error:
        raise InvalidRequestError("arguments", f"are no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequestError("arguments", 'have to be a JSON object, as in {"path": "a"}')
    return cast(JsonObject, value)
