"""The OpenAPI description, built from the routes: their paths, arguments, responses and permissions."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from inspect import getdoc
from typing import Any, cast

import msgspec

from ... import __version__
from .caller import CSRF_HEADER
from .errors import ErrorResponse
from .responses import JSON_MEDIA_TYPE
from .routing import ApiRoute

_SECURITY_SCHEMES = {
    "key": {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer ik_...`"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "interlock_session",
        "description": f"Session of a browser; changes require `{CSRF_HEADER}`, too. Over TLS its name is "
        "`__Host-interlock`, or `__Secure-interlock` below a path.",
    },
}
#: Errors that nearly every route may return.
_ERROR_DESCRIPTIONS: Mapping[int, str] = {
    400: "Malformed request.",
    401: "Missing or invalid credentials.",
    403: "Not allowed. Nothing was done.",
    404: "Not found, or not visible to you.",
    405: "Method not supported.",
    408: "The body did not arrive in time.",
    409: "Conflict with an earlier decision or with the current state; see `details`.",
    410: "The run was archived or erased; the message says where it is, or who did it.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    421: "The Host header is not a name of this server.",
    422: "Validation failed; see `details.fields`.",
    429: "Too many requests; see Retry-After.",
    500: "Internal error; the server log has details under the id.",
    503: "Temporarily unavailable; see Retry-After.",
}
_get_schemas = partial(msgspec.json.schema_components, ref_template="#/components/schemas/{name}")


def build_openapi(routes: Sequence[ApiRoute], server_url: str = "/") -> dict[str, Any]:
    """Build the description of these routes of a server. Paths are below its URL."""
    described = [route for route in routes if route.include_in_schema]
    types = [each for route in described for each in (*_list_returned(route), route.arguments.body) if each is not None]
    unique = list({repr(each): each for each in (*types, ErrorResponse)}.values())
    schemas, components = _get_schemas(unique)
    references = dict(zip(map(repr, unique), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in described:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_route(route, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Interlock",
            "version": __version__,
            "description": "Start, watch, approve and audit runs of agents.",
        },
        "servers": [{"url": server_url}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SECURITY_SCHEMES},
    }


def _list_returned(route: ApiRoute) -> tuple[Any, ...]:
    """Return the alternatives of its response."""
    returned: Any = route.returns
    return cast(tuple[Any, ...], returned) if isinstance(returned, tuple) else (returned,)


def _describe_route(route: ApiRoute, references: Mapping[str, Any]) -> dict[str, Any]:
    name, body = route.handler.__name__ + ("_alias" if route.alias_of else ""), route.arguments.body
    first, *rest = name.split("_")
    described: dict[str, Any] = {
        "tags": [route.tag],
        "summary": name.replace("_", " ").title(),
        "operationId": first + "".join(word.capitalize() for word in rest),
        "responses": {str(status): found for status, found in _describe_responses(route, references).items()},
    }
    if documentation := getdoc(route.handler):
        described["description"] = documentation
    if route.alias_of:
        described |= {
            "description": f"Alias of `{route.method} {route.alias_of}`.",
            "x-interlock-alias-of": route.alias_of,
        }
    if parameters := list(_describe_parameters(route)):
        described["parameters"] = parameters
    if body is not None:
        described["requestBody"] = {
            "required": any(field.required for field in msgspec.structs.fields(body)),
            "content": {JSON_MEDIA_TYPE: {"schema": references[repr(body)]}},
        }
    if route.operation is not None:
        described |= {"security": [{"key": []}, {"session": []}], "x-interlock-operation": route.operation.value}
    return described | dict(route.openapi)


def _describe_responses(route: ApiRoute, references: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    error = {JSON_MEDIA_TYPE: {"schema": references[repr(ErrorResponse)]}}
    found = {status: {"description": text, "content": error} for status, text in _ERROR_DESCRIPTIONS.items()}
    success: dict[str, Any] = {"description": "Success."}
    if route.returns is not None:
        returned = [references[repr(each)] for each in _list_returned(route)]
        schema = returned[0] if len(returned) == 1 else {"anyOf": returned}
        success["content"] = {JSON_MEDIA_TYPE: {"schema": schema}}
    return {route.status: success} | found | {status: success | extra for status, extra in route.responses.items()}


def _describe_parameters(route: ApiRoute) -> Iterator[dict[str, Any]]:
    arguments = route.arguments
    yield from _describe_fields(arguments.model, arguments.places)
    if arguments.query is not None:
        yield from _describe_fields(arguments.query, {})


def _describe_fields(model: type[msgspec.Struct], places: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    (_, components) = _get_schemas([model])
    schema = components[model.__name__]
    for name, field in schema.get("properties", {}).items():
        described = {"name": name, "in": places.get(name, "query"), "required": name in schema.get("required", ())}
        for schema_part in (field, *field.get("anyOf", ())):
            if description := schema_part.pop("description", ""):
                described["description"] = description
        yield described | {"schema": field}
