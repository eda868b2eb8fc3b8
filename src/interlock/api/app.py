"""The REST API as one ASGI application. Everything that it does, it asks the service for."""

from fastapi import FastAPI
from fastapi.routing import APIRoute

from .. import __version__
from ..server.core.service import Service
from . import (
    errors,
    routes_audit,
    routes_consents,
    routes_decisions,
    routes_inside,
    routes_open,
    routes_people,
    routes_policy,
    routes_runs,
    routes_session,
    routes_streams,
)
from .crowd import Crowd
from .description import describe
from .rate import Rates
from .safety import Safety

ROUTERS = (
    routes_open.router,
    routes_runs.router,
    routes_streams.router,
    routes_inside.router,
    routes_decisions.router,
    routes_consents.router,
    routes_audit.router,
    routes_policy.router,
    routes_people.router,
    routes_session.router,
)


def api_routes() -> list[APIRoute]:
    """Every address that the API has."""
    return [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]


def make_api(service: Service) -> FastAPI:
    """The application for a service that its owner starts and stops."""
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
    app.state.rates = Rates(server.requests_per_second, server.request_burst)
    app.state.crowd = Crowd()
    for router in ROUTERS:
        app.include_router(router)
    errors.install(app)
    app.add_middleware(Safety, service=service, crowd=app.state.crowd)
    describe(app, api_routes())
    return app
