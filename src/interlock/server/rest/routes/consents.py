"""Consents: requested and granted ones, and the redirect to the provider and back.

The provider sends the browser back with a navigation that began on another site, for which browsers keep a strict
cookie to themselves. So the first request is answered with a page that only loads the same address again,
from this site: then the cookie is sent, and the user is known.
"""

from collections.abc import Mapping
from html import escape
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ...core.consent_service import ConsentDecision, ConsentProblem, ConsentProblemCode, ConsentRedirect
from ...core.errors import not_found_error
from ...core.identity.permissions import Operation
from ..body import declare_body, json_body
from ..caller import Caller, PermissionCheck, ServiceDep, get_service, require_permission, session_cookie_name
from ..encoding import declare_responses, json_response
from ..errors import ApiError
from ..schemas.accounts import (
    ConsentAnswerResponse,
    ConsentList,
    ConsentRevocationResponse,
    ConsentStartResponse,
    GrantedConsentResponse,
    PendingConsentResponse,
)
from ..schemas.requests import RefuseRequest

router = APIRouter(tags=["consents"])

_ConsentOwner = Annotated[Caller, require_permission(Operation.OWN_CONSENTS)]
_ConsentGiver = Annotated[Caller, require_permission(Operation.CONSENT)]
_PathName = Annotated[str, Path(max_length=256)]
_AgentQuery = Annotated[str | None, Query(max_length=8_192)]
_STATUS_BY_PROBLEM: Mapping[ConsentProblemCode, int] = {
    "unknown": 404,
    "not_yours": 403,
    "closed": 409,
    "refused": 400,
    "unavailable": 503,
}
_RELOADED = "arrived"
_CALLBACK_PARAMETERS = ("state", "code", "error", "error_description", "iss")
_MAX_PARAMETER_CHARS = 4_096


@router.get("/consents", operation_id="listConsents", **declare_responses(ConsentList))
async def list_consents(caller: _ConsentOwner, service: ServiceDep) -> Response:
    """List the consents that you are asked for, and those you gave. No tokens."""
    if service.consent_service is None:
        return json_response(ConsentList(waiting=[], given=[]))
    waiting, given = (
        await service.consent_service.list_pending(caller.principal),
        await service.consent_service.list_granted(caller.principal),
    )
    return json_response(
        ConsentList(
            waiting=list(map(PendingConsentResponse.from_domain, waiting)),
            given=list(map(GrantedConsentResponse.from_domain, given)),
        )
    )


@router.get("/consents/callback", operation_id="finishConsent", include_in_schema=False)
async def finish_consent(request: Request) -> Response:
    """Handle the callback of an OAuth provider."""
    if _RELOADED not in request.query_params and not request.cookies.get(session_cookie_name(request)):
        return reload_same_site(
            f"/consents/callback?{urlencode([*_read_callback_parameters(request).items(), (_RELOADED, '1')])}"
        )
    service = get_service(request)
    if not request.cookies.get(session_cookie_name(request)):  # not signed in: the flow is over
        return RedirectResponse("/console/consents", 303)
    caller = await PermissionCheck(Operation.OWN_CONSENTS)(request)
    if service.consent_service is None or caller.session is None:
        raise not_found_error("consent", "callback")
    result = await service.consent_service.handle_callback(
        _read_callback_parameters(request), caller.principal, caller.session.session_id
    )
    if isinstance(result, ConsentDecision):
        return RedirectResponse(f"/console/runs/{quote(result.run_id, safe='')}", 303)
    return RedirectResponse(f"/console/consents?problem={result.code}", 303)


@router.post("/consents/{action_id}/start", operation_id="startConsent", **declare_responses(ConsentStartResponse))
async def start_consent(action_id: str, caller: _ConsentGiver, service: ServiceDep) -> Response:
    """Return the URL where your browser gives the consent. If you gave it meanwhile, the question is answered at
    once.
    """
    action, _ = await service.guard.get_action(caller.principal, action_id, Operation.CONSENT)
    if service.consent_service is None or caller.session is None:
        raise not_found_error("action", action_id)
    started = await service.consent_service.start(caller.principal, action_id, caller.session.session_id)
    if isinstance(started, ConsentProblem):
        raise _to_api_error(started)
    url = started.url if isinstance(started, ConsentRedirect) else None
    return json_response(ConsentStartResponse(url=url, run_id=action.run_id, action_id=action_id))


@router.post(
    "/consents/{action_id}/refuse",
    operation_id="refuseConsent",
    **declare_responses(ConsentAnswerResponse),
    **declare_body(RefuseRequest, required=False),
)
async def refuse_consent(
    action_id: str, caller: _ConsentGiver, service: ServiceDep, body: Annotated[RefuseRequest, json_body(RefuseRequest)]
) -> Response:
    await service.guard.get_action(caller.principal, action_id, Operation.CONSENT)
    if service.consent_service is None:
        raise not_found_error("action", action_id)
    result = await service.consent_service.refuse(caller.principal, action_id, body.reason)
    if isinstance(result, ConsentProblem):
        raise _to_api_error(result)
    return json_response(
        ConsentAnswerResponse(
            run_id=result.run_id, action_id=result.action_id, approved=result.approved, also=list(result.also)
        )
    )


@router.delete(
    "/consents/{provider}/{tool}", operation_id="revokeConsent", **declare_responses(ConsentRevocationResponse)
)
async def revoke_consent(
    provider: _PathName, tool: _PathName, caller: _ConsentOwner, service: ServiceDep, agent: _AgentQuery = None
) -> Response:
    """Revoke your consent for the tool: for one agent, or for every agent when `agent` is omitted."""
    if service.consent_service is None:
        raise not_found_error("consent", f"{provider}/{tool}")
    result = await service.consent_service.revoke(caller.principal, provider, tool, agent)
    if isinstance(result, ConsentProblem):
        raise _to_api_error(result)
    return json_response(ConsentRevocationResponse(confirmed=result))


def reload_same_site(path: str) -> HTMLResponse:
    """Return a page that navigates to an address of this server, from this site."""
    return HTMLResponse(
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={escape(path)}">'
        f'<title>One moment</title><p><a href="{escape(path)}">Go on</a></p>'
    )


def _read_callback_parameters(request: Request) -> dict[str, str]:
    return {
        name: value
        for name in _CALLBACK_PARAMETERS
        if (value := request.query_params.get(name)) is not None and len(value) <= _MAX_PARAMETER_CHARS
    }


def _to_api_error(problem: ConsentProblem) -> ApiError:
    return ApiError(_STATUS_BY_PROBLEM[problem.code], f"consent_{problem.code}", problem.message, problem.details)
