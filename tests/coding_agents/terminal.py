"""A terminal with a program in it: what it shows, and keys for it."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyte

from tests.patience import HANG_SECONDS

_ROWS, _COLUMNS = 45, 120
_READ_BYTES = 1 << 16


class Terminal:
    """Read the screen of a program, and type."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._screen = pyte.Screen(_COLUMNS, _ROWS)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def text(self) -> str:
        """Return the lines that are not empty."""
        return "\n".join(line.rstrip() for line in self._screen.display if line.strip())

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._descriptor, keys.encode())

    def wait_for(self, *texts: str) -> str:
        """Return the screen when it shows all of these texts."""
        until = time.monotonic() + HANG_SECONDS
        while not all(text in self.text for text in texts):
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"the terminal does not show {texts}:\n{self.text}"
            self._stream.feed(os.read(self._descriptor, _READ_BYTES))
        return self.text


@contextmanager
def open_terminal(command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Generator[Terminal]:
    """Start a program in a terminal of its own, and end it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    process = subprocess.Popen(
        command, cwd=cwd, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        yield Terminal(ours)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(ours)
