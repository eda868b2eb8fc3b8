"""Data that a developer's code hands in checks itself, so that a wrong field is an error there and not in the log."""

from functools import cache
from typing import Any

import msgspec


def check_fields(value: msgspec.Struct) -> None:
    """Raise `msgspec.ValidationError` unless every field is of its declared type. For `__post_init__`."""
    for name, kind in _fields(type(value)):
        try:
            msgspec.convert(getattr(value, name), kind)
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(f"{type(value).__name__}.{name}: {error}") from None


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.type) for field in msgspec.structs.fields(kind))
