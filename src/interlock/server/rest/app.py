"""The REST API as one ASGI application on top of the service."""

from fastapi import FastAPI
from fastapi.routing import APIRoute

from ... import __version__
from ..core.service import Service
from . import errors
from .limits import ConcurrencyLimiter, RateLimiter
from .openapi import install_openapi
from .routes import accounts, approvals, audit, consents, policy, public, run_contents, runs, session, streams
from .security import SecurityMiddleware

ROUTERS = (
    public.router,
    runs.router,
    streams.router,
    run_contents.router,
    approvals.router,
    consents.router,
    audit.router,
    policy.router,
    accounts.router,
    session.router,
)


def list_api_routes() -> list[APIRoute]:
    """Return all routes of the API."""
    return [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]


def create_api(service: Service) -> FastAPI:
    """Create the application for a service that its owner starts and stops."""
    app = FastAPI(
        title="Interlock",
        version=__version__,
        description="Runs of agents: begun, watched, approved, audited.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
    )
    server = service.settings.server
    app.state.service = service
    app.state.rate_limiter = RateLimiter(server.requests_per_second, server.request_burst)
    app.state.concurrency_limiter = ConcurrencyLimiter()
    for router in ROUTERS:
        app.include_router(router)
    errors.install_error_handlers(app)
    app.add_middleware(SecurityMiddleware, service=service, limiter=app.state.concurrency_limiter)
    install_openapi(app, list_api_routes())
    return app
