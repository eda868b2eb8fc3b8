"""What requests send: bodies as strict JSON, at most 1 MiB, within 30 seconds; and values with exactly the declared
fields. The parser is the one used everywhere: no duplicate keys, no NaN, bounded depth.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar, cast

import msgspec
from starlette.requests import Request

from ...domain.json import InvalidJsonError, parse
from .errors import ApiError, FieldProblem, invalid_request
from .responses import JSON_MEDIA_TYPE

MAX_BODY_BYTES = 1 << 20
BODY_SECONDS = 30.0
#: Later ones are more nanoseconds than the log and the database count.
_LAST_SECOND = 2**63 // 10**9 - 1
_Model = TypeVar("_Model", bound=msgspec.Struct)


class RequestModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of bodies and query strings."""


async def read_body(request: Request, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Read the body. The stated length is not trusted: bytes are counted. `LimitedReceive` has the time."""
    body, is_complete = bytearray(), False
    while not is_complete:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            problem = "The connection closed before the whole body arrived. Nothing was done."
            raise ApiError(400, "disconnected", problem)
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise body_too_large_error(max_bytes)
        is_complete = not message.get("more_body", False)
    return bytes(body)


async def read_json_body(request: Request, model: type[_Model]) -> _Model:
    """Read the body as JSON with the fields of `model`. No body is an empty object."""
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    has_body = "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"
    if media_type != JSON_MEDIA_TYPE and (media_type or has_body):
        raise ApiError(
            415,
            "not_json",
            f"Content-Type must be {JSON_MEDIA_TYPE}; found {media_type[:80] or 'none'}. Nothing was done.",
            {"expected": JSON_MEDIA_TYPE, "actual": media_type[:80]},
        )
    try:
        value = parse(await read_body(request) or b"{}")
    except InvalidJsonError as error:
        raise invalid_request(FieldProblem("body", f"is not valid JSON: {error}")) from None
    if not isinstance(value, dict):
        raise invalid_request(FieldProblem("body", "must be a JSON object"))
    return validate(model, cast(dict[str, Any], value))


def validate(model: type[_Model], values: Mapping[str, Any], *, strict: bool = True) -> _Model:
    """Return the values as a `model`; `strict=False` for text, of which numbers are read. Raise `ApiError` 422 with
    every field that is wrong.
    """
    try:
        return msgspec.convert(values, model, strict=strict)
    except msgspec.ValidationError as error:
        problems = list(_find_problems(model, values, strict)) or [FieldProblem("body", str(error))]
        raise invalid_request(*problems) from None


def body_timeout_error() -> ApiError:
    """Build the error for a body that arrives too slowly."""
    return ApiError(
        408,
        "too_slow",
        f"The body did not arrive within {BODY_SECONDS:g} s. Nothing was done.",
        headers={"Connection": "close"},
    )


def body_too_large_error(max_bytes: int) -> ApiError:
    """Build the error for a body above the limit."""
    return ApiError(
        413,
        "body_too_large",
        f"The body exceeds {max_bytes} bytes. Nothing was done.",
        {"max_bytes": max_bytes},
        {"Connection": "close"},
    )


def _find_problems(model: type[msgspec.Struct], values: Mapping[str, Any], strict: bool) -> Iterator[FieldProblem]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(model)}
    for name, field in fields.items():
        if name in values:
            try:
                msgspec.convert(values[name], field.type, strict=strict)
            except msgspec.ValidationError as error:
                problem, _, place = str(error).partition(" - at `$")
                yield FieldProblem(name + place.rstrip("`"), problem)
        elif field.required:
            yield FieldProblem(name, "Field required")
    if model.__struct_config__.forbid_unknown_fields:
        yield from (FieldProblem(name[:100], "Unknown field") for name in values if name not in fields)


def parse_time(field: str, text: str) -> int:
    """Return the time in nanoseconds since 1970. Raise `ApiError` 422 where it is none, or has no time zone."""
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise ValueError("must have a time zone, as in 2030-01-31T12:00:00Z")
        seconds = int(at.timestamp())
        if not 0 <= seconds <= _LAST_SECOND:
            raise ValueError("must be between 1970 and 2262")
    except (ValueError, OverflowError, OSError) as error:
        raise invalid_request(FieldProblem(field, f"is not a time like 2030-01-31T12:00:00Z: {error}")) from None
    return seconds * 1_000_000_000 + at.microsecond * 1_000
