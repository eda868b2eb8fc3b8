"""Data that a developer's code hands in checks itself, so that a wrong field is an error there and not in the log."""

from functools import cache

import msgspec


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
    """The same fields as a list without a check of its own: all of them are looked at in one go."""
    fields = [(field.name, field.type) for field in msgspec.structs.fields(kind)]
    return msgspec.defstruct(kind.__name__, fields, array_like=True)
