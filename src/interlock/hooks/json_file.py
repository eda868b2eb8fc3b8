"""Change one key of a JSON file as text: everything else in it stays as it was, to the byte."""

import json
import re
from json.decoder import JSONDecodeError
from typing import Any, NamedTuple

from ..domain.errors import ConfigurationError
from ..domain.json import InvalidJsonError, JsonObject, is_too_deep, parse
from .contract import as_object

_SPACE = re.compile(r"[ \t\r\n]*")
_FIRST_INDENT = re.compile(r"\{[ \t]*\r?\n([ \t]+)\S")
_BYTE_ORDER_MARK = "\ufeff"
_DECODER = json.JSONDecoder()


class _Member(NamedTuple):
    """A member of the outermost object: where its key begins, and where its value begins and ends."""

    key_start: int
    value_start: int
    value_end: int


def read_object(content: bytes, path: str) -> JsonObject:
    """Return the object in a JSON file. An empty file is an empty object.

    Raises:
        ConfigurationError: It is not a JSON object, or has comments, which would not survive a change.
    """
    try:
        text = content.decode()
        if not text.removeprefix(_BYTE_ORDER_MARK).strip():
            return {}
        if is_too_deep(content):
            raise InvalidJsonError("it is nested too deeply")
        value = as_object(parse(text.removeprefix(_BYTE_ORDER_MARK)))
    except (UnicodeDecodeError, InvalidJsonError) as error:
        raise ConfigurationError(
            f"{path} is not plain JSON: {error}. Nothing was changed. Remove comments and fix it, then try again."
        ) from None
    if value is None:
        raise ConfigurationError(f"{path} is JSON, but not an object. Nothing was changed.")
    return value


def set_key(content: bytes, key: str, value: Any, path: str) -> bytes:
    """Return the file with another value under a key of its outermost object; with None, without the key."""
    before = read_object(content, path)
    text = content.decode()
    if not before and not text.removeprefix(_BYTE_ORDER_MARK).strip():
        text = "{}\n"
    changed = _splice(text, key, value)
    expected = {name: item for name, item in before.items() if name != key} | ({} if value is None else {key: value})
    if read_object(changed.encode(), path) != expected:
        raise ConfigurationError(f"{path} cannot be changed in place. Nothing was changed.")
    return changed.encode()


def _splice(text: str, key: str, value: Any) -> str:
    members, end = _find_members(text)
    found = members.get(key)
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = _find_indent(text)
    if value is None:
        return text if found is None else _cut(text, found, end)
    shown = json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", f"{newline}{indent}")
    if found is not None:
        return text[: found.value_start] + shown + text[found.value_end :]
    last = max((member.value_end for member in members.values()), default=-1)
    line = f"{newline}{indent}{json.dumps(key)}: {shown}"
    if last < 0:
        start = text.index("{") + 1
        return f"{text[:start]}{line}{newline}{text[end:]}"
    return f"{text[:last]},{line}{text[last:]}"


def _cut(text: str, found: _Member, end: int) -> str:
    """Remove a member with the comma that belongs to it."""
    after = _SPACE.match(text, found.value_end)
    follows = found.value_end if after is None else after.end()
    if follows < end and text[follows] == ",":
        rest = _SPACE.match(text, follows + 1)
        return text[: found.key_start] + text[follows + 1 if rest is None else rest.end() :]
    before = text[: found.key_start].rstrip(" \t\r\n")
    if before.endswith(","):
        return before[:-1] + text[found.value_end :]
    return before + text[follows:]


def _find_members(text: str) -> tuple[dict[str, _Member], int]:
    """Return the members of the outermost object, and where its closing brace is."""
    members: dict[str, _Member] = {}
    place = _skip(text, text.index("{") + 1)
    while text[place] != "}":
        key_start = place
        key, place = _DECODER.raw_decode(text, place)
        place = _skip(text, place)
        if text[place] != ":":
            raise JSONDecodeError("Expected ':'", text, place)
        value_start = _skip(text, place + 1)
        _, value_end = _DECODER.raw_decode(text, value_start)
        members[key] = _Member(key_start, value_start, value_end)
        place = _skip(text, value_end)
        if text[place] == ",":
            place = _skip(text, place + 1)
    return members, place


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return place if found is None else found.end()


def _find_indent(text: str) -> str:
    found = _FIRST_INDENT.search(text)
    return "  " if found is None else found[1]
