"""JSON as it is allowed in here: no duplicate keys, no NaN, bounded depth and numbers, no lone surrogates.

Everything that a model, a tool or a file calls JSON is parsed by `parse`; every byte that is hashed or stored is made
by `encode`. Both are thin: the work is done by jiter and msgspec.
"""

import re
from collections.abc import Callable
from math import isfinite
from typing import Any, TypeAlias, cast

import jiter
import msgspec

#: Any JSON value. Values from outside are checked by `parse` or `check`, not by their static type.
Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Any]

MAX_DEPTH = 64
#: Of whole documents in files, which hold values of `MAX_DEPTH` somewhere inside.
MAX_FILE_DEPTH = 256
MAX_INTEGER = 2**53 - 1
MAX_VALUES = 100_000

encode = msgspec.json.Encoder().encode
#: The same value always gives the same bytes. Not RFC 8785: for digests that stay inside.
encode_sorted = msgspec.json.Encoder(order="deterministic").encode

_from_json = jiter.from_json
#: Text without any of these cannot hold a number that is out of range.
_large_number = re.compile(rb"\d{16}|[eE][+-]?\d{3}").search


_escape_surrogates = re.compile(r"[\ud800-\udfff]").sub


#: A string, as a whole, or a bracket outside of strings.
_string_or_bracket = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL).finditer


class BadJson(ValueError):
    """The text or value is not JSON as it is allowed in here."""


def parse(text: str | bytes) -> Json:
    try:
        match text:
            case bytes():
                raw = text
            case str():
                raw = text.encode()
        value = _from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:  # UnicodeEncodeError is one, too
        raise BadJson(str(error)) from None
    if _large_number(raw) or (len(raw) > MAX_DEPTH and raw.count(b"{") + raw.count(b"[") > MAX_DEPTH):
        check(value)
    return value


def is_too_deep(text: bytes, limit: int = MAX_FILE_DEPTH) -> bool:
    """Return True if JSON text is nested deeper than `limit`, without parsing it: parsers recurse."""
    if text.count(b"[") + text.count(b"{") <= limit:
        return False
    depth = 0
    for found in _string_or_bracket(text):
        match found[0]:
            case b"[" | b"{":
                depth += 1
                if depth > limit:
                    return True
            case b"]" | b"}":
                depth -= 1
            case _:
                pass
    return False


def check(value: Json) -> None:
    """Raise `BadJson` unless the value is plain JSON data within the limits."""
    level, count = [value], 1
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _children(outer)]
        if not level:
            return
        count += len(level)
        if count > MAX_VALUES:
            raise BadJson(f"more than {MAX_VALUES} values")
    if any(_children(inner) or isinstance(inner, list | dict) for inner in level):
        raise BadJson(f"nested deeper than {MAX_DEPTH} levels")


def _children(value: Any) -> list[Any]:
    """The values directly inside a value that is itself allowed."""
    for kind, look in _KINDS:
        if isinstance(value, kind):
            return look(value)
    raise BadJson(f"a {type(value).__name__} is not JSON")


def _nothing(value: bool | None) -> list[Any]:
    return []


def _in_integer(value: int) -> list[Any]:
    if abs(value) > MAX_INTEGER:
        raise BadJson("an integer is beyond 2^53-1; send it as a string")
    return []


def _in_number(value: float) -> list[Any]:
    if not isfinite(value):
        raise BadJson("a number is not finite")
    return []


def _in_object(value: dict[Any, Any]) -> list[Any]:
    for key in value:
        if not isinstance(key, str):
            raise BadJson(f"an object key is a {type(key).__name__}, not a string")
        _in_text(key)
    return list(value.values())


def _in_array(value: list[Any]) -> list[Any]:
    return value


def _in_text(text: str) -> list[Any]:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadJson("a string holds a lone surrogate") from None
    return []


_KINDS: tuple[tuple[type, Callable[[Any], list[Any]]], ...] = (
    (str, _in_text),
    (bool, _nothing),
    (int, _in_integer),
    (float, _in_number),
    (dict, _in_object),
    (list, _in_array),
    (type(None), _nothing),
)


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{{{ord(match[0]):x}}}"


def without_surrogates(value: Any) -> Any:
    """The value with what cannot be UTF-8 written as escapes."""
    match value:
        case str():
            return _escape_surrogates(_escaped, value)
        case dict():
            items = cast(dict[str, Any], value).items()
            return {without_surrogates(key): without_surrogates(inner) for key, inner in items}
        case list() | tuple():
            return [without_surrogates(inner) for inner in cast(list[Any], value)]
        case _:
            return value
