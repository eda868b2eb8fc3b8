"""A command under `supervisor.py`: shared by the backends without namespaces.

The command gets a private folder for its home and its temporary files. The supervisor removes it when nothing of the
command is left, also when this process was killed meanwhile.
"""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress

import msgspec

from ...domain.errors import SandboxSetupError
from ..host.programs import find_bash, is_inside
from ..interface import CommandSpec, OutputHandler, RunningCommand
from . import supervisor
from .bash_prelude import build_argv, build_environment, build_prelude, check_command
from .launch import Launch, LaunchDescriptors
from .running_command import run_launch

_FALLBACK_FOLDERS = ("/var/tmp", "/dev/shm")  # noqa: S108 - a folder of our own is made there


class Restrictions(msgspec.Struct, frozen=True):
    """Restrictions that the supervisor applies to the command."""

    #: A descriptor, closed by its creator.
    ruleset: int | None = None
    #: Filters; what one of them refuses is refused.
    system_calls: tuple[bytes, ...] = ()


@contextmanager
def create_private_folder(workspace: str) -> Generator[str]:
    """Create a folder outside of the workspace. The supervisor removes it, unless something is raised."""
    places = (tempfile.gettempdir(), *_FALLBACK_FOLDERS)
    place = next((place for place in map(os.path.realpath, places) if not is_inside(place, workspace)), None)
    try:
        if place is None:
            raise OSError("there is no place for it outside of the workspace")
        folder = tempfile.mkdtemp(prefix="interlock-", dir=place)
    except OSError as error:
        raise SandboxSetupError(
            f"The command cannot have a folder for temporary files: {error}. Nothing was executed."
        ) from None
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


async def run_supervised(
    command: CommandSpec, on_output: OutputHandler, private: str, restrictions: Restrictions
) -> RunningCommand:
    """Run the command, with `private` for its home and temporary files. Its restrictions are already built."""
    descriptors = LaunchDescriptors()
    try:
        launch = _build_launch(command, private, restrictions, descriptors)
    except BaseException:
        descriptors.close()
        raise
    return await run_launch(launch, command.profile.limits, on_output)


def _build_launch(
    command: CommandSpec, private: str, restrictions: Restrictions, descriptors: LaunchDescriptors
) -> Launch:
    check_command(command)
    environment = _prepare_environment(command, private)
    command = _raise_process_limit(command)
    status, its_status = descriptors.pipe()
    report, its_report = descriptors.pipe()
    options = _supervisor_options(command) | {"status": its_status, "remove": private}
    given, argv = [its_report], command.argv
    if command.profile.system:
        # Then there is a bash, and it says itself when the command begins.
        prelude_fd = descriptors.create_memfd()
        os.pwrite(prelude_fd, build_prelude(command, its_report, prelude_fd), 0)
        environment["BASH_ENV"] = f"/proc/self/fd/{prelude_fd}"
        options["silent"] = True
        given.append(prelude_fd)
        argv = build_argv(command, _require_bash(), its_report)
    lists = {
        "given": given,
        "folder": [] if command.folder_fd < 0 else [descriptors.duplicate(command.folder_fd)],
        "ruleset": [] if restrictions.ruleset is None else [descriptors.duplicate(restrictions.ruleset)],
        "filter": [descriptors.create_memfd(program) for program in restrictions.system_calls],
    }
    options |= {name: ",".join(map(str, fds)) for name, fds in lists.items()}
    settings = (f"{name}={value}" for name, value in options.items())
    return Launch(
        argv=(sys.executable, "-I", "-S", supervisor.__file__, *settings, "--", *argv),
        environment=environment,
        pass_fds=descriptors.passed,
        status_fd=status,
        report_fd=report,
        kill_signal=signal.SIGTERM,
        is_still_valid=command.is_still_valid,
        writable_folder=command.profile.workspace if command.profile.writable else "",
        exclusive_until=command.exclusive_until,
        expected_environment=command.expected_environment,
        input_fd=command.input_fd,
        has_bulk_output=command.has_bulk_output,
    )


def _prepare_environment(command: CommandSpec, private: str) -> dict[str, str]:
    folders = [os.path.join(private, name) for name in ("home", "tmp")]
    for folder in folders:
        os.mkdir(folder, 0o700)
    return build_environment(command.environment, *folders)


def _supervisor_options(command: CommandSpec) -> dict[str, object]:
    limits = command.profile.limits
    options: dict[str, object] = {
        "parent": os.getpid(),
        "cwd": _check_cwd(command),
        "core_bytes": 0,
        **{name: getattr(limits, name) for name in ("open_files", "file_bytes", "memory_bytes", "processes")},
    }
    # Python may set it for itself.
    return options if "LC_CTYPE" in command.environment else options | {"unset": "LC_CTYPE"}


def _check_cwd(command: CommandSpec) -> str:
    profile = command.profile
    try:
        found = os.stat(profile.workspace)
    except OSError as error:
        raise SandboxSetupError(f"The workspace {profile.workspace} is gone: {error}. Nothing was executed.") from error
    if profile.identity and profile.identity != (found.st_dev, found.st_ino):
        raise SandboxSetupError(f"{profile.workspace} was replaced by another folder. Nothing was executed.")
    if command.overlay is not None:
        raise SandboxSetupError("This sandbox cannot keep the changes of a command apart. Nothing was executed.")
    cwd = command.cwd or profile.workspace
    if not is_inside(os.path.realpath(cwd), command.profile.workspace):
        raise SandboxSetupError(f"The folder {cwd[:500]} is not in the workspace. Nothing was executed.")
    return cwd


def _raise_process_limit(command: CommandSpec) -> CommandSpec:
    """Add the existing threads of the user to the limit: the kernel counts all of them, except for root."""
    limits = command.profile.limits
    user = os.getuid()
    limits = msgspec.structs.replace(limits, processes=limits.processes + (_count_threads(user) if user else 0))
    return msgspec.structs.replace(command, profile=msgspec.structs.replace(command.profile, limits=limits))


def _count_threads(user: int) -> int:
    count = 0
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == user:
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _require_bash() -> str:
    bash = find_bash()
    if not bash:
        raise SandboxSetupError("There is no bash here. Nothing was executed.")
    return bash
