"""Streamed model text, as rows of the terminal's width. Nothing in it controls the terminal. Nothing in it acts on the
terminal.

Each row of it is shown behind a mark that no row of ours begins with. So whatever it says, in a terminal or in a file,
it cannot be taken for what became of a call, for a question or for the end of a run.
"""

from collections.abc import Iterator

from rich.cells import cell_len, chop_cells
from rich.text import Text

from ...domain.rendering import neutralize

#: A row is broken at a space only in its last part: a long word is cut rather than a short row left.
_MIN_ROW_SHARE = 0.5
_TAB = "    "
_MARK = "|"
#: The mark and a space.
MARK_CELLS = 2


class StreamedText:
    """Text that arrives in chunks. Final rows are returned; `rest` is the one that can still change."""

    def __init__(self, width: int) -> None:
        self._width = max(width, 20)
        self._pending = ""
        self.partial_row = ""

    def add(self, piece: str) -> list[str]:
        piece = self._pending + piece
        # The line feed that belongs to it may be in the next piece.
        self._pending = "\r" if piece.endswith("\r") else ""
        piece = piece.removesuffix(self._pending)
        *lines, self.partial_row = (self.partial_row + neutralize_text(piece)).split("\n")
        rows = [row for line in lines for row in wrap_line(line, self._width)]
        *full, self.partial_row = wrap_line(self.partial_row, self._width)
        return [*rows, *full]

    def end(self) -> list[str]:
        """Return the last row, if there is one."""
        last, self.partial_row, self._pending = self.partial_row, "", ""
        return [last] if last.strip() else []


def mark_row(row: str) -> Text:
    """Return a row of speech with its mark."""
    return Text(_MARK, "dim").append(f" {row}" if row else "", "not dim")


def neutralize_text(text: str) -> str:
    return neutralize(text.replace("\r\n", "\n")).replace("\t", _TAB)


def wrap_line(line: str, width: int) -> list[str]:
    """Return the line in rows that are not wider; at least one. Rows are broken at spaces where there are any."""
    return list(_iter_rows(line, width))


def _iter_rows(line: str, width: int) -> Iterator[str]:
    while cell_len(line) > width:
        first = chop_cells(line, width)[0]
        space = first.rfind(" ")
        if line[len(first) : len(first) + 1] == " ":
            space = len(first)
        cut = space if space >= width * _MIN_ROW_SHARE else len(first)
        yield line[:cut].rstrip()
        line = line[cut:].removeprefix(" ")
    yield line
