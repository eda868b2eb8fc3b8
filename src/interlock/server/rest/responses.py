"""Responses: built from rows by one mapping, encoded once, and described in OpenAPI from the same types.

A response type has the fields of its row, under the same names; `msgspec.field(name=...)` renames one in JSON. A
converter in the annotation (`Time`, `OptionalSeq`, `Names`) says how the value of the row is written.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from starlette.responses import Response

from ...domain.json import escape_surrogates
from ...rendering.times import format_rfc3339

JSON_MEDIA_TYPE = "application/json"
_encode = msgspec.json.Encoder().encode
_Model = TypeVar("_Model", bound="ResponseModel")
_Converter = Callable[[Any], Any]
_get_item: Callable[[Any, str, Any], Any] = dict[str, Any].get


def format_time(at: int) -> str:
    """Return a time in RFC 3339 and UTC, to the microsecond."""
    return format_rfc3339(at, 6)


def _format_optional_time(at: int) -> str | None:
    return format_rfc3339(at, 6) if at else None


def _none_if_negative(number: int | None) -> int | None:
    return None if number is None or number < 0 else number


def _sort_optional(names: Iterable[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


#: Times are nanoseconds since 1970 in rows; 0 is never.
Time = Annotated[str, format_time]
OptionalTime = Annotated[str | None, _format_optional_time]
#: Negative in rows: not yet, or never.
OptionalSeq = Annotated[int | None, _none_if_negative]
#: In order, whatever set they come from.
Names = Annotated[list[str], sorted]
OptionalNames = Annotated[list[str] | None, _sort_optional]


class ResponseModel(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all response schemas."""

    @classmethod
    def view_row(cls, row: Any) -> Any:
        """Return what the fields are read from: the row, where none of them is computed."""
        return row


class Merged:
    """Several rows or mappings as one: an attribute is that of the first that has it."""

    __slots__ = ("_rows",)

    def __init__(self, *rows: object) -> None:
        self._rows = rows

    def __getattr__(self, name: str) -> Any:
        for row in self._rows:
            value = _choose_getter(row)(row, name, msgspec.UNSET)
            if value is not msgspec.UNSET:
                return value
        raise AttributeError(name)


def build_response(model: type[_Model], row: object) -> _Model:
    """Build a response from a row: an object with its fields, or a mapping. Absent fields have their default."""
    row = model.view_row(row)
    get = _choose_getter(row)
    values = {
        name: value if convert is None else convert(value)
        for name, convert in _get_converters(model)
        if (value := get(row, name, msgspec.UNSET)) is not msgspec.UNSET
    }
    return model(**values)


def to_builder(response_type: Any) -> _Converter | None:
    """Return the function that makes a value of this type from what rows have; None: they have the same."""
    origin, arguments = get_origin(response_type), get_args(response_type)
    if origin is Annotated:
        return next((each for each in arguments[1:] if callable(each)), None) or to_builder(arguments[0])
    if origin is list:
        build = to_builder(arguments[0])
        return list if build is None else lambda rows: list(map(build, rows))
    if NoneType in arguments:
        build = next(iter(filter(None, map(to_builder, arguments))), None)
        return build and (lambda row: None if row is None else build(row))
    if isinstance(response_type, type) and issubclass(response_type, ResponseModel):
        return lambda row: row if isinstance(row, response_type) else build_response(response_type, row)
    return None


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Encode a value."""
    return Response(encode(value), status, dict(headers or {}), JSON_MEDIA_TYPE)


def encode(value: Any) -> bytes:
    """Encode a value; lone surrogates, which are not UTF-8, are escaped."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(escape_surrogates(msgspec.to_builtins(value)))


def _choose_getter(row: object) -> Callable[[Any, str, Any], Any]:
    return _get_item if isinstance(row, dict) else getattr


@cache
def _get_converters(model: type[ResponseModel]) -> tuple[tuple[str, _Converter | None], ...]:
    types = get_type_hints(model, include_extras=True)
    return tuple((name, to_builder(types[name])) for name in model.__struct_fields__)
