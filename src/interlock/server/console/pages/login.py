"""Sign-in and sign-out. Both are plain forms, which work without scripts.

A visitor who is not signed in has no CSRF token; the server checks the origin of a sign-in before anything else.
"""

from typing import Annotated
from urllib.parse import urlencode

from msgspec import Meta
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ...rest.caller import get_address
from ...rest.errors import ApiError
from ...rest.routes.consents import reload_same_site
from ...rest.routes.session import clear_session_cookie, set_session_cookie, start_session
from ..session import Pages, PublicVisit, Visit, find_session, redirect_to_sign_in, sanitize_next

_WRONG_SIGN_IN = "The name or the password is wrong."
_MAX_FIELD_CHARS = 1_024
_NOT_SIGNED_IN = "You are not signed in."
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

_Field = Annotated[str, Meta(max_length=_MAX_FIELD_CHARS)]


page = Pages()


@page("GET", "/login", public=True)
async def show(visit: PublicVisit, next: str = "", problem: str = "") -> Response:
    """Render the sign-in form. Redirect a person who is signed in."""
    if await find_session(visit.request) is not None:
        return RedirectResponse(sanitize_next(next), 303)
    if visit.request.headers.get("sec-fetch-site") == "cross-site" and not problem:
        # Browsers send the cookie of a session only from this site. Who follows a link of a notice may have one.
        return reload_same_site(visit.service, f"/console/login?{urlencode({'next': sanitize_next(next)})}")
    return _render_form(visit, next, PROBLEM_MESSAGES.get(problem, _SIGN_IN_FAILED) if problem else "")


@page("POST", "/login", public=True)
async def sign_in(visit: PublicVisit, name: _Field = "", password: _Field = "", wanted: _Field = "") -> Response:
    """Sign in with name and password."""
    try:
        _, new = await start_session(visit.service, name, password, get_address(visit.request))
    except ApiError as error:
        message = _WRONG_SIGN_IN if error.status == 401 else error.message  # noqa: PLR2004
        return _render_form(visit, wanted, message, name, error.status)
    response = RedirectResponse(sanitize_next(wanted), 303)
    set_session_cookie(response, visit.request, new)
    return response


@page("POST", "/logout")
async def sign_out(visit: Visit) -> Response:
    """End the session."""
    await visit.service.sessions.end(visit.session.session_id, by=visit.principal.name)
    response = redirect_to_sign_in("")
    clear_session_cookie(response, visit.request)
    return response


def _render_form(visit: PublicVisit, next_page: str, problem: str, name: str = "", status: int = 200) -> HTMLResponse:
    provider = visit.service.settings.sign_in
    return visit.pages.render_public_page(
        "login.html",
        status=status,
        wanted=sanitize_next(next_page),
        problem=problem,
        name=name,
        oidc="" if provider is None else provider.provider.name,
        has_passkeys=visit.service.passkeys.is_available,
    )
