"""Rows of text that fit a width, wherever it is shown: no row ends in a space, so nothing is lost at a border.

The width of a character is taken as the widest that any terminal gives it. A row may be narrower than it could be, but
it never runs over the border, where the rest would begin at the first column like a line of our own.
"""

from collections.abc import Iterable
from functools import lru_cache
from unicodedata import category, east_asian_width

from rich.cells import get_character_cell_size

_FIRST_ASTRAL = 0x10000
#: A word with more is broken where the row ends.
_MAX_MOVED_PIECES = 12


def cells(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_cells, text))


def wrap(pieces: Iterable[str], first: int, rest: int) -> list[str]:
    """At least one row: the first of up to `first` cells, the others of up to `rest`. Pieces stay whole."""
    rows: list[str] = []
    row: list[str] = []
    used, room = 0, first
    for piece in pieces:
        size = len(piece) if piece.isascii() else cells(piece)
        if used + size > room and row:
            kept = _kept(row, rest - size)
            rows.append("".join(row[:kept]))
            row = row[kept:]
            used, room = cells("".join(row)), rest
        row.append(piece)
        used += size
    return [*rows, "".join(row)]


def _kept(row: list[str], room: int) -> int:
    """How many pieces stay on the row: not its last word, if that is short and `room` takes it, and no last spaces."""
    word = len(row)
    while word and row[word - 1] != " ":
        word -= 1
    for end in (word, len(row)):
        kept = end
        while kept and row[kept - 1] == " ":
            kept -= 1
        moved = row[kept:]
        if kept and len(moved) <= _MAX_MOVED_PIECES and cells("".join(moved)) <= room:
            return kept
    return len(row)


@lru_cache(maxsize=16_384)
def _cells(character: str) -> int:
    if east_asian_width(character) in "WFA" or (ord(character) >= _FIRST_ASTRAL and category(character)[0] == "S"):
        return 2
    return max(1, get_character_cell_size(character))
