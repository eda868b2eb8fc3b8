"""Arguments and values that a person writes on the command line, in place of what was asked."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ..domain import json
from ..domain.errors import ConfigurationError
from ..domain.tool import JsonObject

MAX_EDITED_BYTES = 1 << 20
#: How the log has arguments that hold a secret.
_HIDDEN = {"redacted"}


def edited_arguments(asked: JsonObject, edit: Path | None, changes: Sequence[str]) -> JsonObject | None:
    """None: as they were asked."""
    if changes and edit is None and asked.keys() == _HIDDEN:
        raise ConfigurationError(
            "The arguments hold a secret, which the log does not have: --set cannot change a part of them. Write all "
            "of them with --edit. Nothing was answered."
        )
    arguments = asked if edit is None else _from_file(edit)
    for change in changes:
        name, is_change, value = change.partition("=")
        if not name or not is_change:
            raise ConfigurationError(f"--set takes NAME=VALUE, not {change[:80]!r}. Nothing was answered.")
        arguments = {**arguments, name: read_value(value)}
    return None if json.encode_sorted(arguments) == json.encode_sorted(asked) else arguments


def read_value(text: str) -> Any:
    """Text as it is, or JSON after an equals sign, as at a terminal."""
    if not text.startswith("="):
        if not text:
            raise ConfigurationError("An empty text is no value. Nothing was answered.")
        return text
    return _parsed(text[1:], "The value")


def _from_file(path: Path) -> JsonObject:
    try:
        if str(path) == "-":
            text = sys.stdin.buffer.read(MAX_EDITED_BYTES + 1)
        else:
            with open(path, "rb") as file:
                text = file.read(MAX_EDITED_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}. Nothing was answered.") from None
    if len(text) > MAX_EDITED_BYTES:
        raise ConfigurationError(f"{path} is larger than {MAX_EDITED_BYTES:,} bytes. Nothing was answered.")
    found = _parsed(text, str(path))
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} holds no JSON object, which arguments are. Nothing was answered.")
    return cast(JsonObject, found)


def _parsed(text: str | bytes, what: str) -> Any:
    try:
        value = json.parse(text)
        json.check(value)
    except json.BadJson as error:
        raise ConfigurationError(f"{what} is not JSON: {error}. Nothing was answered.") from None
    return value
