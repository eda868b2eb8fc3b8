"""Sign-in and sign-out. Both are plain forms, which work without scripts.

A visitor who is not signed in has no CSRF token; the server checks the origin of a sign-in before anything else.
"""

from typing import Annotated, NamedTuple

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ...core.identity.sessions import NewSession
from ...core.service import Service
from ...rest.routes.session import set_session_cookie
from ..rendering import PageRenderer
from ..session import (
    Visitor,
    clear_session_cookie,
    find_session,
    redirect_to_sign_in,
    require_form_token,
    sanitize_next,
)

_WRONG_SIGN_IN = "The name or the password is wrong."
_MAX_FIELD_CHARS = 1_024
_NOT_SIGNED_IN = "Nobody was signed in."
#: Why a callback of an identity provider failed, by the word in the address.
PROBLEM_MESSAGES: dict[str, str] = {
    "ended": "Your sign-in ended before that was sent. Nothing was done.",
    "denied": f"You did not agree to it there, or your account here is disabled. {_NOT_SIGNED_IN}",
    "no_account": f"You have no account here, and one of your name cannot be made. {_NOT_SIGNED_IN} Ask an admin.",
    "unavailable": f"The provider cannot be reached. {_NOT_SIGNED_IN} Try again later.",
}
_SIGN_IN_FAILED = (
    f"The way to the provider and back took too long, or did not begin in this browser. {_NOT_SIGNED_IN} Try again."
)

_Field = Annotated[str, Form(max_length=_MAX_FIELD_CHARS)]


class _SignInProblem(NamedTuple):
    status: int
    message: str


def routes(service: Service, pages: PageRenderer) -> APIRouter:
    router = APIRouter()
    oidc = "" if service.settings.sign_in is None else service.settings.sign_in.provider.name

    def form(wanted: str, problem: str = "", name: str = "", status: int = 200) -> HTMLResponse:
        return pages.render_public_page(
            "login.html", status=status, wanted=wanted, problem=problem, name=name, oidc=oidc
        )

    async def show(request: Request, next: str = "", problem: str = "") -> Response:
        if await find_session(request) is not None:
            return RedirectResponse(sanitize_next(next), 303)
        return form(sanitize_next(next), PROBLEM_MESSAGES.get(problem, _SIGN_IN_FAILED) if problem else "")

    async def sign_in(request: Request, name: _Field = "", password: _Field = "", wanted: _Field = "") -> Response:
        tried = await _try_sign_in(service, name, password, request.client.host if request.client else "")
        if isinstance(tried, _SignInProblem):
            return form(sanitize_next(wanted), tried.message, name, tried.status)
        response = RedirectResponse(sanitize_next(wanted), 303)
        set_session_cookie(response, request, tried)
        return response

    async def sign_out(request: Request, visitor: Visitor, csrf_token: _Field = "") -> Response:
        require_form_token(visitor, csrf_token)
        await service.sessions.end(visitor.session_id, by=visitor.principal.name)
        response = redirect_to_sign_in("")
        clear_session_cookie(response, request)
        return response

    router.add_api_route("/login", show, methods=["GET"])
    router.add_api_route("/login", sign_in, methods=["POST"])
    router.add_api_route("/logout", sign_out, methods=["POST"])
    return router


async def _try_sign_in(service: Service, name: str, password: str, address: str) -> NewSession | _SignInProblem:
    wait = service.login_throttle.start_attempt(name, address)
    if wait > 0:
        return _SignInProblem(429, f"There were too many attempts. Try again in {int(wait) + 1} seconds.")
    principal = await service.accounts.authenticate(name, password)
    new = None if principal is None else await service.sessions.start(name, detail={"address": address})
    if new is None:
        await service.audit_log.add(f"user:{name}", "session.started", outcome="refused", detail={"from": address})
        return _SignInProblem(401, _WRONG_SIGN_IN)
    service.login_throttle.record_success(name, address)
    return new
