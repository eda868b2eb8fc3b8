"""Arguments as an outline that a person can read and that reads back as the same arguments.

    command | git push --force
    retries = 3
    options: object of 2
      "odd key" = null
      text: text of 2 lines
        | first line
        | second
        > , wrapped

One value per line, named by its key or its index in a list. `=` is followed by JSON, `|` by text as `escape_invisible`
writes it: one line of the text each, and `>` continues the line above it. Nothing that comes from the arguments is
anywhere but behind one of these marks or inside the quotes of a key. Below `MAX_INDENT` levels the depth is a number.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from json import dumps
from typing import Any, NamedTuple, TypeGuard
from unicodedata import category, east_asian_width

from rich.cells import get_character_cell_size

from ..domain.tool import JsonObject
from .escaping import MAX_PIECE_CELLS, escape_character, escape_invisible, visible_pieces
from .text import pluralize

_FIRST_ASTRAL = 0x10000
#: A word with more is broken where the row ends.
_MAX_MOVED_PIECES = 12


def cell_width(text: str) -> int:
    """Return the width of a text in terminal cells."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def wrap_pieces(pieces: Iterable[str], first: int, rest: int) -> list[str]:
    """Wrap pieces into at least one row: the first of up to `first` cells, the others of up to `rest`. Pieces stay
    whole.
    """
    rows: list[str] = []
    row: list[str] = []
    used, room = 0, first
    for piece in pieces:
        size = len(piece) if piece.isascii() else cell_width(piece)
        if used + size > room and row:
            kept = _count_kept_pieces(row, rest - size)
            rows.append("".join(row[:kept]))
            row = row[kept:]
            used, room = cell_width("".join(row)), rest
        row.append(piece)
        used += size
    return [*rows, "".join(row)]


def _count_kept_pieces(row: list[str], room: int) -> int:
    """Return how many pieces stay on the row: not its last word, if that is short and `room` takes it, and no last
    spaces.
    """
    word = len(row)
    while word and row[word - 1] != " ":
        word -= 1
    for end in (word, len(row)):
        kept = end
        while kept and row[kept - 1] == " ":
            kept -= 1
        moved = row[kept:]
        if kept and len(moved) <= _MAX_MOVED_PIECES and cell_width("".join(moved)) <= room:
            return kept
    return len(row)


@lru_cache(maxsize=16_384)
def _character_width(character: str) -> int:
    if east_asian_width(character) in "WFA" or (ord(character) >= _FIRST_ASTRAL and category(character)[0] == "S"):
        return 2
    return max(1, get_character_cell_size(character))


MAX_INDENT = 6
#: So many spaces in front of a line of text stand for themselves.
MAX_TEXT_INDENT = 24

_BARE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")


class _Item(NamedTuple):
    depth: int
    #: The key in an object, the place in a list.
    name: str | int
    value: Any


def write_outline(arguments: JsonObject, width: int) -> list[str]:
    """Return the outline, every line within the width and behind a margin of two spaces."""
    return [line for item in _walk_items(arguments) for line in _write_item(item, width)]


def _walk_items(arguments: JsonObject) -> Iterator[_Item]:
    """Yield every value in order, with what is inside of it right after it. Without recursion: depth is not trusted."""
    left = [_Item(0, key, value) for key, value in reversed(arguments.items())]
    while left:
        item = left.pop()
        yield item
        if _is_object(item.value):
            left.extend(_Item(item.depth + 1, key, value) for key, value in reversed(item.value.items()))
        elif _is_list(item.value):
            last = len(item.value) - 1
            left.extend(_Item(item.depth + 1, last - at, value) for at, value in enumerate(reversed(item.value)))


def _write_item(item: _Item, width: int) -> Iterator[str]:
    margin = "  " * (1 + min(item.depth, MAX_INDENT))
    name = [*(f"@{item.depth} " if item.depth > MAX_INDENT else ""), *_write_name(item.name)]
    text = item.value if isinstance(item.value, str) and item.value else None
    if text is not None and "\n" not in text and len(text) <= width:
        inline = f"{margin}{''.join(name)} | {escape_invisible(text)}"
        if cell_width(inline) <= width:
            yield inline
            return
    first, *others = wrap_pieces([*name, *_describe_value(item.value)], width - len(margin), width - len(margin) - 4)
    yield margin + first
    yield from (f"{margin}  > {row}" for row in others)
    if text is not None:
        yield from _write_text_block(text, margin + "  ", width)


def _describe_value(value: Any) -> str:
    """Return what follows the name, but for text."""
    if isinstance(value, str) and value:
        lines = value.count("\n") + 1
        return f": text of {pluralize(lines, 'line')}"
    if _is_object(value) and value:
        return f": object of {len(value):,}"
    if _is_list(value) and value:
        return f": list of {len(value):,}"
    return f" = {dumps(value)}"


def _write_text_block(text: str, margin: str, width: int) -> Iterator[str]:
    room = width - len(margin) - 2
    indent = max(0, min(MAX_TEXT_INDENT, room - MAX_PIECE_CELLS - 1))
    for line in text.split("\n"):
        first, *others = wrap_pieces(visible_pieces(line, indent), room, room)
        yield f"{margin}| {first}".rstrip(" ")
        yield from (f"{margin}> {row}" for row in others)


def _write_name(name: str | int) -> list[str]:
    if isinstance(name, int):
        return [f"[{name}]"]
    if _BARE_KEY.fullmatch(name):
        return list(name)
    return ['"', *(escape_character('"') if piece == '"' else piece for piece in visible_pieces(name)), '"']


def _is_object(value: Any) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)
