"""A program that confines a command: what it is given, and its spawn."""

import os
import subprocess
from collections.abc import Callable, Mapping

import msgspec

from ..domain.errors import SandboxSetupError
from .interface import Stream


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A program that confines a command and tells about it. `run_launch` closes all of its descriptors."""

    argv: tuple[str, ...]
    #: Of the launched program itself, and nothing else: what it inherits could be read from inside.
    environment: Mapping[str, str]
    #: What the launched program inherits; closed here once it runs.
    pass_fds: tuple[int, ...]
    #: Read end of JSON lines: `{"child-pid": n}` early; `{"exit-code": n}` only if the command really started and
    #: ended; `{"started": true}` when it was executed; `{"setup-error": text}` when it could not be confined.
    status_fd: int
    #: Read end of what the shell itself says: see `shell`.
    report_fd: int
    #: What ends the launched program with all below it: SIGKILL for bubblewrap, SIGTERM for a supervisor.
    kill_signal: int
    #: Nobody can say that the command has begun. A set-up that failed is then known at its end only.
    silent: bool = False
    #: Write end of a pipe that the command waits at: the shell says so, or, if it is silent, there is room in the pipe.
    #: It goes on with a byte and its end.
    gate_fd: int = -1
    #: Asked at the gate, with the number of the first process inside, what is wrong with the sandbox. Empty: nothing.
    check: Callable[[int], str] | None = None
    #: Called when everything of it is dead.
    after: Callable[[], None] | None = None


def spawn(launch: Launch) -> tuple["subprocess.Popen[bytes]", dict[Stream, int]]:
    """`SandboxSetupError` when it cannot be; then all descriptors are closed."""
    fds: list[int] = []
    try:
        fds += os.pipe()
        fds += os.pipe()
        process = subprocess.Popen(  # noqa: S603 the backend's own program
            launch.argv,
            env=dict(launch.environment),
            stdin=subprocess.DEVNULL,
            stdout=fds[1],
            stderr=fds[3],
            pass_fds=launch.pass_fds,
            # An interrupt typed for us is not for the command.
            start_new_session=True,
            cwd="/",
        )
    except (OSError, ValueError) as error:
        for fd in fds[0::2] if fds else []:
            os.close(fd)
        for fd in (launch.status_fd, launch.report_fd, launch.gate_fd):
            if fd >= 0:
                os.close(fd)
        raise SandboxSetupError(f"The sandbox could not be started: {error}. Nothing was executed.") from error
    finally:
        for fd in (*fds[1::2], *launch.pass_fds):
            os.close(fd)
    return process, {"stdout": fds[0], "stderr": fds[2]}
