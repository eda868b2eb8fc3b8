"""Where a live view writes: lines that stay, and on a terminal a few rows below them that are drawn anew.

A frame is one write: over the old rows, then what stays, then the new rows. So nothing flickers, and the cursor is at
the end of the last row, where a terminal shows what a person types meanwhile. While the region is held somebody else
writes on the terminal: what stays waits until they are done, and nothing is drawn. Without a terminal there are only
lines that stay.
"""

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import IO, Any, cast

from rich.console import Console
from rich.text import Text

_TO_END_OF_LINE = "\x1b[K"
_TO_END_OF_SCREEN = "\x1b[J"


def live_console() -> Console:
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


class Region:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._moves = console.is_terminal and not console.is_dumb_terminal
        #: Writes nothing: what a text is on the terminal is found out here.
        self._paper = Console(
            file=StringIO(),
            force_terminal=console.is_terminal,
            color_system=cast(Any, console.color_system),
            no_color=console.no_color,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=True,
        )
        self._drawn: list[str] = []
        self._held = 0
        self._gathers = False
        #: What is to be said later.
        self._kept: list[Text] = []

    @property
    def width(self) -> int:
        return max(self._console.width - 1, 20) if self._console.is_terminal else 79

    @property
    def moves(self) -> bool:
        """Are there rows that are drawn anew?"""
        return self._moves

    def say(self, *lines: Text) -> None:
        """Lines that stay."""
        if self._held or self._gathers:
            self._kept.extend(lines)
        elif lines:
            self._frame(lines, self._drawn)

    def draw(self, rows: Sequence[Text]) -> None:
        """The rows below, cut where the terminal ends."""
        if self._held or not self._moves:
            return
        drawn = [self._ansi(_cut(row, self.width)) for row in rows]
        if drawn != self._drawn or self._kept:
            self._frame(self._taken(), drawn)

    def clear(self) -> None:
        if self._drawn:
            self._frame((), [])

    @contextmanager
    def one_frame(self) -> Generator[None]:
        """What is said and drawn within is one write."""
        self._gathers = self._moves
        try:
            yield
        finally:
            self._gathers = False
            if not self._held:
                self.say(*self._taken())

    @contextmanager
    def held(self) -> Generator[None]:
        """The terminal is somebody else's."""
        self.clear()
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            if not self._held:
                self.say(*self._taken())

    def _taken(self) -> list[Text]:
        kept, self._kept = self._kept, []
        return kept

    def _frame(self, lines: Iterable[Text], rows: list[str]) -> None:
        said = [self._ansi(line) for line in lines]
        if not self._moves:
            self._write("".join(f"{line}\n" for line in said))
            return
        back = f"\r\x1b[{len(self._drawn) - 1}A" if len(self._drawn) > 1 else "\r" if self._drawn else ""
        above = "".join(f"{line}{_TO_END_OF_LINE}\n" for line in said)
        below = f"{_TO_END_OF_LINE}\n".join(rows)
        self._drawn = rows
        self._write(f"{back}{above}{below}{_TO_END_OF_SCREEN}")

    def _ansi(self, text: Text) -> str:
        with self._paper.capture() as captured:
            self._paper.print(text, end="")
        return captured.get()

    def _write(self, text: str) -> None:
        file = self._console.file
        encoding = getattr(file, "encoding", None) or "utf-8"
        try:
            file.write(text.encode(encoding, "backslashreplace").decode(encoding))
            file.flush()
        except OSError:
            _let_go(file)


def _let_go(file: IO[str]) -> None:
    """Nobody reads any more, or there is no room. A run goes on without a view."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file.fileno())
    os.close(nowhere)


def _cut(row: Text, width: int) -> Text:
    shown = row.copy()
    shown.truncate(width, overflow="ellipsis")
    return shown
