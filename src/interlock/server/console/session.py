"""Visits of pages: the person of the session cookie, and what a page is drawn with. Without one, redirect to the
sign-in page. Forms are limited in size and time, like all other bodies, and carry the token of their page.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ..core.identity.principal import Principal
from ..core.identity.sessions import AuthenticatedSession, is_valid_csrf_token
from ..core.service import Service
from ..rest.body import read_body
from ..rest.caller import SAFE_METHODS, count_request, get_service, session_cookie_name
from ..rest.errors import ApiError, error_response
from ..rest.routing import HandlerArguments
from .rendering import PageRenderer

HOME_PATH = "/console/"
SIGN_OUT_PATH = "/console/logout"
MAX_FORM_BYTES = 512 << 10
_MAX_NEXT_CHARS = 2_000
_FORGED_FORM = ApiError(
    403, "csrf", "This form is too old, or was not made by the console. Nothing was done. Load it again."
)
_Handler = TypeVar("_Handler", bound=Callable[..., Awaitable[Response]])


class NotSignedInError(Exception):
    """The visitor is not signed in. Its text is the requested page; `lost_form`: a form was sent, which is lost."""

    def __init__(self, next_page: str, lost_form: bool = False) -> None:
        super().__init__(next_page)
        self.lost_form = lost_form


class PublicVisit(msgspec.Struct, frozen=True):
    """A request of a page."""

    request: Request
    service: Service
    pages: PageRenderer


class Visit(PublicVisit, frozen=True):
    """A page request of a person who is signed in."""

    session: AuthenticatedSession

    @property
    def principal(self) -> Principal:
        """The person who is signed in."""
        return self.session.principal

    async def render(self, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a page for this person."""
        return await self.pages.render_page(self.request, self.session, template, status=status, **values)


class PageRoute(Route):
    """A page, or a form that is sent."""

    def __init__(self, method: str, path: str, handler: Callable[..., Awaitable[Response]], public: bool) -> None:
        super().__init__(path, self._respond, methods=[method])
        self.methods = {method}
        self._handler, self._is_public = handler, public
        self._arguments = HandlerArguments(handler, path, "query" if method in SAFE_METHODS else "form")

    async def _respond(self, request: Request) -> Response:
        is_form, form = request.method not in SAFE_METHODS, dict[str, str]()
        if is_form:
            try:
                content = await read_body(request, MAX_FORM_BYTES)
            except ApiError as error:
                return error_response(error)
            form = dict(parse_qsl(content.decode(errors="replace"), keep_blank_values=True))
        service, pages = get_service(request), request.app.state.pages
        if self._is_public:
            return await self._handler(PublicVisit(request, service, pages), **self._arguments.read(request, form))
        visit = Visit(request, service, pages, await _require_session(request))
        if is_form and not is_valid_csrf_token(visit.session.csrf, form.get("csrf_token", "")):
            raise _FORGED_FORM
        return await self._handler(visit, **self._arguments.read(request, form))


class Pages(list[PageRoute]):
    """The pages of one module. Loose arguments of a handler come from the query string, or from the form."""

    def __call__(self, method: str, path: str, *, public: bool = False) -> Callable[[_Handler], _Handler]:
        def add(handler: _Handler) -> _Handler:
            self.append(PageRoute(method, path, handler, public))
            return handler

        return add


async def find_session(request: Request) -> AuthenticatedSession | None:
    """Return the session of the request, or None."""
    token = request.cookies.get(session_cookie_name(request), "")
    return await get_service(request).sessions.authenticate(token) if token else None


async def _require_session(request: Request) -> AuthenticatedSession:
    found = await find_session(request)
    if found is None:
        path = request.url.path
        if request.method in SAFE_METHODS:
            raise NotSignedInError(path + (f"?{request.url.query}" if request.url.query else ""))
        # A form cannot be sent again by an address; what it is on can be shown.
        page = "/".join(path.split("/")[:3])
        raise NotSignedInError("" if page == SIGN_OUT_PATH else page, page != SIGN_OUT_PATH)
    count_request(request, found.principal.name)
    # Before the page reads anything: what happens while it is drawn comes after this, so the page gets it as an event.
    request.state.live_after = get_service(request).index.position
    return found


def redirect_to_sign_in(next_page: str, problem: str = "") -> RedirectResponse:
    """Redirect to the sign-in form, which leads back to the page."""
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
