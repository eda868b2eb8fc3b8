"""The output region of a live view: permanent lines, and on a terminal a few rows below them that are redrawn.

A frame is one write: over the old rows, then what stays, then the new rows. So nothing flickers, and the cursor is at
the end of the last row, where a terminal shows what a person types meanwhile. While the region is suspended, others
write on the terminal: permanent lines are buffered, and nothing is drawn. Without a terminal there are only
permanent lines.

Streamed model text comes in rows of the terminal's width, and nothing in it controls the terminal. Each row of it is
shown behind a mark that no row of ours begins with. So whatever it says, in a terminal or in a file, it cannot be taken
for what became of a call, for a question or for the end of a run.
"""

import os
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import IO, Any, Literal, TypeAlias, cast

from rich.cells import cell_len, chop_cells
from rich.console import Console
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
        """Add streamed text. Return the rows that are complete."""
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


def mark_row(row: str | Text) -> Text:
    """Return a row of speech with its mark."""
    marked = Text.assemble((_MARK, "dim"), " " if row else "")
    return marked.append_text(row) if isinstance(row, Text) else marked.append(row)


def neutralize_text(text: str) -> str:
    """Neutralize control characters and expand tabs for the live region."""
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


#: What happens when a question waits.
NotifyMode: TypeAlias = Literal["off", "bell", "desktop"]

_BELL = "\a"
#: Desktop notifications: most terminals know the first form, some only the second.
_OSC_9, _OSC_777 = "\x1b]9;Interlock: {}\x1b\\", "\x1b]777;notify;Interlock;{}\x1b\\"
_OSC_777_TERMINALS = ("rxvt", "foot", "vte")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9 _.-]")
_MAX_NOTICE_CHARS = 60
_TO_END_OF_LINE = "\x1b[K"
_TO_END_OF_SCREEN = "\x1b[J"


def make_live_console() -> Console:
    """Create a console that prints text literally: no markup, highlighting or emoji."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


class LiveRegion:
    """The output region of a live view."""

    def __init__(self, console: Console, *, animated: bool = True, notify: NotifyMode = "bell") -> None:
        """Write to a console. `animated`: redraw rows, where the terminal can; `notify`: when a question waits."""
        self._console = console
        self._notify: NotifyMode = notify
        self._is_animated = animated and console.is_terminal and not console.is_dumb_terminal
        #: Writes nothing: what a text is on the terminal is found out here.
        self._measure_console = Console(
            file=StringIO(),
            force_terminal=console.is_terminal,
            color_system=cast(Any, console.color_system),
            no_color=console.no_color,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=True,
        )
        self._drawn_rows: list[str] = []
        self._rendered: dict[tuple[object, ...], str] = {}
        self._suspensions = 0
        self._is_buffering = False
        #: What is to be said later.
        self._buffered: list[Text] = []

    @property
    def width(self) -> int:
        """Usable width in cells; one less than the terminal, because some wrap at the last cell."""
        return max(self._console.width - 1, 20) if self._console.is_terminal else 79

    @property
    def is_terminal(self) -> bool:
        """True when the output is a terminal, and no file or pipe."""
        return self._console.is_terminal

    @property
    def height(self) -> int:
        """Number of rows of the terminal."""
        return self._console.height

    @property
    def is_animated(self) -> bool:
        """True when rows are redrawn."""
        return self._is_animated

    def print_lines(self, *lines: Text) -> None:
        """Print permanent lines."""
        if self._suspensions or self._is_buffering:
            self._buffered.extend(lines)
        elif lines:
            self._write_frame(lines, self._drawn_rows)

    def draw(self, rows: Sequence[Text]) -> None:
        """Draw the rows below, cut at the width of the terminal."""
        if self._suspensions or not self._is_animated:
            return
        width = self.width
        rendered = {_row_key(row, width): row for row in rows}
        # Most rows are those of the frame before: they are not rendered again.
        self._rendered = {
            key: self._rendered.get(key) or self._to_ansi(_truncate_row(row, width)) for key, row in rendered.items()
        }
        drawn = [self._rendered[_row_key(row, width)] for row in rows]
        if drawn != self._drawn_rows or self._buffered:
            self._write_frame(self._take_buffered(), drawn)

    def notify(self, text: str) -> None:
        """Ring the bell of the terminal, and have it show a notification on the desktop. Only plain characters of the
        text are shown.
        """
        if self._is_animated and self._notify != "off":
            plain = _NOT_PLAIN.sub("", text)[:_MAX_NOTICE_CHARS]
            form = _OSC_777 if os.environ.get("TERM", "").startswith(_OSC_777_TERMINALS) else _OSC_9
            self._write(_BELL + (form.format(plain) if self._notify == "desktop" else ""))

    def clear(self) -> None:
        """Erase the live region."""
        if self._drawn_rows:
            self._write_frame((), [])

    @contextmanager
    def one_frame(self) -> Generator[None]:
        """Combine everything printed and drawn within into one write."""
        self._is_buffering = self._is_animated
        try:
            yield
        finally:
            self._is_buffering = False
            if not self._suspensions:
                self.print_lines(*self._take_buffered())

    @contextmanager
    def suspended(self) -> Generator[None]:
        """Suspend output while something else uses the terminal."""
        self.clear()
        self._suspensions += 1
        try:
            yield
        finally:
            self._suspensions -= 1
            if not self._suspensions:
                self.print_lines(*self._take_buffered())

    def _take_buffered(self) -> list[Text]:
        buffered, self._buffered = self._buffered, []
        return buffered

    def _write_frame(self, lines: Iterable[Text], rows: list[str]) -> None:
        printed = [self._to_ansi(line) for line in lines]
        if not self._is_animated:
            self._write("".join(f"{line}\n" for line in printed))
            return
        back = f"\r\x1b[{len(self._drawn_rows) - 1}A" if len(self._drawn_rows) > 1 else "\r" if self._drawn_rows else ""
        above = "".join(f"{line}{_TO_END_OF_LINE}\n" for line in printed)
        below = f"{_TO_END_OF_LINE}\n".join(rows)
        self._drawn_rows = rows
        self._write(f"{back}{above}{below}{_TO_END_OF_SCREEN}")

    def _to_ansi(self, text: Text) -> str:
        with self._measure_console.capture() as captured:
            self._measure_console.print(text, end="")
        return captured.get()

    def _write(self, text: str) -> None:
        file = self._console.file
        encoding = getattr(file, "encoding", None) or "utf-8"
        try:
            file.write(text.encode(encoding, "backslashreplace").decode(encoding))
            file.flush()
        except OSError:
            _redirect_to_null(file)


def _redirect_to_null(file: IO[str]) -> None:
    """Discard further output: there is no reader, or no room. The run continues without a view."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file.fileno())
    os.close(nowhere)


def _row_key(row: Text, width: int) -> tuple[object, ...]:
    return row.plain, str(row.style), tuple(row.spans), width


def _truncate_row(row: Text, width: int) -> Text:
    shown = row.copy()
    shown.truncate(width, overflow="ellipsis")
    return shown
