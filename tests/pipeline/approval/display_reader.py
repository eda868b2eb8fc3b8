"""Reads displays of questions back, to prove that nothing of a call is lost or forged on the way to a person."""

import re
from collections.abc import Iterable, Iterator
from json import loads
from typing import Any, NamedTuple

import msgspec

from interlock.domain.tool import JsonObject
from interlock.rendering.escaping import escape_invisible
from interlock.rendering.question import DisplayLine

_ESCAPE_SEQUENCE = re.compile(r"\\u\{([0-9a-f]{1,6})\}|\\([\\ntr])|\[([0-9]{1,7}) spaces\]")
_SHORT_UNESCAPES = {"\\": "\\", "n": "\n", "t": "\t", "r": "\r"}
_CONTINUATION = "  > "
_ENTRY = re.compile(
    r'(?:@(?P<depth>[0-9]+) )?(?:(?P<bare>[A-Za-z_][A-Za-z0-9_.-]*)|"(?P<quoted>[^"]*)"|\[(?P<index>[0-9]+)\])'
    r"(?: = (?P<json>.*)| \| (?P<line>.*)|: (?P<kind>text|object|list) of .*)"
)


class DisplayedCall(msgspec.Struct, frozen=True):
    """The call that a display shows."""

    tool_name: str
    arguments: JsonObject
    payload_hash: str


class _Entry(NamedTuple):
    depth: int
    #: None in a list.
    key: str | None
    value: Any


def unescape_invisible(shown: str) -> str:
    """Return the inverse of `escape_invisible`."""
    return _ESCAPE_SEQUENCE.sub(_unescape_match, shown)


def parse_display(lines: Iterable[DisplayLine | str]) -> DisplayedCall:
    """Parse the lines of a display. Raise `ValueError` when they are none."""
    texts = [line if isinstance(line, str) else line.text for line in lines]
    sections = {label: (value, rest) for label, value, rest in _split_sections(texts)}
    try:
        tool, arguments, payload_hash = (sections[label] for label in ("tool", "arguments", "hash"))
    except KeyError as missing:
        raise ValueError(f"it shows no {missing.args[0]}") from None
    return DisplayedCall(
        tool_name=unescape_invisible(_join_continuations(*tool)),
        arguments=read_outline(arguments[1]),
        payload_hash=unescape_invisible(_join_continuations(*payload_hash)),
    )


def read_outline(lines: Iterable[str]) -> JsonObject:
    """Parse an outline back to arguments. Raise `ValueError` when it is none."""
    arguments: JsonObject = {}
    parents: list[Any] = [arguments]
    for entry in _read_entries(lines):
        if entry.depth >= len(parents) or isinstance(parents[entry.depth], list) != (entry.key is None):
            raise ValueError("an entry is not where it could be")
        del parents[entry.depth + 1 :]
        if entry.key is None:
            parents[entry.depth].append(entry.value)
        else:
            parents[entry.depth][entry.key] = entry.value
        if type(entry.value) in (dict, list):
            parents.append(entry.value)
    return arguments


def parse_outline(lines: Iterable[tuple[int, str]]) -> JsonObject:
    """Return the arguments of an outline, given each line's depth and text."""
    return read_outline(f"{'  ' * depth}{text}" for depth, text in lines)


def _unescape_match(match: re.Match[str]) -> str:
    code, short, count = match.groups()
    if code:
        return chr(int(code, 16))
    return _SHORT_UNESCAPES[short] if short else " " * int(count)


def _read_entries(lines: Iterable[str]) -> Iterator[_Entry]:
    """Yield each entry with its rows put together: those of the entry itself, then those of every line of its text."""
    rows: list[list[str]] = []
    for line in lines:
        body = line.lstrip(" ")
        if body[:1] == "|":
            rows.append([body[2:]])
        elif body[:1] == ">" and rows:
            rows[-1].append(body[2:])
        else:
            if rows:
                yield _read_entry(*map("".join, rows))
            rows = [[line]]
    if rows:
        yield _read_entry(*map("".join, rows))


def _read_entry(line: str, *text: str) -> _Entry:
    body = line.lstrip(" ")
    match = _ENTRY.fullmatch(body)
    if match is None or bool(text) != (match["kind"] == "text"):
        raise ValueError(f"not an entry: {escape_invisible(body)}")
    depth = int(match["depth"]) if match["depth"] else (len(line) - len(body)) // 2 - 1
    key = None if match["index"] else match["bare"] or unescape_invisible(match["quoted"])
    return _Entry(depth, key, _read_value(match, text))


def _read_value(match: re.Match[str], text: tuple[str, ...]) -> Any:
    if match["json"] is not None:
        return loads(match["json"])
    if match["line"] is not None:
        return unescape_invisible(match["line"])
    match match["kind"]:
        case "object":
            return {}
        case "list":
            return []
        case _:
            return "\n".join(map(unescape_invisible, text))


def _split_sections(texts: Iterable[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each label with what follows it on its line, and the lines below that do not begin at the first column."""
    section: tuple[str, str, list[str]] | None = None
    for text in texts:
        if text.startswith(" "):
            if section is not None:
                section[2].append(text)
            continue
        if section is not None:
            yield section
        label, _, value = text.partition(":")
        section = (label, value, [])
    if section is not None:
        yield section


def _join_continuations(value: str, rest: list[str]) -> str:
    return (value + "".join(text.removeprefix(_CONTINUATION) for text in rest)).removeprefix(" ")
