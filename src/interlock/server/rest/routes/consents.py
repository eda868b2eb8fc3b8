"""Consents: requested and granted ones, and the redirect to the provider and back.

The provider sends the browser back with a navigation that began on another site, for which browsers keep a strict
cookie to themselves. So the first request is answered with a page that only loads the same address again,
from this site: then the cookie is sent, and the user is known.
"""

from collections.abc import Mapping
from html import escape
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlencode

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ...core.consent_service import (
    ConsentDecision,
    ConsentProblem,
    ConsentProblemCode,
    ConsentRedirect,
    ConsentService,
)
from ...core.errors import not_found_error
from ...core.identity.permissions import Operation
from ...core.service import Service
from ..caller import Call, PublicCall, authorize, session_cookie_name
from ..errors import ApiError
from ..routing import Routes
from ..schemas.accounts import ConsentAnswerResponse, ConsentList, ConsentRevocationResponse, ConsentStartResponse
from ..schemas.requests import RejectConsentRequest

route = Routes("consents")
#: Registered with providers under this address, which has no version.
callback_route = Routes("consents", prefix="")

_PathName = Annotated[str, Meta(max_length=256)]
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
_T = TypeVar("_T")


@route("GET", "/consents", Operation.OWN_CONSENTS, ConsentList)
async def list_consents(call: Call) -> dict[str, Any]:
    """List the consents that you are asked for, and those you gave. No tokens."""
    consents = call.service.consent_service
    if consents is None:
        return {"pending": (), "granted": ()}
    return {
        "pending": await consents.list_pending(call.principal),
        "granted": await consents.list_granted(call.principal),
    }


@callback_route("GET", "/consents/callback", None, hidden=True, limited=False)
async def finish_consent(call: PublicCall) -> Response:
    """Handle the callback of an OAuth provider."""
    request, parameters = call.request, _read_callback_parameters(call.request)
    if not request.cookies.get(session_cookie_name(request)):
        if _RELOADED in request.query_params:  # not signed in: the flow is over
            return RedirectResponse("/console/consents", 303)
        query = urlencode([*parameters.items(), (_RELOADED, "1")])
        return reload_same_site(call.service, f"/consents/callback?{query}")
    known = await authorize(request, Operation.OWN_CONSENTS)
    if call.service.consent_service is None or known.session is None:
        raise not_found_error("consent", "callback")
    session_id = known.session.session_id
    result = await call.service.consent_service.handle_callback(parameters, known.principal, session_id)
    if isinstance(result, ConsentDecision):
        return RedirectResponse(f"/console/runs/{quote(result.run_id, safe='')}", 303)
    return RedirectResponse(f"/console/consents?problem={result.code}", 303)


@route("POST", "/consents/{action_id}/start", Operation.CONSENT, ConsentStartResponse)
async def start_consent(call: Call, action_id: str) -> dict[str, str | None]:
    """Return the URL where your browser gives the consent. If you gave it meanwhile, the question is answered at
    once.
    """
    action, _ = await call.service.guard.get_action(call.principal, action_id, Operation.CONSENT)
    if call.session is None:
        raise not_found_error("action", action_id)
    consents = _require_service(call, "action", action_id)
    started = _require(await consents.start(call.principal, action_id, call.session.session_id))
    url = started.url if isinstance(started, ConsentRedirect) else None
    return {"url": url, "run_id": action.run_id, "action_id": action_id}


@route("POST", "/consents/{action_id}/reject", Operation.CONSENT, ConsentAnswerResponse)
async def reject_consent(call: Call, action_id: str, body: RejectConsentRequest) -> ConsentDecision:
    await call.service.guard.get_action(call.principal, action_id, Operation.CONSENT)
    consents = _require_service(call, "action", action_id)
    return _require(await consents.reject(call.principal, action_id, body.reason))


@route("DELETE", "/consents/{provider}/{tool}", Operation.OWN_CONSENTS, ConsentRevocationResponse)
async def revoke_consent(
    call: Call, provider: _PathName, tool: _PathName, agent: Annotated[str, Meta(max_length=8_192)] | None = None
) -> dict[str, bool]:
    """Revoke your consent for the tool: for one agent, or for every agent when `agent` is omitted."""
    consents = _require_service(call, "consent", f"{provider}/{tool}")
    return {"confirmed": _require(await consents.revoke(call.principal, provider, tool, agent))}


def reload_same_site(service: Service, path: str) -> HTMLResponse:
    """Return a page that navigates to an address of this server, from this site."""
    address = escape(service.settings.server.public_path + path)
    return HTMLResponse(
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={address}">'
        f'<title>Redirecting</title><p><a href="{address}">Continue</a></p>'
    )


def _read_callback_parameters(request: Request) -> dict[str, str]:
    return {
        name: value
        for name in _CALLBACK_PARAMETERS
        if (value := request.query_params.get(name)) is not None and len(value) <= _MAX_PARAMETER_CHARS
    }


def _require_service(call: Call, kind: str, name: str) -> ConsentService:
    if call.service.consent_service is None:
        raise not_found_error(kind, name)
    return call.service.consent_service


def _require(result: _T | ConsentProblem) -> _T:
    if isinstance(result, ConsentProblem):
        raise ApiError(_STATUS_BY_PROBLEM[result.code], f"consent_{result.code}", result.message, result.details)
    return result
