"""The console: pages under /console, rendered by the server, updated by the API's event stream."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from ..core.service import Service
from ..rest.errors import install_error_handlers, to_api_error
from .assets import Assets
from .pages import (
    account,
    admin,
    agents,
    audit,
    consents,
    dashboard,
    inbox,
    login,
    notices,
    policy,
    run,
    runs,
    servers,
    sinks,
    triggers,
)
from .rendering import PageRenderer
from .session import HOME_PATH, NotSignedInError, find_session, redirect_to_sign_in

_TITLES = {
    403: "Not allowed",
    404: "Not found",
    405: "Not found",
    409: "Conflict",
    422: "Invalid request",
    429: "Too many requests",
    503: "Unavailable",
}
_NO_PAGE = "Unknown page."


def mount_console(app: Starlette, service: Service) -> None:
    """Mount the console beside the API, whose limits it shares. It has its own error pages where the API has JSON."""
    assets = Assets("/console/static", public_path=service.settings.server.public_path)
    pages = PageRenderer(service, assets)

    async def static(request: Request) -> Response:
        return assets.respond(request, request.path_params["name"])

    work = (dashboard, agents, triggers, runs, run, inbox, policy, servers)
    modules = (login, *work, consents, audit, sinks, admin, account, notices)
    routes = [page for module in modules for page in module.page]
    console = Starlette(routes=[*routes, Route("/static/{name}", static)])
    console.state.service, console.state.pages = service, pages
    console.state.rate_limiter = app.state.rate_limiter
    console.state.concurrency_limiter = app.state.concurrency_limiter
    _install_error_pages(console, pages)
    app.routes.extend([Route("/", _redirect_home), Route("/console", _redirect_home), Mount("/console", console)])


async def _redirect_home(_: Request) -> RedirectResponse:
    return RedirectResponse(HOME_PATH, 303)


def _install_error_pages(console: Starlette, pages: PageRenderer) -> None:
    async def not_signed_in(_: Request, error: Exception) -> Response:
        was_sending = isinstance(error, NotSignedInError) and error.lost_form
        return redirect_to_sign_in(str(error), "ended" if was_sending else "")

    async def problem(request: Request, error: Exception) -> Response:
        visitor, found = await find_session(request), to_api_error(error)
        if visitor is None:
            return redirect_to_sign_in("")
        message = _NO_PAGE if isinstance(error, HTTPException) else found.message
        title = _TITLES.get(found.status, "Error")
        page = await pages.render_page(
            request, visitor, "base_problem.html", status=found.status, title=title, words=message
        )
        page.headers.update(found.headers)
        return page

    console.add_exception_handler(NotSignedInError, not_signed_in)
    install_error_handlers(console, problem)
