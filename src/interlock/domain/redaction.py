r"""Redact secrets in values and texts before anything is escaped or encoded.

An escaped secret is not recognized any more: JSON writes a line break of wrapped base64 as `\n` and may write a letter
as `\u0067`, and `neutralize` writes an unseen character as `\u{200b}`. So every text that leaves the pipeline goes
through one of these functions while it is still decoded. `redact` is that of the runtime's `Redactor`.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from .json import InvalidJsonError, Json, encode, parse
from .rendering import neutralize

RedactFunction: TypeAlias = Callable[[str], str]

_escape = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([nrt/\"\\]))").sub
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}


def redact_line(text: str, redact: RedactFunction) -> str:
    """Return a message without secrets, and then without anything that acts on its reader."""
    return neutralize(redact(text))


def redact_leaves(value: Any, redact: RedactFunction) -> Any:
    """Return a JSON value with every string and every key redacted on its own."""
    match value:
        case str():
            return redact(value)
        case dict():
            return _redact_object(cast(dict[str, Any], value), redact)
        case list() | tuple():
            return [redact_leaves(inner, redact) for inner in cast(list[Any], value)]
        case msgspec.Struct():
            return redact_leaves(msgspec.to_builtins(value), redact)
        case _:
            return value


def encode_redacted(values: Sequence[Any], redact: RedactFunction) -> bytes:
    """Return the JSON of a list with every string and every key in it redacted on its own."""
    return b"[%b]" % b",".join([_encode_redacted(value, redact) for value in values])


def _encode_redacted(value: Any, redact: RedactFunction) -> bytes:
    content = encode(value)
    text = content.decode()
    if "\\" in text:  # so that every string is in the text as it is
        text = _escape(_unescape_match, text)
    return content if redact(text) == text else encode(redact_leaves(value, redact))


def redact_json(value: Json, redact: RedactFunction, text: str = "") -> str | None:
    """Return the JSON text of a value without its secrets, or None when it holds none.

    `text` is the JSON text where it is known already, however its writer escaped it. After the strings, the text is
    looked at as a whole: `"password": "x"` is a secret by its key.
    """
    text = text or encode(value).decode()
    if "\\" not in text:  # every string is in the text unescaped
        clean = redact(text)
        return None if clean == text else clean
    text = encode(value).decode()
    clean = redact(encode(redact_leaves(value, redact)).decode())
    return None if clean == text else clean


def redact_json_text(text: str, redact: RedactFunction) -> str:
    """Return a text without its secrets that is JSON, or was meant to be."""
    clean = redact(text)
    if "\\" not in text:
        return clean
    try:
        return redact_json(parse(text), redact, text) or clean
    except InvalidJsonError:
        plain = _escape(_unescape_match, text)
        found = redact(plain)
        return clean if found == plain else found


def _redact_object(value: dict[str, Any], redact: RedactFunction) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, inner in value.items():
        clean = redact(name)
        while clean in found:  # several keys may become one
            clean += "'"
        found[clean] = redact_leaves(inner, redact)
    return found


def _unescape_match(match: re.Match[str]) -> str:
    code, letter = match.groups()
    return chr(int(code, 16)) if code else _LETTERS.get(letter, letter)
