"""Sign-in and sign-out for browsers, the current identity, and one's own password."""

from secrets import token_urlsafe
from typing import Annotated
from urllib.parse import quote, unquote, urlencode

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from ....domain.errors import ConsentError
from ...core.consent_service import Callback, FlowRefusal
from ...core.identity.permissions import Operation
from ...core.identity.principal import IdentityProblem
from ...core.identity.sessions import NewSession
from ...core.service import Service
from ..body import declare_body, json_body
from ..caller import AddressLimit, Caller, ServiceDep, is_https, require_permission, session_cookie_name
from ..encoding import declare_responses, json_response, no_content_response
from ..errors import ApiError, FieldProblem, invalid_request
from ..schemas.accounts import MeResponse
from ..schemas.requests import ChangePasswordRequest, SignInRequest
from .consents import reload_same_site

router = APIRouter(tags=["session"])

#: A signed-in user is redirected from there to the requested page.
_SIGN_IN_PATH = "/console/login"
#: In the cookie, beside what the browser is known by.
_MAX_NEXT_CHARS = 2_000
_OIDC_COOKIE = "interlock_sign_in"
_OIDC_SECONDS = 600
_WRONG_PASSWORD = ApiError(401, "wrong_password", "There is no such account, or this is not its password.")


@router.post(
    "/session", operation_id="signIn", **declare_responses(MeResponse, status=201), **declare_body(SignInRequest)
)
async def sign_in(
    request: Request, _: AddressLimit, service: ServiceDep, body: Annotated[SignInRequest, json_body(SignInRequest)]
) -> Response:
    """Sign in with a name and a password. The response sets the cookie, and has the value of `X-CSRF-Token`."""
    address = request.client.host if request.client else ""
    wait = service.login_throttle.start_attempt(body.name, address)
    if wait:
        raise ApiError(
            429,
            "too_many_attempts",
            f"Too many failed attempts. Try again in {wait:.0f} s.",
            headers={"Retry-After": str(max(1, round(wait)))},
        )
    principal = await service.accounts.authenticate(body.name, body.password)
    new = None if principal is None else await service.sessions.start(body.name, detail={"address": address})
    if principal is None or new is None:
        await service.audit_log.add(f"user:{body.name}", "session.started", outcome="refused", detail={"from": address})
        raise _WRONG_PASSWORD
    service.login_throttle.record_success(body.name, address)
    response = json_response(MeResponse.from_domain(principal, new.csrf, new.ends_at), 201)
    set_session_cookie(response, request, new)
    return response


@router.delete("/session", operation_id="signOut", **declare_responses(None, status=204))
async def sign_out(
    request: Request, caller: Annotated[Caller, require_permission(Operation.OWN_IDENTITY)], service: ServiceDep
) -> Response:
    """End this session. For an API key, nothing happens."""
    if caller.session is not None:
        await service.sessions.end(caller.session.session_id, by=caller.principal.name)
    response = no_content_response()
    response.delete_cookie(
        session_cookie_name(request), path="/", httponly=True, samesite="strict", secure=is_https(request)
    )
    return response


@router.get("/me", operation_id="getMe", **declare_responses(MeResponse))
async def get_me(caller: Annotated[Caller, require_permission(Operation.OWN_IDENTITY)]) -> Response:
    """Return your identity and roles."""
    session = caller.session
    return json_response(
        MeResponse.from_domain(caller.principal, session and session.csrf, session.ends_at if session else 0)
    )


@router.post(
    "/me/password",
    operation_id="changePassword",
    **declare_responses(None, status=204),
    **declare_body(ChangePasswordRequest),
)
async def change_password(
    request: Request,
    caller: Annotated[Caller, require_permission(Operation.OWN_ACCOUNT)],
    service: ServiceDep,
    body: Annotated[ChangePasswordRequest, json_body(ChangePasswordRequest)],
) -> Response:
    """Change your own password. All of your sessions end."""
    name, address = caller.principal.name.removeprefix("user:"), request.client.host if request.client else ""
    if service.login_throttle.start_attempt(name, address):
        raise ApiError(429, "too_many_attempts", "Too many failed attempts.", headers={"Retry-After": "15"})
    if await service.accounts.authenticate(name, body.current) is None:
        raise invalid_request(FieldProblem(field="current", problem="is not your password"))
    service.login_throttle.record_success(name, address)
    changed = await service.accounts.set_password(name, body.new, by=caller.principal.name)
    if isinstance(changed, IdentityProblem):
        raise invalid_request(FieldProblem(field="new", problem=changed.problem))
    return no_content_response()


@router.get("/session/start", operation_id="startSignIn", include_in_schema=False)
async def start_sign_in(request: Request, _: AddressLimit, service: ServiceDep, next: str = "") -> Response:
    """Redirect to the identity provider, if configured. `next` is the console page to return to."""
    if service.sign_in is None:
        raise ApiError(404, "no_provider", "Signing in with a provider is not set up here.")
    browser = token_urlsafe(32)
    try:
        url = await service.sign_in.begin(browser)
    except ConsentError:
        return _redirect_failed_sign_in("unavailable", next)
    response = RedirectResponse(url, 303)
    response.set_cookie(
        _OIDC_COOKIE,
        f"{browser}.{_quote_next(next)}",
        max_age=_OIDC_SECONDS,
        path="/session",
        httponly=True,
        samesite="lax",
        secure=is_https(request),
    )
    return response


@router.get("/session/callback", operation_id="finishSignIn", include_in_schema=False)
async def finish_sign_in(request: Request, _: AddressLimit, service: ServiceDep) -> Response:
    """Handle the callback of the identity provider."""
    browser, _dot, next_page = unquote(request.cookies.get(_OIDC_COOKIE, "")).partition(".")
    new = await _start_oidc_session(request, service, browser)
    response = (
        reload_same_site(_build_sign_in_url(next_page))
        if isinstance(new, NewSession)
        else _redirect_failed_sign_in(new, next_page)
    )
    response.delete_cookie(_OIDC_COOKIE, path="/session", httponly=True, samesite="lax", secure=is_https(request))
    if isinstance(new, NewSession):
        set_session_cookie(response, request, new)
    return response


def set_session_cookie(response: Response, request: Request, new: NewSession) -> None:
    secure = is_https(request)
    response.set_cookie(
        session_cookie_name(request), new.token, path="/", httponly=True, samesite="strict", secure=secure
    )


async def _start_oidc_session(request: Request, service: Service, browser: str) -> NewSession | str:
    """Return a session, or the error word."""
    if service.sign_in is None:
        raise ApiError(404, "no_provider", "Signing in with a provider is not set up here.")
    parameters = {name: request.query_params.get(name, "")[:4_096] for name in ("state", "code", "error", "iss")}
    account = await service.sign_in.finish(Callback(**parameters), browser)
    if isinstance(account, FlowRefusal):
        await service.audit_log.add("", "session.started", outcome="refused", detail={"why": account.code})
        return account.code
    return await service.sessions.start(account.name, detail={"issuer": account.issuer}) or "denied"


def _redirect_failed_sign_in(problem: str, next_page: str) -> Response:
    """Redirect a person to a page that shows the problem."""
    return RedirectResponse(_build_sign_in_url(next_page, problem=problem), 303)


def _build_sign_in_url(next_page: str, **parameters: str) -> str:
    query = urlencode(parameters) + (f"&next={_quote_next(next_page)}" if _quote_next(next_page) else "")
    return f"{_SIGN_IN_PATH}?{query}"


def _quote_next(next_page: str) -> str:
    """For an address or a cookie. What is too long for these is not wanted that much."""
    quoted = quote(next_page, safe="", errors="replace")
    return quoted if len(quoted) <= _MAX_NEXT_CHARS else ""
