"""Consents: what a person is asked for, what they gave, and the way to the provider and back.

The provider sends the browser back with a navigation that began on another site, for which browsers keep a strict
cookie to themselves. So the first arrival is answered with a page that does nothing but load the same address again,
from here: then the cookie comes along, and it is known who came back.
"""

from collections.abc import Mapping
from html import escape
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ...core.consents import Answered, ConsentProblem, Goto, ProblemCode
from ...core.errors import unknown
from ...core.identity.permissions import Operation
from ..body import body, takes
from ..caller import Caller, ForOperation, Served, caller, cookie_name, service_of
from ..encoding import answer, answers
from ..errors import ApiError
from ..schemas.accounts import ConsentAnswered, ConsentList, ConsentRevoked, ConsentStarted, GivenShape, WaitingShape
from ..schemas.requests import RefuseWish

router = APIRouter(tags=["consents"])

_Own = Annotated[Caller, caller(Operation.OWN_CONSENTS)]
_Giving = Annotated[Caller, caller(Operation.CONSENT)]
_Name = Annotated[str, Path(max_length=256)]
_Agent = Annotated[str | None, Query(max_length=8_192)]
_STATUS: Mapping[ProblemCode, int] = {
    "unknown": 404,
    "not_yours": 403,
    "closed": 409,
    "refused": 400,
    "unavailable": 503,
}
_ARRIVED = "arrived"
_PARAMETERS = ("state", "code", "error", "error_description", "iss")
_MAX_PARAMETER_CHARS = 4_096


@router.get("/consents", operation_id="listConsents", **answers(ConsentList))
async def list_consents(by: _Own, service: Served) -> Response:
    """What you are asked for, and what you gave. No tokens."""
    if service.consenting is None:
        return answer(ConsentList(waiting=[], given=[]))
    waiting, given = await service.consenting.waiting(by.who), await service.consenting.given(by.who)
    return answer(ConsentList(waiting=list(map(WaitingShape.of, waiting)), given=list(map(GivenShape.of, given))))


@router.get("/consents/callback", operation_id="finishConsent", include_in_schema=False)
async def finish_consent(request: Request) -> Response:
    """Where providers send people back to."""
    if _ARRIVED not in request.query_params and not request.cookies.get(cookie_name(request)):
        return load_again(f"/consents/callback?{urlencode([*_given(request).items(), (_ARRIVED, '1')])}")
    service = service_of(request)
    if not request.cookies.get(cookie_name(request)):  # nobody is signed in: what was begun is over
        return RedirectResponse("/console/consents", 303)
    by = await ForOperation(Operation.OWN_CONSENTS)(request)
    if service.consenting is None or by.session is None:
        raise unknown("consent", "callback")
    came = await service.consenting.callback(_given(request), by.who, by.session.session_id)
    if isinstance(came, Answered):
        return RedirectResponse(f"/console/runs/{quote(came.run_id, safe='')}", 303)
    return RedirectResponse(f"/console/consents?problem={came.code}", 303)


@router.post("/consents/{action_id}/start", operation_id="startConsent", **answers(ConsentStarted))
async def start_consent(action_id: str, by: _Giving, service: Served) -> Response:
    """Where your browser has to go to give it. Where you gave it meanwhile, the question is answered at once."""
    action, _ = await service.guard.action(by.who, action_id, Operation.CONSENT)
    if service.consenting is None or by.session is None:
        raise unknown("action", action_id)
    began = await service.consenting.start(by.who, action_id, by.session.session_id)
    if isinstance(began, ConsentProblem):
        raise _problem(began)
    url = began.url if isinstance(began, Goto) else None
    return answer(ConsentStarted(url=url, run_id=action.run_id, action_id=action_id))


@router.post(
    "/consents/{action_id}/refuse",
    operation_id="refuseConsent",
    **answers(ConsentAnswered),
    **takes(RefuseWish, required=False),
)
async def refuse_consent(
    action_id: str, by: _Giving, service: Served, wish: Annotated[RefuseWish, body(RefuseWish)]
) -> Response:
    await service.guard.action(by.who, action_id, Operation.CONSENT)
    if service.consenting is None:
        raise unknown("action", action_id)
    came = await service.consenting.refuse(by.who, action_id, wish.reason)
    if isinstance(came, ConsentProblem):
        raise _problem(came)
    return answer(
        ConsentAnswered(run_id=came.run_id, action_id=came.action_id, approved=came.approved, also=list(came.also))
    )


@router.delete("/consents/{provider}/{tool}", operation_id="revokeConsent", **answers(ConsentRevoked))
async def revoke_consent(provider: _Name, tool: _Name, by: _Own, service: Served, agent: _Agent = None) -> Response:
    """Take back what you gave to the tool: of one agent, or of every agent when `agent` is left out."""
    if service.consenting is None:
        raise unknown("consent", f"{provider}/{tool}")
    came = await service.consenting.revoke(by.who, provider, tool, agent)
    if isinstance(came, ConsentProblem):
        raise _problem(came)
    return answer(ConsentRevoked(confirmed=came))


def load_again(path: str) -> HTMLResponse:
    """A page that leads to an address of this server, from here."""
    return HTMLResponse(
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={escape(path)}">'
        f'<title>One moment</title><p><a href="{escape(path)}">Go on</a></p>'
    )


def _given(request: Request) -> dict[str, str]:
    return {
        name: value
        for name in _PARAMETERS
        if (value := request.query_params.get(name)) is not None and len(value) <= _MAX_PARAMETER_CHARS
    }


def _problem(problem: ConsentProblem) -> ApiError:
    return ApiError(_STATUS[problem.code], f"consent_{problem.code}", problem.message, problem.details)
