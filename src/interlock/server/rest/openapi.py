"""The OpenAPI description: the routes of FastAPI, our own schemas, and the permissions."""

from collections.abc import Sequence
from typing import Any, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from ..core.identity.permissions import Operation
from . import body, encoding
from .caller import CSRF_HEADER, PermissionCheck

_SECURITY_SCHEMES = {
    "key": {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer ik_...`"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "interlock_session",
        "description": f"A sign-in of a browser; changes need `{CSRF_HEADER}`, too. `__Host-interlock` over TLS.",
    },
}
_ANY_CREDENTIAL: list[dict[str, list[str]]] = [{"key": []}, {"session": []}]


def get_operation(route: APIRoute) -> Operation | None:
    """Return the operation of a route; None: it is public, or authenticates in its own way."""
    found = (each.call for each in route.dependant.dependencies)
    return next((call.operation for call in found if isinstance(call, PermissionCheck)), None)


def install_openapi(app: FastAPI, routes: Sequence[APIRoute]) -> None:
    """Make `app.openapi` return the description, built once."""
    cached: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not cached:
            cached.update(_build_openapi(app, routes))
        return cached

    app.openapi = openapi


def _build_openapi(app: FastAPI, routes: Sequence[APIRoute]) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components: dict[str, Any] = document.setdefault("components", {})
    schemas: dict[str, Any] = components.setdefault("schemas", {})
    schemas.update(encoding.build_components(), **body.build_components())
    components["securitySchemes"] = _SECURITY_SCHEMES
    for route in routes:
        if route.include_in_schema and (operation := get_operation(route)):
            for method in route.methods or ():
                path_item = cast(dict[str, Any], document["paths"][route.path_format][method.lower()])
                path_item["security"] = _ANY_CREDENTIAL
                path_item["x-interlock-operation"] = operation.value
    return document
