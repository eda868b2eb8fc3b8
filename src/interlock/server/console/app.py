"""The console: pages under /console, rendered by the server, updated by the API's event stream."""

from collections.abc import Mapping

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ...domain.errors import ArtifactError, IllegalTransitionError, LogCorruptError, LogError
from ..core.errors import ServiceError
from ..core.service import Service
from ..rest.errors import RETRY_AFTER_SECONDS, STATUS_BY_ERROR, ApiError
from ..rest.limits import ConcurrencyLimiter, RateLimiter
from .assets import Assets
from .form_limits import FormBodyLimiter
from .pages import admin, audit, consents, dashboard, inbox, login, policy, run, runs
from .rendering import PageRenderer
from .session import HOME_PATH, ForgedFormError, NotSignedInError, find_session, redirect_to_sign_in

_TITLES = {
    403: "Not allowed",
    404: "Not here",
    405: "Not here",
    409: "Not now",
    422: "Not understood",
    429: "Too many requests",
    503: "Not now",
}
_RETRYABLE_STATUSES = (429, 503)
_DAMAGED_MESSAGE = "{}. It is not what was written, and is not shown; the audit page can verify it."
#: In this order: the first that fits.
_ERROR_MESSAGES: tuple[tuple[type[Exception], tuple[int, str]], ...] = (
    (ForgedFormError, (403, "{}")),
    (RequestValidationError, (422, "Something in the address or the form cannot be understood. Nothing was done.")),
    (LogCorruptError, (409, _DAMAGED_MESSAGE)),
    (IllegalTransitionError, (409, _DAMAGED_MESSAGE)),
    (ArtifactError, (409, _DAMAGED_MESSAGE)),
    (LogError, (503, "{}. Nothing is known to be done. Try again.")),
)


def mount_console(app: FastAPI, service: Service) -> None:
    """Mount the console beside the API, whose limits it shares."""
    for path in ("/", "/console"):
        app.add_api_route(path, _redirect_home, methods=["GET"], include_in_schema=False)
    app.mount("/console", create_console(service, app.state.rate_limiter, app.state.concurrency_limiter))


def create_console(service: Service, rate_limiter: RateLimiter, concurrency_limiter: ConcurrencyLimiter) -> FastAPI:
    """Create the console, with its own error pages where the API has JSON."""
    console = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    console.state.service = service
    console.state.rate_limiter, console.state.concurrency_limiter = rate_limiter, concurrency_limiter
    console.add_middleware(FormBodyLimiter)
    assets = Assets("/console/static")
    pages = PageRenderer(service, assets)
    for router in _build_routers(service, pages):
        console.include_router(router)

    async def static(request: Request, name: str) -> Response:
        return assets.respond(request, name)

    console.add_api_route("/static/{name}", static, methods=["GET"])
    _install_error_pages(console, pages)
    return console


def _build_routers(service: Service, pages: PageRenderer) -> list[APIRouter]:
    modules = (
        login,
        dashboard,
        runs,
        run,
        inbox,
        policy,
        consents,
        audit,
        admin,
    )
    return [module.routes(service, pages) for module in modules]


async def _redirect_home() -> RedirectResponse:
    return RedirectResponse(HOME_PATH, 303)


def _install_error_pages(console: FastAPI, pages: PageRenderer) -> None:
    async def not_signed_in(_: Request, error: Exception) -> Response:
        was_sending = isinstance(error, NotSignedInError) and error.lost_form
        return redirect_to_sign_in(str(error), "ended" if was_sending else "")

    async def problem(request: Request, error: Exception) -> Response:
        visitor = await find_session(request)
        if visitor is None:
            return redirect_to_sign_in("")
        status, words = _describe_error(error)
        title = _TITLES.get(status, "That did not work")
        page = await pages.render_page(request, visitor, "base_problem.html", status=status, title=title, words=words)
        page.headers.update(_error_headers(error, status))
        return page

    console.add_exception_handler(NotSignedInError, not_signed_in)
    for kind in (ServiceError, ApiError, HTTPException, *(kind for kind, _ in _ERROR_MESSAGES)):
        console.add_exception_handler(kind, problem)


def _error_headers(error: Exception, status: int) -> Mapping[str, str]:
    """Return the headers of an error response, such as `Retry-After`."""
    if isinstance(error, ApiError):
        return error.headers
    return {"Retry-After": RETRY_AFTER_SECONDS} if status in _RETRYABLE_STATUSES else {}


def _describe_error(error: Exception) -> tuple[int, str]:
    """The status, and the words for a person."""
    match error:
        case ServiceError():
            return next((status for kind, status in STATUS_BY_ERROR if isinstance(error, kind)), 400), str(error)
        case ApiError():
            return error.status, error.message
        case HTTPException():
            return error.status_code, "There is no such page, or it cannot be asked for in this way."
        case _:
            status, message = next(entry for kind, entry in _ERROR_MESSAGES if isinstance(error, kind))
            return status, message.format(error)
