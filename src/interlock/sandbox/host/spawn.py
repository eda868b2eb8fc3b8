"""Start a program without what this process has: its signals, its descriptors, its environment."""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

_STANDARD_FDS = 3
_SIGNALS = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


def spawn_program(  # noqa: PLR0913 - what a program begins with
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    pass_fds: Sequence[int],
    *,
    output: tuple[int, int] | None = None,
    input_fd: int = -1,
    new_session: bool = False,
) -> int:
    """Start a program and return its process id. Its standard input is `input_fd`, or empty; `output` are its other two
    streams.
    """
    standard_input = (
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0) if input_fd < 0 else (os.POSIX_SPAWN_DUP2, input_fd, 0)
    )
    actions: list[tuple[Any, ...]] = [standard_input]
    if output is not None:
        actions += [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(output, 1)]
    # Not onto itself: older C libraries leave it closed at the start of the program then.
    spare = max((*pass_fds, _STANDARD_FDS)) + 1
    for fd in pass_fds:
        actions += [(os.POSIX_SPAWN_DUP2, fd, spare), (os.POSIX_SPAWN_DUP2, spare, fd), (os.POSIX_SPAWN_CLOSE, spare)]
    actions += [(os.POSIX_SPAWN_CLOSE, fd) for fd in _find_inheritable_fds(pass_fds)]
    return os.posix_spawn(
        argv[0], argv, environment, file_actions=actions, setsid=new_session, setsigmask=(), setsigdef=_SIGNALS
    )


def _find_inheritable_fds(pass_fds: Sequence[int]) -> list[int]:
    """Return descriptors that some library left open for every program."""
    inheritable: list[int] = []
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        with suppress(OSError):  # closed meanwhile
            if fd >= _STANDARD_FDS and fd not in pass_fds and os.get_inheritable(fd):
                inheritable.append(fd)
    return inheritable
