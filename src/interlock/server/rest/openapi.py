"""The OpenAPI description: what FastAPI knows of the routes, the schemas of our own types, and who may call what."""

from collections.abc import Sequence
from typing import Any, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from ..core.identity.permissions import Operation
from . import body, encoding
from .caller import CSRF_HEADER, ForOperation

_SECURITY = {
    "key": {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer ik_...`"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "interlock_session",
        "description": f"A sign-in of a browser; changes need `{CSRF_HEADER}`, too. `__Host-interlock` over TLS.",
    },
}
_ANY: list[dict[str, list[str]]] = [{"key": []}, {"session": []}]


def operation_of(route: APIRoute) -> Operation | None:
    """What a route is for; None: it is open to everybody, or proves itself in its own way."""
    found = (each.call for each in route.dependant.dependencies)
    return next((call.operation for call in found if isinstance(call, ForOperation)), None)


def describe(app: FastAPI, routes: Sequence[APIRoute]) -> None:
    """Have `app.openapi` give it, made once."""
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            made.update(_described(app, routes))
        return made

    app.openapi = openapi


def _described(app: FastAPI, routes: Sequence[APIRoute]) -> dict[str, Any]:
    found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components: dict[str, Any] = found.setdefault("components", {})
    schemas: dict[str, Any] = components.setdefault("schemas", {})
    schemas.update(encoding.components(), **body.components())
    components["securitySchemes"] = _SECURITY
    for route in routes:
        if route.include_in_schema and (operation := operation_of(route)):
            for method in route.methods or ():
                told = cast(dict[str, Any], found["paths"][route.path_format][method.lower()])
                told["security"] = _ANY
                told["x-interlock-operation"] = operation.value
    return found
