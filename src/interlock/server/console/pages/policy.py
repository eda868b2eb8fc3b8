"""The policy page: the rules of an agent, explanations of decisions, and backtests. All of it are forms that work
without scripts. Nothing here changes a policy.
"""

from typing import Annotated, Any, cast

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ....domain import json
from ....domain.ids import MAX_NAME_CHARS
from ....domain.json import JsonObject
from ...core.errors import InvalidRequestError, UnavailableError
from ...core.identity.permissions import Operation, RunOwnershipData, is_allowed
from ...core.identity.principal import Principal
from ...core.policy_service import MAX_ARGUMENTS_CHARS, MAX_POLICY_CHARS, MAX_RUNS, ExampleCall
from ...core.service import Service
from ..markup import build_outline
from ..rendering import PageRenderer
from ..session import Visitor, require_form_token

#: What is shown of a long answer; the count says how many there are.
MAX_FLIPS = 200

_Name = Annotated[str, Form(max_length=MAX_NAME_CHARS)]
_Token = Annotated[str, Form(max_length=1_024)]
# One more than is allowed, so that what is too long is said to be that, on the page.
_Arguments = Annotated[str, Form(max_length=MAX_ARGUMENTS_CHARS + 1)]
_Policy = Annotated[str, Form(max_length=MAX_POLICY_CHARS + 1)]

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


def routes(service: Service, pages: PageRenderer) -> APIRouter:
    router, page = APIRouter(), _PolicyPage(service, pages)
    router.add_api_route("/policy", page.show, methods=["GET"])
    router.add_api_route("/policy/explain", page.explain, methods=["POST"])
    router.add_api_route("/policy/backtest", page.backtest, methods=["POST"])
    router.add_api_route("/policy/explain", _redirect_to_policy, methods=["GET"])
    router.add_api_route("/policy/backtest", _redirect_to_policy, methods=["GET"])
    return router


async def _redirect_to_policy() -> RedirectResponse:
    """Redirect when the result of a form is reloaded."""
    return RedirectResponse("/console/policy", 303)


class _PolicyPage:
    def __init__(self, service: Service, pages: PageRenderer) -> None:
        self._service = service
        self._policies = service.policy_service
        self._pages = pages

    async def show(self, request: Request, visitor: Visitor, agent: str = "") -> Response:
        return await self._render(request, visitor, agent[:MAX_NAME_CHARS], {})

    async def explain(  # noqa: PLR0913 - one for each field
        self,
        request: Request,
        visitor: Visitor,
        *,
        agent: _Name,
        csrf_token: _Token,
        tool: _Name = "",
        arguments: _Arguments = "",
    ) -> Response:
        require_form_token(visitor, csrf_token)
        values: dict[str, Any] = {"tool": tool, "arguments": arguments}
        try:
            query = ExampleCall(tool=tool.strip(), arguments=_parse_object(arguments))
            values["explained"] = await self._policies.explain(visitor.principal, agent, query)
        except InvalidRequestError as error:
            values["explain_problem"] = str(error)
        return await self._render(request, visitor, agent, values, 422 if "explain_problem" in values else 200)

    async def backtest(
        self, request: Request, visitor: Visitor, agent: _Name, csrf_token: _Token, policy: _Policy = ""
    ) -> Response:
        require_form_token(visitor, csrf_token)
        values: dict[str, Any] = {"policy_text": policy}
        try:
            tried = await self._policies.backtest(visitor.principal, agent, policy)
            flips = sorted(tried.result.flips, key=lambda flip: not flip.looser)[:MAX_FLIPS]
            values |= {"tried": tried, "flips": [(flip, build_outline(flip.arguments)) for flip in flips]}
        except (InvalidRequestError, UnavailableError) as error:
            values["backtest_problem"] = str(error)
        return await self._render(request, visitor, agent, values, 422 if "backtest_problem" in values else 200)

    async def _render(
        self, request: Request, visitor: Visitor, agent: str, values: dict[str, Any], status: int = 200
    ) -> Response:
        principal = visitor.principal
        agents = self._readable_agents(principal)
        chosen = agent or (agents[0] if agents else "")
        shown = await self._policies.show(principal, chosen) if chosen else None
        frame = {"agents": agents, "shown": shown, "max_runs": MAX_RUNS, "max_flips": MAX_FLIPS}
        return await self._pages.render_page(
            request, visitor, "policy.html", status=status, **(_EMPTY_VALUES | frame | values)
        )

    def _readable_agents(self, principal: Principal) -> list[str]:
        """Those whose policy they may read."""
        served = sorted(self._service.runners.served_agents)
        return [name for name in served if is_allowed(principal, Operation.READ_POLICY, RunOwnershipData(agent=name))]


def _parse_object(text: str) -> JsonObject:
    try:
        value = json.parse(text or "{}")
    except json.InvalidJsonError as error:
        raise InvalidRequestError("arguments", f"are no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequestError("arguments", 'have to be a JSON object, as in {"path": "a"}')
    return cast(JsonObject, value)
