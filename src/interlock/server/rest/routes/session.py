"""Signing in and out for browsers, who one is, and a password of one's own."""

from secrets import token_urlsafe
from typing import Annotated
from urllib.parse import quote, unquote, urlencode

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from ....domain.errors import ConsentError
from ...core.consents import Callback, Refused
from ...core.identity.permissions import Operation
from ...core.identity.sessions import NewSession
from ...core.identity.trust import Refusal
from ...core.service import Service
from ..body import body, takes
from ..caller import Caller, Knocked, Served, caller, cookie_name, is_secure
from ..encoding import answer, answers, no_content
from ..errors import ApiError, FieldProblem, invalid
from ..schemas.accounts import MeShape
from ..schemas.requests import PasswordWish, SignInWish
from .consents import load_again

router = APIRouter(tags=["session"])

#: Whoever is signed in is led on from there to the page that they wanted.
_SIGN_IN_PAGE = "/console/login"
#: In the cookie, beside what the browser is known by.
_MAX_WANTED_CHARS = 2_000
_OIDC_COOKIE = "interlock_sign_in"
_OIDC_SECONDS = 600
_WRONG = ApiError(401, "wrong_password", "There is no such account, or this is not its password.")


@router.post("/session", operation_id="signIn", **answers(MeShape, status=201), **takes(SignInWish))
async def sign_in(
    request: Request, _: Knocked, service: Served, wish: Annotated[SignInWish, body(SignInWish)]
) -> Response:
    """Sign in with a name and a password. The answer sets the cookie, and says what to send back as `X-CSRF-Token`."""
    address = request.client.host if request.client else ""
    wait = service.attempts.start(wish.name, address)
    if wait:
        raise ApiError(
            429,
            "too_many_attempts",
            f"Too many failed attempts. Try again in {wait:.0f} s.",
            headers={"Retry-After": str(max(1, round(wait)))},
        )
    who = await service.accounts.authenticate(wish.name, wish.password)
    new = None if who is None else await service.sessions.start(wish.name, detail={"address": address})
    if who is None or new is None:
        await service.journal.add(f"user:{wish.name}", "session.started", outcome="refused", detail={"from": address})
        raise _WRONG
    service.attempts.succeeded(wish.name, address)
    response = answer(MeShape.of(who, new.csrf, new.ends_at), 201)
    set_session(response, request, new)
    return response


@router.delete("/session", operation_id="signOut", **answers(None, status=204))
async def sign_out(
    request: Request, by: Annotated[Caller, caller(Operation.OWN_IDENTITY)], service: Served
) -> Response:
    """End this sign-in. For a key there is none, and nothing happens."""
    if by.session is not None:
        await service.sessions.end(by.session.session_id, by=by.who.name)
    response = no_content()
    response.delete_cookie(cookie_name(request), path="/", httponly=True, samesite="strict", secure=is_secure(request))
    return response


@router.get("/me", operation_id="getMe", **answers(MeShape))
async def get_me(by: Annotated[Caller, caller(Operation.OWN_IDENTITY)]) -> Response:
    """Who you are here, and what you are trusted with."""
    session = by.session
    return answer(MeShape.of(by.who, session and session.csrf, session.ends_at if session else 0))


@router.post("/me/password", operation_id="changePassword", **answers(None, status=204), **takes(PasswordWish))
async def change_password(
    request: Request,
    by: Annotated[Caller, caller(Operation.OWN_ACCOUNT)],
    service: Served,
    wish: Annotated[PasswordWish, body(PasswordWish)],
) -> Response:
    """Another password for yourself. All of your sign-ins end."""
    name, address = by.who.name.removeprefix("user:"), request.client.host if request.client else ""
    if service.attempts.start(name, address):
        raise ApiError(429, "too_many_attempts", "Too many failed attempts.", headers={"Retry-After": "15"})
    if await service.accounts.authenticate(name, wish.current) is None:
        raise invalid(FieldProblem(field="current", problem="is not your password"))
    service.attempts.succeeded(name, address)
    changed = await service.accounts.set_password(name, wish.new, by=by.who.name)
    if isinstance(changed, Refusal):
        raise invalid(FieldProblem(field="new", problem=changed.problem))
    return no_content()


@router.get("/session/start", operation_id="startSignIn", include_in_schema=False)
async def start_sign_in(request: Request, _: Knocked, service: Served, next: str = "") -> Response:
    """To the identity provider, where one is set up. `next` is the page of the console that is wanted afterwards."""
    if service.sign_in is None:
        raise ApiError(404, "no_provider", "Signing in with a provider is not set up here.")
    browser = token_urlsafe(32)
    try:
        url = await service.sign_in.begin(browser)
    except ConsentError:
        return _in_vain("unavailable", next)
    response = RedirectResponse(url, 303)
    response.set_cookie(
        _OIDC_COOKIE,
        f"{browser}.{_written(next)}",
        max_age=_OIDC_SECONDS,
        path="/session",
        httponly=True,
        samesite="lax",
        secure=is_secure(request),
    )
    return response


@router.get("/session/callback", operation_id="finishSignIn", include_in_schema=False)
async def finish_sign_in(request: Request, _: Knocked, service: Served) -> Response:
    """Back from the identity provider."""
    browser, _dot, wanted = unquote(request.cookies.get(_OIDC_COOKIE, "")).partition(".")
    new = await _vouched_for(request, service, browser)
    response = load_again(_sign_in_page(wanted)) if isinstance(new, NewSession) else _in_vain(new, wanted)
    response.delete_cookie(_OIDC_COOKIE, path="/session", httponly=True, samesite="lax", secure=is_secure(request))
    if isinstance(new, NewSession):
        set_session(response, request, new)
    return response


def set_session(response: Response, request: Request, new: NewSession) -> None:
    secure = is_secure(request)
    response.set_cookie(cookie_name(request), new.token, path="/", httponly=True, samesite="strict", secure=secure)


async def _vouched_for(request: Request, service: Service, browser: str) -> NewSession | str:
    """A sign-in, or the word for why there is none."""
    if service.sign_in is None:
        raise ApiError(404, "no_provider", "Signing in with a provider is not set up here.")
    given = {name: request.query_params.get(name, "")[:4_096] for name in ("state", "code", "error", "iss")}
    account = await service.sign_in.finish(Callback(**given), browser)
    if isinstance(account, Refused):
        await service.journal.add("", "session.started", outcome="refused", detail={"why": account.code})
        return account.code
    return await service.sessions.start(account.name, detail={"issuer": account.issuer}) or "denied"


def _in_vain(why: str, wanted: str) -> Response:
    """It is a person who comes this way, so the words for it are on a page."""
    return RedirectResponse(_sign_in_page(wanted, problem=why), 303)


def _sign_in_page(wanted: str, **more: str) -> str:
    said = urlencode(more) + (f"&next={_written(wanted)}" if _written(wanted) else "")
    return f"{_SIGN_IN_PAGE}?{said}"


def _written(wanted: str) -> str:
    """For an address or a cookie. What is too long for these is not wanted that much."""
    written = quote(wanted, safe="", errors="replace")
    return written if len(written) <= _MAX_WANTED_CHARS else ""
