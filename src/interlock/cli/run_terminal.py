"""A terminal that is left as it was found, however a command ends, and that shows no stray keys meanwhile."""

import os
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

_LOCAL_MODES = 3


class TerminalModes:
    """The modes of standard input as they were; nothing where it is no terminal, or not ours."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None
        with suppress(OSError, ValueError, termios.error, AttributeError):
            self._before = termios.tcgetattr(sys.stdin.fileno())

    def restore(self) -> None:
        if self._before is not None:
            self._set(self._before)

    def hush(self) -> None:
        """Keys that are typed while nothing is asked are not shown: they would land in what is drawn."""
        if self._before is not None:
            modes = [*self._before]
            modes[_LOCAL_MODES] &= ~termios.ECHO
            self._set(modes)

    def _set(self, modes: list[Any]) -> None:
        """A process in the background would be stopped for it."""
        with suppress(OSError, ValueError, termios.error):
            keys = sys.stdin.fileno()
            if os.tcgetpgrp(keys) == os.getpgrp():
                termios.tcsetattr(keys, termios.TCSANOW, modes)


@contextmanager
def terminal_as_it_was() -> Generator[TerminalModes]:
    modes = TerminalModes()
    try:
        yield modes
    finally:
        modes.restore()
