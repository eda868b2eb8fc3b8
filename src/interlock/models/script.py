"""A script on paper: JSON that says which version of the form it is in."""

from collections.abc import Iterable
from typing import cast

import msgspec

from ..domain.errors import ConfigurationError
from ..domain.json import BadJson, JsonObject, parse, without_surrogates
from .scripted import Turn

FORM = "interlock/script/v1"
MAX_SCRIPT_BYTES = 64 << 20


class _Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    form: str
    turns: tuple[Turn, ...]


def to_script(turns: Iterable[Turn]) -> bytes:
    """Readable JSON. What a model said stands in it as it was said: take secrets out before you share it."""
    plain = without_surrogates(msgspec.to_builtins(_Script(FORM, tuple(turns))))
    return msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"


def from_script(text: str | bytes) -> tuple[Turn, ...]:
    if len(text) > MAX_SCRIPT_BYTES:
        raise ConfigurationError(f"The script is larger than {MAX_SCRIPT_BYTES} bytes.")
    try:
        document = parse(text)
    except BadJson as error:
        raise ConfigurationError(f"The script is not JSON: {error}.") from None
    form = cast(JsonObject, document).get("form") if isinstance(document, dict) else None
    if form != FORM:
        raise ConfigurationError(f"The script must say that its form is {FORM!r}, not {form!r}.")
    try:
        return msgspec.convert(document, _Script).turns
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"The script is not as {FORM!r} has it: {error}.") from None
