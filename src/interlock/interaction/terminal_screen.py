"""A terminal while a question is on it: lines out, single keys and typed lines in, an editor in between.

A key counts when it came alone. Several characters at once are a paste, the report of a terminal or a key like an
arrow, and answer nothing. What was typed before a prompt is discarded, and who was still typing then is waited for.
Waiting for a key or a line also watches a pipe: a question that is withdrawn stops reading.
"""

import os
import re
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
#: Characters that come in faster than that were not typed one by one.
_BURST_SECONDS = 0.03
#: Who types when a question comes up has to pause that long before a key answers it.
_PAUSE_SECONDS = 0.5
_END_OF_INPUT, _ESCAPE, _CLEAR = b"\x04", b"\x1b", b"\x15"
_ERASE = (b"\x7f", b"\x08")
_UNPRINTABLE = re.compile(r"[^ -~]")
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
    "added": "green",
    "removed": "red",
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

    def read_key(self, prompt: str, keys: str) -> str | None:
        """Return which of the keys was pressed after the prompt was shown; None at the end of the input."""
        ...

    def read(self, prompt: str) -> str | None:
        """Return the line that was typed after the prompt was shown; None at the end of the input."""
        ...

    def edit_line(self, prompt: str, text: str) -> str | None:
        """Return the line as it was changed and confirmed with Enter; None when that was cancelled."""
        ...

    @property
    def has_editor(self) -> bool: ...

    def edit(self, text: str, name: str) -> str | None:
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
    """A `Screen` on two terminal streams. After `with`, the terminal is in the mode that it was in before."""

    def __init__(self, keys: TextIO, output: TextIO, withdrawal: WithdrawalSignal) -> None:
        self._fd = keys.fileno()
        self._output = output
        self._withdrawal = withdrawal
        self._saved_mode = termios.tcgetattr(self._fd)
        columns = os.get_terminal_size(output.fileno()).columns
        if columns < MIN_WIDTH:
            raise OSError(f"it is narrower than {MIN_WIDTH} columns")
        self._console = Console(
            file=output, width=columns, markup=False, highlight=False, emoji=False, legacy_windows=False
        )

    @property
    def width(self) -> int:
        """Columns of the window, as it is now."""
        return min(os.get_terminal_size(self._output.fileno()).columns, MAX_WIDTH)

    @property
    def height(self) -> int:
        """Rows of the window, as it is now."""
        return os.get_terminal_size(self._output.fileno()).lines

    def __enter__(self) -> "TerminalScreen":
        self._set_mode(by_line=False)
        if self._is_readable(0):  # Someone is typing, and means something else.
            while self._is_readable(_PAUSE_SECONDS):
                termios.tcflush(self._fd, termios.TCIFLUSH)
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

    def read_key(self, prompt: str, keys: str) -> str | None:
        """Discard earlier input, print the prompt and wait for one of the keys. Return None at the end of input."""
        self._start_reading(prompt, by_line=False)
        while True:
            typed = self._read_burst()
            if typed in (b"", _END_OF_INPUT):
                self._write("\n")
                return None
            key = typed.decode("ascii", "replace").lower()
            if len(key) == 1 and key in keys:
                self._write(f"{key}\n")
                return key
            # In place, so that stray keys do not move the question out of the window.
            blank, prompt = " " * len(prompt), f"Press one of these: {' '.join(keys.strip())} "
            self._write(f"\r{blank}\r{prompt}")

    def read(self, prompt: str) -> str | None:
        """Discard earlier input, print the prompt and read a line. Return None at the end of input."""
        self._start_reading(prompt, by_line=True)
        typed = b""
        while not typed.endswith(b"\n"):
            more = self._read_input()
            if not more or len(typed) > _MAX_LINE_BYTES:
                self._print(DisplayLine("", "fact"))
                return None
            typed += more
        return typed.decode("utf-8", "replace").rstrip("\r\n")

    def edit_line(self, prompt: str, text: str) -> str | None:
        """Let a person change a line of plain text. A single Enter confirms it, a single Escape cancels it."""
        self._start_reading("", by_line=False)
        drawn = 0
        while True:
            room = self.width - len(prompt) - 2
            line = prompt + (text if len(text) <= room else f"<{text[1 - room :]}")
            self._write(f"\r{' ' * drawn}\r{line}")
            drawn, typed = len(line), self._read_burst()
            if typed in (b"", b"\n", _END_OF_INPUT, _ESCAPE):
                self._write("\n")
                return text if typed == b"\n" else None
            if typed == _CLEAR:
                text = ""
            elif typed in _ERASE:
                text = text[:-1]
            elif not typed.startswith(_ESCAPE) and len(text) + len(typed) <= _MAX_LINE_BYTES:
                text += _UNPRINTABLE.sub("", typed.decode("ascii", "ignore"))

    @property
    def has_editor(self) -> bool:
        """True if the person has a usable editor."""
        return bool(_editor_command())

    def edit(self, text: str, name: str) -> str | None:
        """Open a text in the person's editor. Return None if it failed or is too large."""
        with tempfile.TemporaryDirectory(prefix="interlock-") as folder:
            file = Path(folder, name)
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
            self._set_mode(by_line=False)
        self._raise_if_withdrawn()
        return code

    def _print(self, line: DisplayLine) -> None:
        self._console.print(Text(line.text, _STYLES[line.style]), soft_wrap=True)

    def _write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()

    def _set_mode(self, *, by_line: bool) -> None:
        """Read whole lines with an echo, or single keys without one."""
        mode = termios.tcgetattr(self._fd)
        mode[0] = (mode[0] | termios.ICRNL) & ~(termios.INLCR | termios.IGNCR)
        mode[1] |= termios.OPOST | termios.ONLCR
        mode[3] |= termios.ISIG | termios.IEXTEN
        line_mode = termios.ICANON | termios.ECHO | termios.ECHOE
        mode[3] = mode[3] | line_mode if by_line else mode[3] & ~line_mode
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._fd, termios.TCSANOW, mode)

    def _start_reading(self, prompt: str, *, by_line: bool) -> None:
        """Discard what was typed before, and print the prompt."""
        self._set_mode(by_line=by_line)
        termios.tcflush(self._fd, termios.TCIFLUSH)
        self._write(prompt)

    def _is_readable(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._fd, self._withdrawal.read_fd], [], [], seconds)
        self._raise_if_withdrawn()
        return self._fd in ready

    def _read_burst(self) -> bytes:
        """Read what comes in at once; empty at the end of input."""
        typed = more = self._read_input()
        while more and len(typed) <= _MAX_LINE_BYTES and self._is_readable(_BURST_SECONDS):
            more = self._read_input()
            typed += more
        return typed

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
