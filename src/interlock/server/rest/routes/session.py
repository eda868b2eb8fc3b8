"""Sign-in and sign-out for browsers, the current identity, and one's own password."""

from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote, unquote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ....domain.errors import ConsentError
from ...core.consent_service import Callback, FlowRefusal
from ...core.errors import not_found_error
from ...core.identity.permissions import Operation
from ...core.identity.principal import IdentityProblem, Principal
from ...core.identity.sessions import NewSession
from ...core.service import Service
from ..caller import Call, PublicCall, get_address, is_https, session_cookie_name
from ..errors import ApiError, FieldProblem, invalid_request
from ..responses import Merged, build_response, json_response
from ..routing import Routes
from ..schemas.accounts import EndedSessions, MeResponse, SessionList
from ..schemas.requests import ChangePasswordRequest, SignInRequest
from .consents import reload_same_site

route = Routes("session")
#: The callback is registered with the provider under an address without a version.
sign_in_route = Routes("session", prefix="")

#: A signed-in user is redirected from there to the requested page.
_SIGN_IN_PATH = "/console/login"
#: In the cookie, beside what the browser is known by.
_MAX_NEXT_CHARS = 2_000
_OIDC_COOKIE = "interlock_sign_in"
_OIDC_SECONDS = 600
_WRONG_PASSWORD = ApiError(401, "wrong_password", "Unknown account or wrong password.")


@route("POST", "/session", None, MeResponse, status=201)
async def sign_in(call: PublicCall, body: SignInRequest) -> Response:
    """Sign in with a name and a password. The response sets the cookie, and has the value of `X-CSRF-Token`."""
    principal, new = await start_session(call.service, body.name, body.password, get_address(call.request))
    response = json_response(build_response(MeResponse, (principal, new.csrf, new.ends_at)), 201)
    set_session_cookie(response, call.request, new)
    return response


async def start_session(service: Service, name: str, password: str, address: str) -> tuple[Principal, NewSession]:
    """Start a session. Raise `ApiError` 401 when name or password are wrong, 429 after too many failures."""
    await check_attempt(service, name, address)
    principal = await service.accounts.authenticate(name, password)
    new = None if principal is None else await service.sessions.start(name, detail={"address": address})
    if principal is None or new is None:
        await service.audit_log.add(f"user:{name}", "session.started", outcome="refused", detail={"from": address})
        raise _WRONG_PASSWORD
    await service.login_throttle.record_success(name, address)
    return principal, new


async def check_attempt(service: Service, name: str, address: str) -> None:
    """Count an attempt to sign in. Raise `ApiError` 429 after too many failures."""
    wait = await service.login_throttle.start_attempt(name, address)
    if wait:
        raise ApiError(
            429,
            "too_many_attempts",
            f"Too many failed attempts. Try again in {wait:.0f} s.",
            headers={"Retry-After": str(max(1, round(wait)))},
        )


async def check_own_password(call: Call, password: str, field: str) -> None:
    """Raise `ApiError` 422 for a wrong password of the caller, 429 after too many of them."""
    service, name, address = call.service, get_account_name(call), get_address(call.request)
    await check_attempt(service, name, address)
    if await service.accounts.authenticate(name, password) is None:
        raise invalid_request(FieldProblem(field, "is not your password"))
    await service.login_throttle.record_success(name, address)


@route("DELETE", "/session", Operation.OWN_IDENTITY, status=204)
async def sign_out(call: Call) -> Response:
    """End this session. For an API key, nothing happens."""
    if call.session is not None:
        await call.service.sessions.end(call.session.session_id, by=call.principal.name)
    response = Response(status_code=204)
    clear_session_cookie(response, call.request)
    return response


@route("GET", "/me", Operation.OWN_IDENTITY, MeResponse)
async def get_me(call: Call) -> tuple[Principal, str | None, int]:
    """Return your identity and roles."""
    session = call.session
    return call.principal, session and session.csrf, session.ends_at if session else 0


@route("POST", "/me/password", Operation.OWN_ACCOUNT, status=204)
async def change_password(call: Call, body: ChangePasswordRequest) -> None:
    """Change your own password. All of your sessions end."""
    await check_own_password(call, body.current, "current")
    changed = await call.service.accounts.set_password(get_account_name(call), body.new, by=call.principal.name)
    if isinstance(changed, IdentityProblem):
        raise invalid_request(FieldProblem("new", changed.problem))


@route("GET", "/me/sessions", Operation.OWN_ACCOUNT, SessionList)
async def list_sessions(call: Call) -> dict[str, Any]:
    """List your sessions, newest first."""
    current = None if call.session is None else call.session.session_id
    rows = await call.service.sessions.list_by_account(get_account_name(call))
    return {"sessions": [Merged({"is_current": row.session_id == current}, row) for row in rows]}


@route("DELETE", "/me/sessions", Operation.OWN_ACCOUNT, EndedSessions)
async def end_other_sessions(call: Call) -> EndedSessions:
    """End all of your sessions but this one."""
    current = "" if call.session is None else call.session.session_id
    ended = await call.service.sessions.end_others(get_account_name(call), current, by=call.principal.name)
    return EndedSessions(ended=ended)


@route("DELETE", "/me/sessions/{name}", Operation.OWN_ACCOUNT, status=204)
async def end_session(call: Call, name: str) -> None:
    """End one of your sessions."""
    if not await call.service.sessions.end_own(get_account_name(call), name, by=call.principal.name):
        raise not_found_error("session", name)


@sign_in_route("GET", "/session/start", None, hidden=True)
async def start_sign_in(call: PublicCall, next: str = "") -> Response:
    """Redirect to the identity provider, if configured. `next` is the console page to return to."""
    if call.service.sign_in is None:
        raise ApiError(404, "no_provider", "No identity provider is configured ([sign_in]).")
    browser = token_urlsafe(32)
    try:
        url = await call.service.sign_in.begin(browser)
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
        secure=is_https(call.request),
    )
    return response


@sign_in_route("GET", "/session/callback", None, hidden=True)
async def finish_sign_in(call: PublicCall) -> Response:
    """Handle the callback of the identity provider."""
    request = call.request
    browser, _, next_page = unquote(request.cookies.get(_OIDC_COOKIE, "")).partition(".")
    new = await _start_oidc_session(request, call.service, browser)
    if isinstance(new, NewSession):
        response: Response = reload_same_site(call.service, _build_sign_in_url(next_page))
        set_session_cookie(response, request, new)
    else:
        response = _redirect_failed_sign_in(new, next_page)
    response.delete_cookie(_OIDC_COOKIE, path="/session", httponly=True, samesite="lax", secure=is_https(request))
    return response


def get_account_name(call: Call) -> str:
    """Return the name of the caller's account."""
    return call.principal.name.removeprefix("user:")


def set_session_cookie(response: Response, request: Request, new: NewSession) -> None:
    """Set the session cookie, not readable by scripts."""
    secure = is_https(request)
    response.set_cookie(
        session_cookie_name(request), new.token, path="/", httponly=True, samesite="strict", secure=secure
    )


def clear_session_cookie(response: Response, request: Request) -> None:
    """Delete the session cookie."""
    secure = is_https(request)
    response.delete_cookie(session_cookie_name(request), path="/", httponly=True, samesite="strict", secure=secure)


async def _start_oidc_session(request: Request, service: Service, browser: str) -> NewSession | str:
    """Return a session, or the error word."""
    if service.sign_in is None:
        raise ApiError(404, "no_provider", "No identity provider is configured ([sign_in]).")
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
    """Quote a page for an address or a cookie; empty if it is too long."""
    quoted = quote(next_page, safe="", errors="replace")
    return quoted if len(quoted) <= _MAX_NEXT_CHARS else ""
