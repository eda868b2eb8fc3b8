"""Signing in and out. Both are plain forms, which work without scripts.

Somebody who is not signed in has no token to send back; that a sign-in comes from this page is told by its origin,
which the server looks at before anything else.
"""

from typing import Annotated, NamedTuple

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ...core.identity.sessions import NewSession
from ...core.service import Service
from ...rest.routes.session import set_session
from ..rendering import Pages
from ..session import Visitor, check_form, end_session, maybe_signed_in, safe_next, to_sign_in

_WRONG = "The name or the password is wrong."
_MAX_FIELD_CHARS = 1_024
_NOBODY = "Nobody was signed in."
#: Why somebody came back from an identity provider in vain, by the word in the address.
TROUBLE: dict[str, str] = {
    "ended": "Your sign-in ended before that was sent. Nothing was done.",
    "denied": f"You did not agree to it there, or your account here is disabled. {_NOBODY}",
    "no_account": f"You have no account here, and one of your name cannot be made. {_NOBODY} Ask an admin.",
    "unavailable": f"The provider cannot be reached. {_NOBODY} Try again later.",
}
_IN_VAIN = f"The way to the provider and back took too long, or did not begin in this browser. {_NOBODY} Try again."

_Field = Annotated[str, Form(max_length=_MAX_FIELD_CHARS)]


class _Problem(NamedTuple):
    status: int
    words: str


def routes(service: Service, pages: Pages) -> APIRouter:
    router = APIRouter()
    oidc = "" if service.settings.sign_in is None else service.settings.sign_in.provider.name

    def form(wanted: str, problem: str = "", name: str = "", status: int = 200) -> HTMLResponse:
        return pages.open_page("login.html", status=status, wanted=wanted, problem=problem, name=name, oidc=oidc)

    async def show(request: Request, next: str = "", problem: str = "") -> Response:
        if await maybe_signed_in(request) is not None:
            return RedirectResponse(safe_next(next), 303)
        return form(safe_next(next), TROUBLE.get(problem, _IN_VAIN) if problem else "")

    async def sign_in(request: Request, name: _Field = "", password: _Field = "", wanted: _Field = "") -> Response:
        tried = await _tried(service, name, password, request.client.host if request.client else "")
        if isinstance(tried, _Problem):
            return form(safe_next(wanted), tried.words, name, tried.status)
        response = RedirectResponse(safe_next(wanted), 303)
        set_session(response, request, tried)
        return response

    async def sign_out(request: Request, visitor: Visitor, csrf_token: _Field = "") -> Response:
        check_form(visitor, csrf_token)
        await service.sessions.end(visitor.session_id, by=visitor.principal.name)
        response = to_sign_in("")
        end_session(response, request)
        return response

    router.add_api_route("/login", show, methods=["GET"])
    router.add_api_route("/login", sign_in, methods=["POST"])
    router.add_api_route("/logout", sign_out, methods=["POST"])
    return router


async def _tried(service: Service, name: str, password: str, address: str) -> NewSession | _Problem:
    wait = service.attempts.start(name, address)
    if wait > 0:
        return _Problem(429, f"There were too many attempts. Try again in {int(wait) + 1} seconds.")
    who = await service.accounts.authenticate(name, password)
    new = None if who is None else await service.sessions.start(name, detail={"address": address})
    if new is None:
        await service.journal.add(f"user:{name}", "session.started", outcome="refused", detail={"from": address})
        return _Problem(401, _WRONG)
    service.attempts.succeeded(name, address)
    return new
