"""A program that confines a command: its inputs, and its spawn."""

import fcntl
import os
import resource
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import msgspec

from ...domain.errors import SandboxSetupError
from ...domain.payload import ExecutionEnvironment
from ...rendering.text import describe_error
from ..host.cgroups import CommandCgroup
from ..host.spawn import spawn_program
from ..interface import CommandLimits, CommandSpec, ExclusiveUntil, OutputStream
from ..workspace.file_operands import describe_change
from .helper_process import WatchedLaunch, helper_process

#: Descriptors that stay open in a script are beyond those that scripts use.
_FIRST_FD = 100
_CHANGED_MESSAGE = "what it may see or change is not what it was when its sandbox was planned. Try again"
_MAX_ERROR_CHARS = 500


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A program that confines a command and reports about it. `run_launch` closes all of its descriptors."""

    argv: tuple[str, ...]
    #: Of the launched program itself, and nothing else: what it inherits could be read from inside.
    environment: Mapping[str, str]
    #: What the launched program inherits; closed here once it runs.
    pass_fds: tuple[int, ...]
    #: Read end of JSON lines: `{"child-pid": n}` early; `{"exit-code": n}` only if the command really started and
    #: ended; `{"started": true}` when it was executed; `{"setup-error": text}` when it could not be confined.
    status_fd: int
    #: Read end of the shell's report: see `bash_prelude`.
    report_fd: int
    #: What ends the launched program with all below it: SIGKILL for bubblewrap, SIGTERM for a supervisor.
    kill_signal: int
    #: The start of the command cannot be observed. A failed set-up is then known at its end only.
    has_no_start_report: bool = False
    #: Write end of a pipe that the command waits at: the shell says so, or, if it is silent, there is room in the pipe.
    #: It continues after a byte and the end of the pipe.
    gate_fd: int = -1
    #: Completes the sandbox at the gate, given the launched process and the first one inside, and returns what went
    #: wrong; empty: nothing. Called in a thread.
    complete_sandbox: Callable[[int, int], str] | None = None
    #: Completing it takes microseconds.
    can_complete_inline: bool = False
    #: Asked at the gate as well, or before the launch where there is none, in a thread: see `CommandSpec`.
    is_still_valid: Callable[[], bool] | None = None
    #: Set on the launched program itself, where no shell inside can set them.
    limits: CommandLimits | None = None
    #: Write end of a pipe: the launched program waits for its end before it does anything.
    barrier_fd: int = -1
    #: The folder that the command can write; empty: none. For how long no other command may: see `CommandSpec`.
    writable_folder: str = ""
    exclusive_until: ExclusiveUntil = ""
    #: Compared at the gate: see `CommandSpec`.
    expected_environment: ExecutionEnvironment | None = None
    #: Its standard input, which is closed by its owner. -1: it is empty.
    input_fd: int = -1
    #: See `CommandSpec`.
    has_bulk_output: bool = False
    #: Called when everything of it is dead.
    on_end: Callable[[], None] | None = None

    def close_own_fds(self) -> None:
        """Close the descriptors that only the parent uses."""
        _close_fds(self.status_fd, self.report_fd, self.gate_fd)

    def close_passed_fds(self) -> None:
        """Close the descriptors that the child has inherited."""
        _close_fds(*self.pass_fds, self.barrier_fd)

    @property
    def can_prepare_inline(self) -> bool:
        """Return True when `prepare` needs no thread."""
        return self.can_complete_inline and self.is_still_valid is None and self.expected_environment is None

    def prepare(self, launched: int, inside: int) -> str:
        """Do what is left to do at the gate, and return why the command must not begin; empty: it may."""
        try:
            problem = self.complete_sandbox(launched, inside) if self.complete_sandbox is not None else ""
        except OSError as error:
            problem = f"the sandbox could not be completed ({describe_error(error)})"
        if self.expected_environment is not None and not problem:
            problem = describe_change(self.expected_environment)
        return problem or (recheck_validity(self.is_still_valid) if self.is_still_valid is not None else "")


class LaunchDescriptors:
    """The descriptors of a launch."""

    def __init__(self) -> None:
        self._kept: list[int] = []
        self._passed: list[int] = []

    @property
    def passed(self) -> tuple[int, ...]:
        """Descriptors that the child inherits."""
        return tuple(self._passed)

    def pipe(self) -> tuple[int, int]:
        """Create a pipe. Return our end to read and the sandbox's end to write."""
        kept, passed = os.pipe()
        self._kept.append(kept)
        return kept, self._pass_high(passed)

    def unbreakable_pipe(self) -> tuple[int, int]:
        """Create a pipe whose writer can read as well, so that it survives the death of this process.

        Bubblewrap writes while its child waits for it. Killed by the write, it would leave the child waiting for ever.
        """
        kept, writable = os.pipe()
        self._kept.append(kept)
        try:
            self._passed.append(os.open(f"/proc/self/fd/{writable}", os.O_RDWR | os.O_CLOEXEC))
        finally:
            os.close(writable)
        return kept, self._passed[-1]

    def input_pipe(self) -> tuple[int, int]:
        """Create a pipe. Return our end to write and the sandbox's end to read."""
        passed, kept = os.pipe()
        self._kept.append(kept)
        return kept, self._pass_high(passed)

    def open_file(self, path: str) -> int:
        """Open a file for the child."""
        self._passed.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        return self._passed[-1]

    def open_folder(self, command: CommandSpec) -> int:
        """Open the start folder for comparison, with a descriptor that cannot be read or searched."""
        if command.folder_fd >= 0:
            return self.duplicate(command.folder_fd)
        return self._pass_high(os.open(command.cwd or command.profile.workspace, os.O_PATH | os.O_CLOEXEC))

    def duplicate(self, fd: int) -> int:
        """Pass a copy of a descriptor to the child."""
        return self._pass_high(os.dup(fd))

    def create_memfd(self, content: bytes = b"") -> int:
        """Create an anonymous file with this content."""
        fd = self._pass_high(os.memfd_create("sandbox"))
        os.pwrite(fd, content, 0)
        return fd

    def close(self) -> None:
        """Close all descriptors."""
        for fd in (*self._kept, *self._passed):
            os.close(fd)

    def _pass_high(self, fd: int) -> int:
        try:
            self._passed.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD))
        finally:
            os.close(fd)
        return self._passed[-1]


class SpawnedProcess:
    """A program that was started, until its end is collected."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        #: Ends it when this process is killed, where the kernel alone would not.
        self.watched: WatchedLaunch | None = None
        #: As `subprocess` has it: negative for a signal. None until `wait` returned.
        self.returncode: int | None = None

    def wait(self) -> int:
        """Wait for the end of the process. Return its exit code."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def spawn_launch(launch: Launch, cgroup: CommandCgroup | None) -> tuple[SpawnedProcess, dict[OutputStream, int]]:
    """Start it in the control groups. Raise `SandboxSetupError` when it cannot be started; then all descriptors are
    closed.
    """
    fds: list[int] = []
    start = partial(_start_process, launch, cgroup, fds)
    try:
        process = start() if cgroup is None else cgroup.run_inside(start)
    except (OSError, ValueError) as error:
        _close_fds(*fds[0::2])
        launch.close_own_fds()
        raise SandboxSetupError(f"The sandbox could not be started: {error}. Nothing was executed.") from error
    return process, {"stdout": fds[0], "stderr": fds[2]}


def _start_process(launch: Launch, cgroup: CommandCgroup | None, fds: list[int]) -> SpawnedProcess:
    """Start it with pipes for its output, which are added to the descriptors, and let it continue."""
    try:
        fds += os.pipe()
        fds += os.pipe()
        process = SpawnedProcess(
            spawn_program(
                launch.argv,
                launch.environment,
                launch.pass_fds,
                output=(fds[1], fds[3]),
                input_fd=launch.input_fd,
                # An interrupt typed for us is not for the command.
                new_session=True,
            )
        )
        _prepare_process(process, launch, cgroup)
    finally:
        _close_fds(*fds[1::2])
        launch.close_passed_fds()
    return process


def recheck_validity(is_still_valid: Callable[[], bool]) -> str:
    """Return why the command is no longer valid, as text for people; empty when it is. May block."""
    try:
        return "" if is_still_valid() else _CHANGED_MESSAGE
    except Exception as error:
        return f"what it may see could not be looked at again ({describe_error(error)[:_MAX_ERROR_CHARS]})"


def _prepare_process(process: SpawnedProcess, launch: Launch, cgroup: CommandCgroup | None) -> None:
    """Do what is needed before a launched program may continue; if that fails, it is killed."""
    try:
        if cgroup is not None:
            cgroup.add_process(process.pid)
        if launch.barrier_fd >= 0:
            process.watched = helper_process.watch(process.pid)
        if launch.limits is not None:
            _set_limits(process.pid, launch.limits)
    except (OSError, ValueError):
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if process.watched is not None:
            process.watched.close()
        raise


def _set_limits(pid: int, limits: CommandLimits) -> None:
    """Set the limits of a process. A lower limit of the host stays."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_DATA: limits.memory_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
    }
    with suppress(ProcessLookupError):  # dead already, as will be seen
        for number, limit in wanted.items():
            most = resource.prlimit(pid, number)[1]
            lowest = limit if most == resource.RLIM_INFINITY else min(limit, most)
            resource.prlimit(pid, number, (lowest, lowest))


def _close_fds(*fds: int) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)
