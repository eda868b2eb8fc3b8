"""Strict JSON: no duplicate keys, no NaN, bounded depth and numbers, no lone surrogates.

All JSON from a model, a tool or a file is parsed by `parse`; all bytes that are hashed or stored are made by `encode`.
Both are thin: jiter and msgspec do the work.
"""

import re
from collections.abc import Callable
from functools import cache
from math import isfinite
from typing import Any, TypeAlias, TypeVar, cast

import jiter
import msgspec

_T = TypeVar("_T")
#: Any JSON value. Values from outside are checked by `parse` or `check`, not by their static type.
Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Any]

MAX_DEPTH = 64
#: Depth limit of whole documents in files, which hold values of `MAX_DEPTH` somewhere inside.
MAX_FILE_DEPTH = 256
MAX_INTEGER = 2**53 - 1
MAX_VALUES = 100_000


class _LazyDecoder:
    """A stand-in for a decoder."""

    def __init__(self, kind: object) -> None:
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        self.__dict__[name] = method = getattr(msgspec.json.Decoder(cast(Any, self._kind)), name)
        return method


def lazy_decoder(kind: type[_T]) -> msgspec.json.Decoder[_T]:
    """Return a decoder that is made when it is first used: that takes a look at every type that a value may have."""
    return cast(msgspec.json.Decoder[_T], _LazyDecoder(kind))


encode = msgspec.json.Encoder().encode
#: The same value always gives the same bytes. Not RFC 8785: for digests that stay inside.
encode_sorted = msgspec.json.Encoder(order="deterministic").encode

_from_json = jiter.from_json
#: Digits, exponents and signs, each as one letter: with their long runs, a text may hold a number that is out of range.
_NUMBER_CLASSES = bytes.maketrans(b"0123456789eE+-", b"9999999999ee++").translate(
    bytes(code if chr(code) in "9e+" else 0 for code in range(256))
)


_replace_surrogates = re.compile(r"[\ud800-\udfff]").sub


#: A string, as a whole, or a bracket outside of strings.
_string_or_bracket = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL).finditer


class InvalidJsonError(ValueError):
    """The text or value is not strict JSON."""


def parse(text: str | bytes) -> Json:
    """Parse strict JSON: no duplicate keys, infinite or oversized numbers, or deep nesting."""
    try:
        match text:
            case bytes():
                raw = text
            case str():
                raw = text.encode()
        value = _from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:  # UnicodeEncodeError is one, too
        raise InvalidJsonError(str(error)) from None
    kinds = raw.translate(_NUMBER_CLASSES)
    may_be_large = b"9999999999999999" in kinds or b"e999" in kinds or b"e+999" in kinds
    if may_be_large or (raw[MAX_DEPTH:] and raw.count(b"{") + raw.count(b"[") > MAX_DEPTH):
        check_value(value)
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


def check_value(value: Json) -> None:
    """Raise `InvalidJsonError` unless the value is plain JSON data within the limits."""
    level, count = [value], 1
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _children(outer)]
        if not level:
            return
        count += len(level)
        if count > MAX_VALUES:
            raise InvalidJsonError(f"more than {MAX_VALUES} values")
    if any(_children(inner) or isinstance(inner, list | dict) for inner in level):
        raise InvalidJsonError(f"nested deeper than {MAX_DEPTH} levels")


def _children(value: Any) -> list[Any]:
    """Return the values directly inside an allowed value."""
    for kind, look in _CHILD_READERS:
        if isinstance(value, kind):
            return look(value)
    raise InvalidJsonError(f"a {type(value).__name__} is not JSON")


def _no_children(value: bool | None) -> list[Any]:
    return []


def _check_integer(value: int) -> list[Any]:
    if abs(value) > MAX_INTEGER:
        raise InvalidJsonError("an integer is beyond 2^53-1; send it as a string")
    return []


def _check_number(value: float) -> list[Any]:
    if not isfinite(value):
        raise InvalidJsonError("a number is not finite")
    return []


def _object_children(value: dict[Any, Any]) -> list[Any]:
    for key in value:
        if not isinstance(key, str):
            raise InvalidJsonError(f"an object key is a {type(key).__name__}, not a string")
        _check_text(key)
    return list(value.values())


def _array_children(value: list[Any]) -> list[Any]:
    return value


def _check_text(text: str) -> list[Any]:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidJsonError("a string holds a lone surrogate") from None
    return []


_CHILD_READERS: tuple[tuple[type, Callable[[Any], list[Any]]], ...] = (
    (str, _check_text),
    (bool, _no_children),
    (int, _check_integer),
    (float, _check_number),
    (dict, _object_children),
    (list, _array_children),
    (type(None), _no_children),
)


def _escape_match(match: re.Match[str]) -> str:
    return f"\\u{{{ord(match[0]):x}}}"


def escape_surrogates(value: Any) -> Any:
    """Return the value with everything that UTF-8 cannot encode written as escapes."""
    match value:
        case str():
            return _replace_surrogates(_escape_match, value)
        case dict():
            items = cast(dict[str, Any], value).items()
            return {escape_surrogates(key): escape_surrogates(inner) for key, inner in items}
        case list() | tuple():
            return [escape_surrogates(inner) for inner in cast(list[Any], value)]
        case _:
            return value


def validate_fields(value: msgspec.Struct) -> None:
    """Raise `msgspec.ValidationError` unless every field is of its declared type. For `__post_init__`."""
    try:
        msgspec.convert(msgspec.structs.astuple(value), _tuple_type(type(value)))
    except msgspec.ValidationError:
        _raise_for_field(value)
        raise


def _raise_for_field(value: msgspec.Struct) -> None:
    for field in msgspec.structs.fields(type(value)):
        try:
            msgspec.convert(getattr(value, field.name), field.type)
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(f"{type(value).__name__}.{field.name}: {error}") from None


@cache
def _tuple_type(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return an array-like struct with the same fields, so that one conversion checks all of them."""
    fields = [(field.name, field.type) for field in msgspec.structs.fields(kind)]
    return msgspec.defstruct(kind.__name__, fields, array_like=True)
