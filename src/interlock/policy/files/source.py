"""Parses the bytes of a policy file to plain values, with the line of every one of them.

YAML is read by its events and put together here, so that nothing is ever constructed and every bound holds while the
file is read, and not after. What two readers could take for different values is refused: aliases, tags, merge keys,
keys given twice, and the words and numbers that YAML 1.1 and 1.2 do not agree on.
"""

import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from yaml.resolver import Resolver

from .problems import (
    MAX_DEPTH,
    MAX_FILE_BYTES,
    MAX_INTEGER,
    MAX_NODES,
    MAX_PROBLEMS,
    DocumentPath,
    PolicyFileError,
    PolicyProblem,
    PolicySource,
    make_error,
)
from .toml_source import parse_toml

_MAX_NUMBER_CHARS = 64


def read_policy_file(path: str) -> bytes:
    """Return the bytes of a regular file. Nothing else is opened, and the call does not block."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise make_error(path, 0, "this is not a regular file")
        # It may have become something else since.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise make_error(path, 0, "this is not a regular file")
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise make_error(path, 0, "there is no such file") from None
    except (OSError, ValueError) as error:
        raise make_error(path, 0, f"it cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > MAX_FILE_BYTES:
        raise make_error(path, 0, f"it is larger than {MAX_FILE_BYTES:,} bytes")
    return content


#: What no text file has: control characters, and what is no character at all.
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse_source(content: bytes, path: str) -> PolicySource:
    """Parse a file. Raise `PolicyFileError` for anything but plain values. Files that end in `.toml` are TOML, all
    others YAML.
    """
    if len(content) > MAX_FILE_BYTES:
        raise make_error(path, 0, f"it is larger than {MAX_FILE_BYTES:,} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise make_error(path, content[: error.start].count(b"\n") + 1, "this is not UTF-8") from None
    if text.startswith("\ufeff"):
        raise make_error(path, 1, "it begins with a byte order mark; save it as UTF-8 without one")
    if wrong := _NOT_TEXT.search(text):
        line = text.count("\n", 0, wrong.start()) + 1
        raise make_error(path, line, f"the character U+{ord(wrong.group()):04X} has no place in a text")
    return parse_toml(text, path) if path.endswith(".toml") else _YamlReader(text, path).read()


# YAML


_YAML: Any = yaml
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = Resolver()
_YAML_WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_OCTAL = re.compile(r"0o[0-7]+")
#: What some readers take for something else than a text.
_AMBIGUOUS_TAGS = ("bool", "null", "int", "float", "merge")


class _YamlReader:
    def __init__(self, text: str, path: str) -> None:
        self._text = text
        self._path = path
        self._lines: dict[DocumentPath, int] = {(): 1}
        self._problems: list[PolicyProblem] = []
        self._nodes = 0
        self._events: Iterator[Any] = iter(())

    def read(self) -> PolicySource:
        try:
            self._events = _YAML.parse(self._text, Loader=_LOADER)
            value = self._read_document()
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            reason = getattr(error, "problem", None) or error
            raise self._make_error(mark.line + 1 if mark else 0, f"this is not YAML: {reason}") from None
        if self._problems:
            raise PolicyFileError(self._problems)
        return PolicySource(self._path, value, self._lines)

    def _read_document(self) -> Any:
        value: Any = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._make_error(_line_of(event), "a policy is one document; another one begins here")
            elif isinstance(event, yaml.NodeEvent):
                value = self._read_node(event, ())
        return value

    def _read_node(self, event: Any, location: DocumentPath) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self._make_error(_line_of(event), f"it has more than {MAX_NODES:,} values")
        if len(location) > MAX_DEPTH:
            raise self._make_error(_line_of(event), f"it is nested more than {MAX_DEPTH} deep")
        if isinstance(event, yaml.AliasEvent):
            self._add_problem(event, "aliases are not allowed; write the value out")
            return None
        if event.anchor is not None:
            self._add_problem(event, "anchors are not allowed; write the value out where it is needed")
        if event.tag is not None:
            self._add_problem(event, f"tags are not allowed: {event.tag[:80]}")
        if isinstance(event, yaml.MappingStartEvent):
            return self._read_mapping(location)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._read_sequence(location)
        return self._read_scalar(event)

    def _read_sequence(self, location: DocumentPath) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            item_location = (*location, len(items))
            self._lines[item_location] = _line_of(event)
            items.append(self._read_node(event, item_location))
        return items

    def _read_mapping(self, location: DocumentPath) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._read_key(event, location)
            key_location = (*location, key)
            if key in entries:
                self._add_problem(
                    event, f"the key {key[:80]!r} is given twice; first in line {self._lines[key_location]}"
                )
            else:
                self._lines[key_location] = _line_of(event)
            entries[key] = self._read_node(next(self._events), key_location)
        return entries

    def _read_key(self, event: Any, location: DocumentPath) -> str:
        problems = len(self._problems)
        value = self._read_node(event, (*location, "?"))
        if isinstance(value, str):
            return value
        if len(self._problems) == problems:
            self._add_problem(event, "a key is a text; put it in quotes")
        return f"? {self._nodes}"

    def _read_scalar(self, event: Any) -> Any:
        text: str = event.value
        try:
            text.encode()
        except UnicodeEncodeError:
            self._add_problem(event, "a part of a character is no text")
            return ""
        # `implicit[0]`: it was written without quotes, so what it is depends on how it looks.
        return self._resolve_plain(event, text) if event.implicit[0] else text

    def _resolve_plain(self, event: Any, text: str) -> Any:
        if text in _YAML_WORDS:
            return _YAML_WORDS[text]
        is_number = _NUMBER.fullmatch(text) is not None
        if is_number and (number := _parse_number(text)) is not None:
            return number
        tag: str = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)).rpartition(":")[2]
        if is_number or tag in _AMBIGUOUS_TAGS or _OCTAL.fullmatch(text):
            self._add_problem(event, _ambiguity_message(text, tag))
        return text

    def _add_problem(self, event: Any, reason: str) -> None:
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(PolicyProblem(self._path, _line_of(event), reason))

    def _make_error(self, line: int, reason: str) -> PolicyFileError:
        return PolicyFileError([*self._problems, PolicyProblem(self._path, line, reason)])


def _line_of(event: Any) -> int:
    return event.start_mark.line + 1


def _parse_number(text: str) -> int | float | None:
    if len(text) > _MAX_NUMBER_CHARS:
        return None
    if _INTEGER.fullmatch(text):
        return number if abs(number := int(text)) <= MAX_INTEGER else None
    return value if math.isfinite(value := float(text)) else None


def _ambiguity_message(text: str, tag: str) -> str:
    shown = text[:80]
    if tag == "merge":
        return "merge keys are not allowed; write the keys out"
    if tag == "bool":
        return f"{shown} may be read as text or as a boolean: write true, false, or {shown!r} in quotes"
    if tag == "null":
        return f"{shown} may be read as a text or as nothing: write null, or {shown!r} in quotes"
    return f"{shown} is not read as the same number everywhere: write a plain decimal number, or put it in quotes"
