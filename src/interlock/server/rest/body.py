"""Bodies of requests: application/json, at most 1 MiB, within 30 seconds, strict JSON, and then exactly the fields that
there are. The parser is the one that everything else in here is read with: no duplicate keys, no NaN, bounded depth."""

import asyncio
from typing import Any, TypeVar, cast

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import ClientDisconnect

from ...domain.json import BadJson, parse
from .errors import ApiError, FieldProblem, fields_of, invalid

MAX_BODY_BYTES = 1 << 20
BODY_SECONDS = 30.0
_JSON = "application/json"
_REF = "#/components/schemas/{model}"

_Model = TypeVar("_Model", bound="Wish")
#: The types that bodies have, collected while routes are declared.
_taken: dict[str, type["Wish"]] = {}


class Wish(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


async def read_body(request: Request, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """What is said about its length is not believed: bytes are counted as they come."""
    found, size = list[bytes](), 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > max_bytes:
                    raise too_large(max_bytes)
                found.append(chunk)
    except TimeoutError:
        raise too_slow() from None
    except ClientDisconnect:
        raise ApiError(400, "disconnected", "The request broke off. Nothing was done.") from None
    return b"".join(found)


def too_slow() -> ApiError:
    return ApiError(
        408,
        "too_slow",
        f"The body did not come within {BODY_SECONDS:g} s. Nothing was done.",
        headers={"Connection": "close"},
    )


def too_large(max_bytes: int) -> ApiError:
    return ApiError(
        413,
        "body_too_large",
        f"The body is longer than {max_bytes} bytes. Nothing was done.",
        {"max_bytes": max_bytes},
        {"Connection": "close"},
    )


class Body:
    """The dependency of one route: its body, as that model."""

    def __init__(self, model: type["Wish"]) -> None:
        self.model = model

    async def __call__(self, request: Request) -> Any:
        check_media_type(request)
        raw = await read_body(request)
        return read_wish(self.model, raw or b"{}")


def body(model: type[_Model]) -> Any:
    """For the annotation of a parameter. It comes after the caller: who may not, is not read."""
    return Depends(Body(model))


def check_media_type(request: Request) -> None:
    given = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if given != _JSON and (given or _has_body(request)):
        raise ApiError(
            415,
            "not_json",
            f"The body has to be {_JSON}, and this is {given[:80] or 'not said to be anything'}. Nothing was done.",
            {"expected": _JSON, "actual": given[:80]},
        )


def read_wish(model: type[_Model], raw: bytes) -> _Model:
    try:
        value = parse(raw)
    except BadJson as error:
        raise invalid(FieldProblem(field="body", problem=f"is not JSON as it is allowed here: {error}")) from None
    if not isinstance(value, dict):
        raise invalid(FieldProblem(field="body", problem="has to be a JSON object"))
    try:
        return model.model_validate(cast(dict[str, Any], value))
    except ValidationError as error:
        found = fields_of(error.errors(include_url=False, include_input=False, include_context=False))
        raise invalid(*found) from None


def takes(model: type["Wish"], *, required: bool = True) -> dict[str, Any]:
    """For the declaration of a route: the body that it takes."""
    _taken[model.__name__] = model
    content = {_JSON: {"schema": {"$ref": _REF.format(model=model.__name__)}}}
    return {"openapi_extra": {"requestBody": {"required": required, "content": content}}}


def components() -> dict[str, Any]:
    """The schemas of all bodies that routes take."""
    found: dict[str, Any] = {}
    for name, model in _taken.items():
        schema = model.model_json_schema(ref_template=_REF)
        found |= schema.pop("$defs", {})
        found[name] = schema
    return found


def _has_body(request: Request) -> bool:
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"
