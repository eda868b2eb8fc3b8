"""The visitor of a page: the person of the session cookie. Without one, redirect to the sign-in page."""

from typing import Annotated, cast
from urllib.parse import urlencode

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ..core.identity.sessions import AuthenticatedSession, is_valid_csrf_token
from ..core.service import Service
from ..rest.caller import SAFE_METHODS, get_concurrency_limiter, get_rate_limiter, is_https, session_cookie_name

HOME_PATH = "/console/"
SIGN_OUT_PATH = "/console/logout"
_MAX_NEXT_CHARS = 2_000


class NotSignedInError(Exception):
    """The visitor is not signed in. Its text is the requested page; `was_sending`: a form was sent, which is lost."""

    def __init__(self, next_page: str, lost_form: bool = False) -> None:
        super().__init__(next_page)
        self.lost_form = lost_form


class ForgedFormError(Exception):
    """A form came without the token of its page."""


def get_service(request: Request) -> Service:
    return cast(Service, request.app.state.service)


async def find_session(request: Request) -> AuthenticatedSession | None:
    token = request.cookies.get(session_cookie_name(request), "")
    return await get_service(request).sessions.authenticate(token) if token else None


async def require_session(request: Request) -> AuthenticatedSession:
    found = await find_session(request)
    if found is None:
        raise _not_signed_in_error(request)
    get_rate_limiter(request).acquire(found.principal.name)
    get_concurrency_limiter(request).acquire(request.scope, found.principal.name)
    # Before the page reads anything: what happens while it is drawn comes after this, so the page gets it as an event.
    request.state.live_after = get_service(request).index.position
    return found


Visitor = Annotated[AuthenticatedSession, Depends(require_session)]


def require_form_token(visitor: AuthenticatedSession, token: str) -> None:
    if not is_valid_csrf_token(visitor.csrf, token):
        raise ForgedFormError("This form is too old, or was not made by the console. Nothing was done. Load it again.")


def _not_signed_in_error(request: Request) -> NotSignedInError:
    """A form cannot be sent again by an address; what it is on can be shown."""
    path = request.url.path
    if request.method not in SAFE_METHODS:
        page = "/".join(path.split("/")[:3])
        return NotSignedInError("" if page == SIGN_OUT_PATH else page, page != SIGN_OUT_PATH)
    return NotSignedInError(path + (f"?{request.url.query}" if request.url.query else ""))


def redirect_to_sign_in(next_page: str, problem: str = "") -> RedirectResponse:
    parameters = {"next": "" if next_page == HOME_PATH else next_page, "problem": problem}
    query = urlencode({name: value for name, value in parameters.items() if value}, safe="/")
    return RedirectResponse(f"/console/login{f'?{query}' if query else ''}", 303)


def sanitize_next(next_page: str) -> str:
    """Return a page of the console, never an external address."""
    is_console_page = (
        next_page.startswith("/console/")
        and "\\" not in next_page
        and "//" not in next_page
        and next_page.isprintable()
    )
    return next_page if is_console_page and len(next_page) <= _MAX_NEXT_CHARS else HOME_PATH


def clear_session_cookie(response: Response, request: Request) -> None:
    response.delete_cookie(
        session_cookie_name(request), path="/", httponly=True, samesite="strict", secure=is_https(request)
    )
