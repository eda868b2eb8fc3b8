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
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyte

from tests.patience import HANG_SECONDS

_ROWS, _COLUMNS = 45, 120
_READ_BYTES = 1 << 16
#: How long a key may take to show, before it is pressed again.
_PRESS_SECONDS = 3.0


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
        found = self._waits(lambda: all(text in self.text for text in texts), HANG_SECONDS)
        assert found, f"the terminal does not show {texts}:\n{self.text}"
        return self.text

    def press_until_gone(self, keys: str, text: str) -> None:
        """Type until the screen no longer shows this: a program drops keys while it draws a form."""
        until = time.monotonic() + HANG_SECONDS
        self.press(keys)
        while not self._waits(lambda: text not in self.text, _PRESS_SECONDS):
            assert time.monotonic() < until, f"the terminal still shows {text!r}:\n{self.text}"
            self.press(keys)

    def _waits(self, is_reached: Callable[[], bool], seconds: float) -> bool:
        """Read what the program writes until this holds; return False when it does not in time."""
        until = time.monotonic() + seconds
        while not is_reached():
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return False
            self._stream.feed(os.read(self._descriptor, _READ_BYTES))
        return True


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
