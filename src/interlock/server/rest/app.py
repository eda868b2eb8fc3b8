"""The REST API as one ASGI application on top of the service."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..core.service import Service
from .caller import get_service
from .errors import install_error_handlers, respond_with_error
from .limits import ConcurrencyLimiter, RateLimiter
from .openapi import build_openapi
from .public_path import PublicPathMiddleware
from .responses import json_response
from .routes import (
    accounts,
    approvals,
    audit,
    budgets,
    consents,
    inbox,
    mcp,
    notices,
    passkeys,
    policy,
    public,
    run_contents,
    runs,
    session,
    statistics,
    streams,
    switches,
)
from .security import SecurityMiddleware

API_ROUTES = (
    *public.route,
    *runs.route,
    *switches.route,
    *statistics.route,
    *budgets.route,
    *streams.route,
    *run_contents.route,
    *approvals.route,
    *inbox.route,
    *consents.route,
    *consents.callback_route,
    *audit.route,
    *notices.route,
    *policy.route,
    *mcp.route,
    *accounts.route,
    *session.route,
    *passkeys.route,
    *session.sign_in_route,
)


def create_api(service: Service) -> Starlette:
    """Create the application for a service that its owner starts and stops."""
    app = Starlette(routes=[*API_ROUTES, Route("/openapi.json", _show_openapi)])
    app.router.redirect_slashes = False
    server = service.settings.server
    app.state.service = service
    app.state.rate_limiter = RateLimiter(server.requests_per_second, server.request_burst)
    app.state.concurrency_limiter = ConcurrencyLimiter()
    install_error_handlers(app, respond_with_error)
    app.add_middleware(SecurityMiddleware, service=service, limiter=app.state.concurrency_limiter)
    if server.public_path:
        app.add_middleware(PublicPathMiddleware, path=server.public_path)
    return app


async def _show_openapi(request: Request) -> Response:
    return json_response(build_openapi(API_ROUTES, get_service(request).public_url))
