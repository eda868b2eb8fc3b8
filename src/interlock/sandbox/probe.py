"""Which backends for commands work on this host, and why the others do not.

Nothing is concluded from versions: each backend runs a command once, with everything that it always does, and what went
wrong is put in words that somebody can act on. It is done when it is asked for, once in a process.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from tempfile import TemporaryDirectory
from typing import Literal, TypeAlias

import msgspec

from ..domain.errors import ConfigurationError, SandboxSetupError
from . import confined_landlock, programs
from .bubblewrap import BubblewrapSandbox
from .causes import explain
from .confined_landlock import LandlockSandbox
from .host import read_host
from .interface import Command, CommandSandbox, Profile
from .unconfined import UnconfinedSandbox

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
    "landlock": confined_landlock.why_not,
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
