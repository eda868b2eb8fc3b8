"""Request bodies: application/json, at most 1 MiB, within 30 seconds, strict JSON, with exactly the declared fields.
The parser is the one used everywhere: no duplicate keys, no NaN, bounded depth.
"""

import asyncio
from typing import Any, TypeVar, cast

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import ClientDisconnect

from ...domain.json import InvalidJsonError, parse
from .errors import ApiError, FieldProblem, invalid_request, to_field_problems

MAX_BODY_BYTES = 1 << 20
BODY_SECONDS = 30.0
_JSON = "application/json"
_REF = "#/components/schemas/{model}"

_Model = TypeVar("_Model", bound="RequestBody")
#: The types that bodies have, collected while routes are declared.
_body_models: dict[str, type["RequestBody"]] = {}


class RequestBody(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


async def read_body(request: Request, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Read the body. The stated length is not trusted: bytes are counted as they come."""
    chunks, size = list[bytes](), 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > max_bytes:
                    raise body_too_large_error(max_bytes)
                chunks.append(chunk)
    except TimeoutError:
        raise body_timeout_error() from None
    except ClientDisconnect:
        raise ApiError(400, "disconnected", "The request broke off. Nothing was done.") from None
    return b"".join(chunks)


def body_timeout_error() -> ApiError:
    return ApiError(
        408,
        "too_slow",
        f"The body did not come within {BODY_SECONDS:g} s. Nothing was done.",
        headers={"Connection": "close"},
    )


def body_too_large_error(max_bytes: int) -> ApiError:
    return ApiError(
        413,
        "body_too_large",
        f"The body is longer than {max_bytes} bytes. Nothing was done.",
        {"max_bytes": max_bytes},
        {"Connection": "close"},
    )


class JsonBody:
    """The dependency that parses the body of one route as its model."""

    def __init__(self, model: type["RequestBody"]) -> None:
        self.model = model

    async def __call__(self, request: Request) -> Any:
        require_json(request)
        raw = await read_body(request)
        return parse_body(self.model, raw or b"{}")


def json_body(model: type[_Model]) -> Any:
    """Return the dependency for a parameter's annotation. It comes after the caller: unauthorized requests are not
    read.
    """
    return Depends(JsonBody(model))


def require_json(request: Request) -> None:
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media_type != _JSON and (media_type or _has_body(request)):
        raise ApiError(
            415,
            "not_json",
            f"The body has to be {_JSON}, and this is {media_type[:80] or 'not said to be anything'}."
            " Nothing was done.",
            {"expected": _JSON, "actual": media_type[:80]},
        )


def parse_body(model: type[_Model], raw: bytes) -> _Model:
    try:
        value = parse(raw)
    except InvalidJsonError as error:
        raise invalid_request(
            FieldProblem(field="body", problem=f"is not JSON as it is allowed here: {error}")
        ) from None
    if not isinstance(value, dict):
        raise invalid_request(FieldProblem(field="body", problem="has to be a JSON object"))
    try:
        return model.model_validate(cast(dict[str, Any], value))
    except ValidationError as error:
        found = to_field_problems(error.errors(include_url=False, include_input=False, include_context=False))
        raise invalid_request(*found) from None


def declare_body(model: type["RequestBody"], *, required: bool = True) -> dict[str, Any]:
    """Return the OpenAPI declaration of a route's body."""
    _body_models[model.__name__] = model
    content = {_JSON: {"schema": {"$ref": _REF.format(model=model.__name__)}}}
    return {"openapi_extra": {"requestBody": {"required": required, "content": content}}}


def build_components() -> dict[str, Any]:
    """Return the schemas of all request bodies."""
    schemas: dict[str, Any] = {}
    for name, model in _body_models.items():
        schema = model.model_json_schema(ref_template=_REF)
        schemas |= schema.pop("$defs", {})
        schemas[name] = schema
    return schemas


def _has_body(request: Request) -> bool:
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"
