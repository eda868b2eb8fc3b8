"""Responses: structs encoded by msgspec, and described in OpenAPI from the same structs.

A response is encoded once. Its schema comes from the same type, so the two cannot differ.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from ...domain.json import escape_surrogates
from .errors import ErrorResponse

JSON_MEDIA_TYPE = "application/json"
_encode = msgspec.json.Encoder().encode
_REF = "#/components/schemas/{name}"

#: Errors that nearly every route may return.
_ERROR_DESCRIPTIONS: Mapping[int, str] = {
    400: "The request makes no sense as HTTP.",
    401: "No credentials, or none that count.",
    403: "You may not do this. Nothing was done.",
    404: "There is no such thing, or none that you may see.",
    405: "Not for this method.",
    408: "The body came too slowly.",
    409: "It was done otherwise before, or cannot be done in this state; the details name both sides.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    421: "The Host is none of this server's names.",
    422: "Something in the request cannot be that; `details.fields` says what.",
    429: "Too many; Retry-After says when to try again.",
    500: "A mistake of the server; its log has the id.",
    503: "Not now.",
}


#: The types that answers have, collected while routes are declared.
_response_types: dict[str, Any] = {}


def register_schema(response_type: Any) -> dict[str, Any]:
    """Register a type, and return a reference to its schema."""
    (schema,), _ = msgspec.json.schema_components([response_type], ref_template=_REF)
    _response_types[repr(response_type)] = response_type
    return schema


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    try:
        body = _encode(value)
    except UnicodeEncodeError:
        body = _encode(escape_surrogates(msgspec.to_builtins(value)))
    return Response(body, status, dict(headers or {}), JSON_MEDIA_TYPE)


def no_content_response() -> Response:
    return Response(status_code=204)


def declare_responses(
    response_type: Any, *, status: int = 200, extra: Mapping[int | str, dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the OpenAPI declaration of a route's responses and errors."""
    failures: dict[int | str, dict[str, Any]] = {
        code: describe_response(ErrorResponse, description) for code, description in _ERROR_DESCRIPTIONS.items()
    }
    success = {"description": "Done."} if response_type is None else describe_response(response_type, "Done.")
    return {
        "status_code": status,
        "response_model": None,
        "response_class": Response,
        "responses": {status: success, **failures, **(extra or {})},
    }


def describe_response(response_type: Any, description: str) -> dict[str, Any]:
    """Return one response of an OpenAPI declaration."""
    return {"description": description, "content": {JSON_MEDIA_TYPE: {"schema": register_schema(response_type)}}}


def build_components() -> dict[str, Any]:
    """Return the schemas of all registered types."""
    _, schemas = msgspec.json.schema_components(list(_response_types.values()), ref_template=_REF)
    return schemas
