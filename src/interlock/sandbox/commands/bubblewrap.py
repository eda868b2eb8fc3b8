"""Commands in bubblewrap: new namespaces, a view of few files, no capabilities, fewer system calls.

The view is built from nothing: an empty root, the system's programs and libraries read-only, private temporary folders,
then what the profile names. So no socket, key or configuration of the host is there to be found. What cannot be seen
need not be refused.

- Bubblewrap itself runs with an empty environment, since `/proc/1/environ` shows it inside.
- Its options go through a descriptor: a command line can be read by every user of the host.
- As root, files of `/proc` that belong to root could be written inside, so they are covered.
- Bubblewrap mounts no path inside of a workspace: another command could exchange it for a link, and bubblewrap would
  follow it and make or empty a file of the host. What is hidden or read-only there is mounted by descriptor before the
  command begins: see `covers`.

A workspace is what the caller says, except a folder of the system. Code of this very process that lies in it cannot be
written. A home is a bad choice: all that is in it can be read.
"""

import fcntl
import os
import platform
import signal
import stat
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from typing import NamedTuple

from ...domain.errors import SandboxSetupError
from ..host import process_tree, programs, seccomp
from ..host.cgroups import holds_root
from ..host.programs import is_inside
from ..interface import CAPABILITIES, Command, Confinement, OnOutput, Profile, Running
from . import covers, shell
from .covers import Cover
from .running import Launch, run_launch
from .view import View, is_below, view_of

_NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--disable-userns", "--cap-drop", "ALL", "--hostname", "sandbox"),
    *("--new-session", "--die-with-parent"),
)
#: Descriptors that stay open in a script are beyond those that scripts use.
_FIRST_FD = 100
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_DEVICE_MODE = 0o666
_ROOT_NOTE = (
    "This process is root. A command cannot use that, except that it could change the modes of devices such as "
    "/dev/null, which are put right when it ends. Run as an ordinary user where you can."
)
_UNCOUNTED_NOTE = (
    "There are no control groups for it here, so the number of a command's processes is only looked at now and then."
)
_NO_FILTER = (
    "The system calls of this machine are not known here, so dangerous ones are not refused. "
    f"They are known for {', '.join(seccomp.MACHINES)}."
)


class BubblewrapSandbox:
    def __init__(self, bwrap: str) -> None:
        self._bwrap = bwrap

    @property
    def confinement(self) -> Confinement:
        filtered = _filter() is not None
        capabilities = tuple(name for name in CAPABILITIES if filtered or name != "syscalls")
        is_root = os.geteuid() == 0
        notes = (
            *(() if filtered else (_NO_FILTER,)),
            *((_ROOT_NOTE,) if is_root else ()),
            *((_UNCOUNTED_NOTE,) if is_root and not holds_root() else ()),
        )
        return Confinement(backend="bubblewrap", capabilities=capabilities, degraded=not filtered, notes=notes)

    async def start(self, command: Command, on_output: OnOutput) -> Running:
        shell.check(command)
        options = _set_variables(shell.variables(command.environment))
        view = view_of(command.profile)
        if command.still is not None:
            _check_covered(command.profile, view)
        cwd = _cwd(command)
        # The shell enters it when everything is mounted: a folder that is entered before shows what is below a cover.
        options += ("--chdir", command.profile.workspace if command.profile.system else cwd)
        descriptors = _Descriptors()
        try:
            launch = _launch(self._bwrap, command, view, options, descriptors)
        except OSError as error:
            descriptors.close()
            raise SandboxSetupError(f"The sandbox could not be made: {error}. Nothing was executed.") from error
        return await run_launch(launch, command.profile.limits, on_output)


class _Descriptors:
    """What a launch is made with."""

    def __init__(self) -> None:
        self._kept: list[int] = []
        self._passed: list[int] = []

    @property
    def passed(self) -> tuple[int, ...]:
        return tuple(self._passed)

    def pipe(self) -> tuple[int, int]:
        """Our end, to read, and the sandbox's, to write."""
        kept, passed = os.pipe()
        self._kept.append(kept)
        return kept, self._high(passed)

    def unbreakable_pipe(self) -> tuple[int, int]:
        """As `pipe`, but who writes is a reader, too, so that our death does not kill it.

        Bubblewrap writes while its child waits for it. Killed by the write, it would leave the child waiting for ever.
        """
        kept, writable = os.pipe()
        self._kept.append(kept)
        try:
            self._passed.append(os.open(f"/proc/self/fd/{writable}", os.O_RDWR | os.O_CLOEXEC))
        finally:
            os.close(writable)
        return kept, self._passed[-1]

    def pipe_in(self) -> tuple[int, int]:
        """Our end, to write, and the sandbox's, to read."""
        passed, kept = os.pipe()
        self._kept.append(kept)
        return kept, self._high(passed)

    def file(self, path: str) -> int:
        self._passed.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        return self._passed[-1]

    def folder(self, command: Command) -> int:
        """The folder to start in, to be compared with, by a descriptor that cannot be read or searched."""
        path = command.cwd or command.profile.workspace
        opened = os.dup(command.folder) if command.folder >= 0 else os.open(path, os.O_PATH | os.O_CLOEXEC)
        return self._high(opened)

    def memory(self) -> int:
        """An empty file without a name."""
        return self._high(os.memfd_create("sandbox"))

    def give(self, content: bytes) -> str:
        """A file without a name that has this content."""
        fd = self.memory()
        _fill(fd, content)
        return str(fd)

    def close(self) -> None:
        for fd in (*self._kept, *self._passed):
            os.close(fd)

    def _high(self, fd: int) -> int:
        try:
            self._passed.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD))
        finally:
            os.close(fd)
        return self._passed[-1]


def _fill_pipe(fd: int) -> None:
    """To the last byte: then there is room when somebody has read."""
    size = fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, os.sysconf("SC_PAGE_SIZE"))
    os.write(fd, b"\n" * size)


def _fill(fd: int, content: bytes) -> None:
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)


def _launch(bwrap: str, command: Command, view: View, options: tuple[str, ...], descriptors: _Descriptors) -> Launch:
    profile = command.profile
    status_fd, its_status = descriptors.unbreakable_pipe()
    report_fd, its_report = descriptors.pipe()
    gate_fd, inside, inside_options = _inside(command, its_report, descriptors)
    packed = (
        *(*_NAMESPACES, *(() if profile.network else ("--unshare-net",))),
        *view.options,
        *(word for path in view.copies for word in _copy(path, descriptors)),
        *inside_options,
        *("--remount-ro", "/"),
        *options,
        *_seccomp(descriptors),
        *("--json-status-fd", str(its_status)),
    )
    hold_fd, held = (-1, ()) if profile.system else _hold(descriptors)
    options_fd = descriptors.give("\0".join((*packed, "")).encode())
    return Launch(
        argv=(bwrap, *held, "--args", options_fd, "--", *inside),
        environment={},
        pass_fds=descriptors.passed,
        status_fd=status_fd,
        report_fd=report_fd,
        kill_signal=signal.SIGKILL,
        silent=not profile.system,
        gate_fd=gate_fd,
        complete=partial(_complete, profile, view, descriptors),
        completes_fast=not view.covers,
        still=command.still,
        limits=None if profile.system else profile.limits,
        hold_fd=hold_fd,
        writes=profile.workspace if profile.writable else "",
        alone=command.alone,
        bound=command.bound,
        after=partial(_end, descriptors),
    )


def _hold(descriptors: _Descriptors) -> tuple[int, tuple[str, ...]]:
    """Bubblewrap reads its options to the end before it does anything. These are none, and end when our end closes."""
    hold_fd, its_end = descriptors.pipe_in()
    return hold_fd, ("--args", str(its_end))


class _Inside(NamedTuple):
    """What is executed, and how it is held back until the sandbox was looked at."""

    gate_fd: int
    argv: tuple[str, ...]
    options: tuple[str, ...]


def _inside(command: Command, report_fd: int, descriptors: _Descriptors) -> _Inside:
    gate_fd, its_end = descriptors.pipe_in()
    empty = ("--perms", "0444", "--file", descriptors.give(b""), covers.EMPTY)
    if not command.profile.system:
        _fill_pipe(gate_fd)
        return _Inside(gate_fd, command.argv, (*empty, "--perms", "0444", "--file", str(its_end), covers.GATE))
    prelude_fd, folder_fd = descriptors.memory(), descriptors.folder(command)
    _fill(prelude_fd, shell.prelude(command, report_fd, prelude_fd, its_end, folder_fd))
    options = ("--setenv", "BASH_ENV", f"/dev/fd/{prelude_fd}")
    return _Inside(gate_fd, shell.words(command, programs.find_bash(), report_fd), (*empty, *options))


class _Command(NamedTuple):
    """A command under way."""

    workspace: str
    launched: int
    inside: int
    #: What it sees empty.
    hidden: set[str]


#: By what they were launched with.
_commands: dict[_Descriptors, _Command] = {}


def _complete(profile: Profile, view: View, key: _Descriptors, launched: int, inside: int) -> str:
    """Compare what is shown with what was planned, and mount the covers. Return what went wrong; empty: nothing."""
    root = "" if profile.system else covers.UNDER_CONSTRUCTION
    if moved := covers.differing(inside, root, view.shown):
        return f"{moved} was exchanged while the sandbox was made"
    _hide_from_others(view)
    problem = _cover(launched, inside, root, view.covers) if view.covers else ""
    if profile.system and not problem:
        _commands[key] = _Command(profile.workspace, launched, inside, set(view.hidden))
    return problem


def _hide_from_others(view: View) -> None:
    """Hide what appeared while other commands run from these as well."""
    for other in tuple(_commands.values()):
        new = [cover for cover in view.covers if cover.kind == "hidden" and is_inside(cover.path, other.workspace)]
        new = [cover for cover in new if not is_below(cover.path, other.hidden)]
        # One that has ended meanwhile needs nothing to be hidden.
        with suppress(OSError):
            if new and not _cover(other.launched, other.inside, "", new):
                other.hidden.update(cover.path for cover in new)


def _cover(launched: int, inside: int, root: str, wanted: Sequence[Cover]) -> str:
    namespace = os.open(f"/proc/{inside}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # A number may be given to another process, but not to another child of one that we have not collected.
        if inside not in process_tree.children(launched):
            return "the sandbox has ended"
        return covers.mount_covers(namespace, root, wanted)
    finally:
        os.close(namespace)


def _end(key: _Descriptors) -> None:
    """Clean up when everything of a command is dead."""
    _commands.pop(key, None)
    if os.geteuid() == 0:
        _put_devices_right()


def _copy(path: str, descriptors: _Descriptors) -> tuple[str, ...]:
    return ("--perms", "0444", "--file", str(descriptors.file(path)), path)


def _seccomp(descriptors: _Descriptors) -> tuple[str, ...]:
    program = _filter()
    return ("--seccomp", descriptors.give(program)) if program is not None else ()


def _set_variables(variables: dict[str, str]) -> tuple[str, ...]:
    return tuple(word for name, value in variables.items() for word in ("--setenv", name, value))


def _check_covered(profile: Profile, view: View) -> None:
    """What was just found, and is not there to be covered now, comes back when nobody looks."""
    covered = frozenset(view.hidden)
    for path in profile.hidden:
        if not is_below(path, covered):
            raise SandboxSetupError(f"{path[:500]} was moved while it was to be hidden. Nothing was executed.")


def _cwd(command: Command) -> str:
    workspace = command.profile.workspace
    cwd = command.cwd or workspace
    if not is_inside(os.path.realpath(cwd), workspace):
        raise SandboxSetupError(f"The folder {cwd[:500]} is not in the workspace. Nothing was executed.")
    if any(is_inside(os.path.realpath(cwd), hidden) for hidden in command.profile.hidden):
        raise SandboxSetupError(f"The folder {cwd[:500]} is closed to commands. Nothing was executed.")
    if not os.path.isdir(cwd):
        raise SandboxSetupError(f"The folder {cwd[:500]} is gone. Nothing was executed; start in another one.")
    return cwd


@cache
def _filter() -> bytes | None:
    machine = platform.machine()
    return seccomp.build_filter(machine) if machine in seccomp.MACHINES else None


def _put_devices_right() -> None:
    """Root inside owns them, and bubblewrap cannot mount a device read-only."""
    for device in _DEVICES:
        with suppress(OSError):
            found = os.lstat(device)
            if stat.S_ISCHR(found.st_mode) and stat.S_IMODE(found.st_mode) != _DEVICE_MODE:
                os.chmod(device, _DEVICE_MODE)
