"""Who looks at a page: the person whose sign-in the cookie names. Without one, the way leads to the sign-in page."""

from typing import Annotated, cast
from urllib.parse import urlencode

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ..core.identity.sessions import SignedIn, is_csrf
from ..core.service import Service
from ..rest.caller import SAFE_METHODS, cookie_name, crowd_of, is_secure, rates_of

HOME = "/console/"
SIGN_OUT = "/console/logout"
_MAX_NEXT_CHARS = 2_000


class NotSignedInError(Exception):
    """Nobody is signed in. Its text is the page that they wanted; `was_sending`: they sent a form, which is lost."""

    def __init__(self, wanted: str, was_sending: bool = False) -> None:
        super().__init__(wanted)
        self.was_sending = was_sending


class ForgedFormError(Exception):
    """A form came without the token of its page."""


def service_of(request: Request) -> Service:
    return cast(Service, request.app.state.service)


async def maybe_signed_in(request: Request) -> SignedIn | None:
    token = request.cookies.get(cookie_name(request), "")
    return await service_of(request).sessions.authenticate(token) if token else None


async def signed_in(request: Request) -> SignedIn:
    found = await maybe_signed_in(request)
    if found is None:
        raise _not_signed_in(request)
    rates_of(request).take(found.principal.name)
    crowd_of(request).known(request.scope, found.principal.name)
    # Before the page reads anything: what happens while it is drawn comes after this, so the page is told of it.
    request.state.live_after = service_of(request).index.position
    return found


Visitor = Annotated[SignedIn, Depends(signed_in)]


def check_form(visitor: SignedIn, token: str) -> None:
    if not is_csrf(visitor.csrf, token):
        raise ForgedFormError("This form is too old, or was not made by the console. Nothing was done. Load it again.")


def _not_signed_in(request: Request) -> NotSignedInError:
    """A form cannot be sent again by an address; what it is on can be shown."""
    path = request.url.path
    if request.method not in SAFE_METHODS:
        page = "/".join(path.split("/")[:3])
        return NotSignedInError("" if page == SIGN_OUT else page, page != SIGN_OUT)
    return NotSignedInError(path + (f"?{request.url.query}" if request.url.query else ""))


def to_sign_in(wanted: str, problem: str = "") -> RedirectResponse:
    given = {"next": "" if wanted == HOME else wanted, "problem": problem}
    after = urlencode({name: value for name, value in given.items() if value}, safe="/")
    return RedirectResponse(f"/console/login{f'?{after}' if after else ''}", 303)


def safe_next(wanted: str) -> str:
    """A page of the console, and never a way out of it."""
    is_ours = wanted.startswith("/console/") and "\\" not in wanted and "//" not in wanted and wanted.isprintable()
    return wanted if is_ours and len(wanted) <= _MAX_NEXT_CHARS else HOME


def end_session(response: Response, request: Request) -> None:
    response.delete_cookie(cookie_name(request), path="/", httponly=True, samesite="strict", secure=is_secure(request))
