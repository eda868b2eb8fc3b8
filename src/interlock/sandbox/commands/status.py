"""Reports about a command: by the launched program (status), and by the shell inside (report)."""

import signal
from contextlib import suppress
from typing import Literal

import msgspec

from ..interface import EndReason

#: Shells and bubblewrap say that a signal ended a program by an exit code from here on.
_SIGNAL_CODE = 128
_STATUS_BYTES = 1 << 16
_REPORT_BYTES = 1 << 14
#: `waiting`, and what comes of it.
_FIRST_WORDS = 2


class LaunchStatus:
    """The status reported by the launched program. Only it can write there."""

    def __init__(self) -> None:
        self._buffer = b""
        self.child_pid = 0
        self.exit_code: int | None = None
        self.started = False
        self.setup_error = ""

    def feed(self, chunk: bytes) -> None:
        """Add bytes that the launched program wrote, and apply complete lines."""
        *lines, self._buffer = (self._buffer + chunk)[-_STATUS_BYTES:].split(b"\n")
        for line in lines:
            with suppress(msgspec.DecodeError):
                self._apply(msgspec.json.decode(line, type=_StatusLine))

    def _apply(self, line: "_StatusLine") -> None:
        self.child_pid = line.child_pid or self.child_pid
        self.started = line.started or self.started
        self.setup_error = line.setup_error or self.setup_error
        if line.exit_code is not None:
            self.exit_code = line.exit_code


class _StatusLine(msgspec.Struct, rename=lambda name: name.replace("_", "-")):
    child_pid: int = 0
    exit_code: int | None = None
    started: bool = False
    setup_error: str = ""


class ShellReport:
    """The report of the shell: see `bash_prelude`. The command can write there as well, after the words that matter
    here.
    """

    def __init__(self) -> None:
        self._buffer = b""
        self._first: list[bytes] = []

    def feed(self, chunk: bytes) -> None:
        """Add bytes that the shell wrote."""
        self._buffer = (self._buffer + chunk)[-_REPORT_BYTES:]
        if not self.says("started"):
            self._first = self._buffer.split(b"\0")[:-1][:_FIRST_WORDS]

    @property
    def is_waiting(self) -> bool:
        """True if the shell waits for permission to start the command."""
        return self._first == [b"waiting"]

    def says(self, word: Literal["started", "ready", "missing", "moved"]) -> bool:
        """Return True if the shell reported this about the command."""
        return word.encode() in self._first

    @property
    def exit_code(self) -> int | None:
        """Exit code of the command, or None if it is not known."""
        code = self._exit_fields()[0]
        return int(code) if code.isdigit() else None

    @property
    def cwd(self) -> str:
        """Folder that the command ended in; empty if it is not known."""
        try:
            return self._exit_fields()[1].decode()
        except UnicodeDecodeError:
            return ""

    def _exit_fields(self) -> tuple[bytes, bytes]:
        code, _, cwd = self._buffer.rpartition(b"ended\0")[2].partition(b"\0")
        return (code, cwd.removesuffix(b"\n")) if b"ended\0" in self._buffer else (b"", b"")


def find_signal(code: int | None, launcher_code: int, shell_code: int | None, reason: EndReason) -> str:
    """Return the signal that ended the command; empty when it exited.

    A code over 128 stands for a signal, unless the shell itself said that it exits with it. A program that took the
    shell's place by `exec` and exits with such a code looks like one that a signal ended.
    """
    if code is None:
        return _signal_name(-launcher_code if launcher_code < 0 else signal.SIGKILL)
    if code <= _SIGNAL_CODE or (code == shell_code and reason == "exited"):
        return ""
    return _signal_name(code - _SIGNAL_CODE)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}" if number < signal.NSIG else ""
