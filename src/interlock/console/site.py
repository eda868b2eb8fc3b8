"""The console: pages under /console, drawn by the server, kept live by the API's event stream."""

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ..service.errors import ConflictError, InvalidError, NotFoundError, RefusedError, ServiceError
from ..service.service import Service
from . import (
    admin_page,
    audit_page,
    consents_page,
    dashboard_page,
    inbox_page,
    login_page,
    policy_page,
    run_page,
    runs_page,
)
from .assets import Assets
from .entrance import HOME, ForgedFormError, NotSignedInError, maybe_signed_in, to_sign_in
from .pages import Pages

_STATUS: dict[type[ServiceError], int] = {NotFoundError: 404, RefusedError: 403, ConflictError: 409, InvalidError: 422}
_TITLES = {404: "Not here", 403: "Not allowed", 409: "Not now", 422: "Not understood"}


def mount_console(app: FastAPI, service: Service) -> None:
    app.mount("/console", make_console(service))
    app.add_api_route("/", _home, methods=["GET"], include_in_schema=False)


def make_console(service: Service) -> FastAPI:
    """By itself, with answers of its own to what goes wrong: pages, where the API has JSON."""
    console = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    console.state.service = service
    assets = Assets("/console/static")
    pages = Pages(service, assets)
    for router in _routers(service, pages):
        console.include_router(router)

    async def static(request: Request, name: str) -> Response:
        return assets.respond(request, name)

    console.add_api_route("/static/{name}", static, methods=["GET"])
    _answer_problems(console, pages)
    return console


def _routers(service: Service, pages: Pages) -> list[APIRouter]:
    modules = (
        login_page,
        dashboard_page,
        runs_page,
        run_page,
        inbox_page,
        policy_page,
        consents_page,
        audit_page,
        admin_page,
    )
    return [module.routes(service, pages) for module in modules]


async def _home() -> RedirectResponse:
    return RedirectResponse(HOME, 303)


def _answer_problems(console: FastAPI, pages: Pages) -> None:
    async def problem(request: Request, status: int, words: str) -> Response:
        visitor = await maybe_signed_in(request)
        if visitor is None:
            return to_sign_in("")
        title = _TITLES.get(status, "That did not work")
        return await pages.page(request, visitor, "base_problem.html", status=status, title=title, words=words)

    async def not_signed_in(request: Request, error: Exception) -> Response:
        assert isinstance(error, NotSignedInError)  # noqa: S101 - what it is registered for
        return to_sign_in(error.wanted)

    async def refused(request: Request, error: Exception) -> Response:
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 400)
        return await problem(request, status, str(error))

    async def forged(request: Request, error: Exception) -> Response:
        return await problem(request, 403, str(error))

    async def http(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 400
        return await problem(request, status, "There is no such page, or it cannot be asked for in this way.")

    console.add_exception_handler(NotSignedInError, not_signed_in)
    console.add_exception_handler(ServiceError, refused)
    console.add_exception_handler(ForgedFormError, forged)
    console.add_exception_handler(HTTPException, http)
