"""A terminal while a question is on it: lines out, typed lines in, an editor in between.

Keys are read as whole lines in the terminal's own line mode, so a crash leaves nothing to repair, a stray key answers
nothing, and what a program or a paste sent without an Enter is never taken for an answer. What was typed before a
prompt is discarded. Waiting for a line also watches a pipe: a question that is withdrawn stops reading.
"""

import os
import select
import shlex
import subprocess
import tempfile
import termios
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Protocol, TextIO

from rich.console import Console
from rich.text import Text

from ..rendering.question import MAX_WIDTH, MIN_WIDTH, DisplayLine, LineStyle

MAX_EDITED_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 16
_STYLES: Mapping[LineStyle, str] = {
    "title": "bold",
    "label": "bold",
    "payload": "",
    "fact": "",
    "risk": "yellow",
    "warning": "yellow",
    "loud": "bold reverse",
    "hash": "cyan",
    "hint": "dim",
}


class QuestionWithdrawnError(Exception):
    """The question was withdrawn."""


class Screen(Protocol):
    """The terminal as the dialog needs it."""

    @property
    def width(self) -> int: ...

    @property
    def height(self) -> int: ...

    def show(self, lines: Iterable[DisplayLine]) -> None: ...

    def read(self, prompt: str) -> str | None:
        """Return the line that was typed after the prompt was shown; None at the end of the input."""
        ...

    @property
    def has_editor(self) -> bool: ...

    def edit(self, text: str) -> str | None:
        """Return the text as it was left in the person's editor; None when the editor failed."""
        ...


class WithdrawalSignal:
    """Signals the dialog thread to stop, whatever it waits for. Thread-safe; may be sent more than once."""

    def __init__(self) -> None:
        self.is_requested = False
        self._lock = Lock()
        self._editor: subprocess.Popen[bytes] | None = None
        self.read_fd, self._write_fd = os.pipe()

    def request(self) -> None:
        """Withdraw the question: wake the reader and end the editor."""
        with self._lock:
            self.is_requested = True
            if self._write_fd >= 0:
                os.write(self._write_fd, b"!")
            if self._editor is not None:
                self._editor.terminate()

    def set_editor(self, editor: subprocess.Popen[bytes] | None) -> None:
        """Register the editor process, which ends with the question."""
        with self._lock:
            self._editor = editor
            if editor is not None and self.is_requested:
                editor.terminate()

    def close(self) -> None:
        """Close both ends of the wake-up pipe."""
        with self._lock:
            os.close(self.read_fd)
            os.close(self._write_fd)
            self.read_fd = self._write_fd = -1


class TerminalScreen:
    """A `Screen` on two terminal streams. Within `with`, the terminal is in line mode."""

    def __init__(self, keys: TextIO, output: TextIO, withdrawal: WithdrawalSignal) -> None:
        self._fd = keys.fileno()
        self._output = output
        self._withdrawal = withdrawal
        self._saved_mode = termios.tcgetattr(self._fd)
        size = os.get_terminal_size(output.fileno())
        self.width = min(size.columns, MAX_WIDTH)
        self.height = size.lines
        if size.columns < MIN_WIDTH:
            raise OSError(f"it is narrower than {MIN_WIDTH} columns")
        self._console = Console(
            file=output, width=size.columns, markup=False, highlight=False, emoji=False, legacy_windows=False
        )

    def __enter__(self) -> "TerminalScreen":
        self._set_line_mode()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError, termios.error):  # A terminal that is gone needs nothing.
            if isinstance(error, QuestionWithdrawnError):
                self._print(DisplayLine("\nIt is not asked here any more.", "loud"))
            termios.tcflush(self._fd, termios.TCIFLUSH)
            termios.tcsetattr(self._fd, termios.TCSANOW, self._saved_mode)

    def show(self, lines: Iterable[DisplayLine]) -> None:
        """Print lines until the question is withdrawn."""
        for line in lines:
            self._raise_if_withdrawn()
            self._print(line)

    def read(self, prompt: str) -> str | None:
        """Discard earlier input, print the prompt and read a line. Return None at the end of input."""
        termios.tcflush(self._fd, termios.TCIFLUSH)
        self._output.write(prompt)
        self._output.flush()
        typed = b""
        while not typed.endswith(b"\n"):
            more = self._read_input()
            if not more or len(typed) > _MAX_LINE_BYTES:
                self._print(DisplayLine("", "fact"))
                return None
            typed += more
        return typed.decode("utf-8", "replace").rstrip("\r\n")

    @property
    def has_editor(self) -> bool:
        """True if the person has a usable editor."""
        return bool(_editor_command())

    def edit(self, text: str) -> str | None:
        """Open a text in the person's editor. Return None if it failed or is too large."""
        with tempfile.TemporaryDirectory(prefix="interlock-") as folder:
            file = Path(folder, "arguments.json")
            file.write_text(text, "utf-8")
            try:
                if self._run_editor([*_editor_command(), str(file)]) != 0 or file.stat().st_size > MAX_EDITED_BYTES:
                    return None
                return file.read_text("utf-8")
            except (OSError, UnicodeDecodeError):
                return None

    def _run_editor(self, command: list[str]) -> int:
        termios.tcsetattr(self._fd, termios.TCSANOW, self._saved_mode)
        out = self._output.fileno()
        try:
            # The person's own choice of an editor.
            with subprocess.Popen(command, stdin=self._fd, stdout=out, stderr=out) as editor:  # noqa: S603
                self._withdrawal.set_editor(editor)
                code = editor.wait()
                self._withdrawal.set_editor(None)
        finally:
            self._set_line_mode()
        self._raise_if_withdrawn()
        return code

    def _print(self, line: DisplayLine) -> None:
        self._console.print(Text(line.text, _STYLES[line.style]), soft_wrap=True)

    def _set_line_mode(self) -> None:
        mode = termios.tcgetattr(self._fd)
        mode[0] = (mode[0] | termios.ICRNL) & ~(termios.INLCR | termios.IGNCR)
        mode[1] |= termios.OPOST | termios.ONLCR
        mode[3] |= termios.ICANON | termios.ECHO | termios.ECHOE | termios.ISIG | termios.IEXTEN
        termios.tcsetattr(self._fd, termios.TCSANOW, mode)

    def _read_input(self) -> bytes:
        """Read the next input; empty at its end."""
        ready, _, _ = select.select([self._fd, self._withdrawal.read_fd], [], [])
        self._raise_if_withdrawn()
        return os.read(self._fd, 4096) if self._fd in ready else b""

    def _raise_if_withdrawn(self) -> None:
        if self._withdrawal.is_requested:
            raise QuestionWithdrawnError


def _editor_command() -> list[str]:
    """Return the person's editor with its options; empty if there is none or it cannot be parsed."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        return shlex.split(chosen)
    except ValueError:
        return []
