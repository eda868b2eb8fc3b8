"""What a command can reach, how long it may take, and what must be said before it may start.

The profile comes from the mode of the run and from the script, never from what a model says about it: a script that
was proved to only read is run so that it cannot write, and so is every script of a read-only run. The kernel holds
that, so it does not matter whether the proof was right.

In a writable workspace stay read-only: what rules freeze, settings that other programs obey, and the parts of a
repository from which git runs something. What does not exist cannot be held (it would have to be created first), so it
is looked for afterwards: `Guarded` tells what came or was exchanged.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from os.path import basename, join
from stat import S_ISDIR
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from ..domain.decision import Decision, Verdict
from ..domain.errors import SandboxSetupError
from ..domain.tool import Mode, Reach, Situation
from ..sandbox.interface import CommandLimits, Confinement, Profile
from ..sandbox.workspace import Workspace

ProfileName: TypeAlias = Literal["read-only", "workspace-write", "unconfined"]
#: Paths from the root of the workspace that exist now: what commands see empty, and what they cannot change. `.git`
#: may be among the latter: it stays writable, but for what git executes.
Protected: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]

LAYER = "sandbox"
MAX_READ_ONLY_PATHS = 1_000
_MAX_MODULES = 100
#: In a repository: what git executes, or takes programs to execute from, and what leads it to other settings.
_GIT_SETTINGS = ("hooks", "config", "config.worktree", "commondir")


class Seconds(NamedTuple):
    allowed: float
    #: Less than was asked for.
    clamped: bool


def seconds_for(asked: float | None, default: float, most: float) -> Seconds:
    if asked is None:
        return Seconds(min(default, most), False)
    return Seconds(asked, False) if isfinite(asked) and asked <= most else Seconds(most, True)


class ShellRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the developer chose for all commands."""

    workspace: Workspace
    #: Was every command of this script, started in that folder, proved to only read?
    is_read_only: Callable[[str, str], bool]
    hidden: Callable[[], Protected]
    readable: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    limits: CommandLimits = CommandLimits()
    network: bool = False


def profile_name(rules: ShellRules, held: Confinement, script: str, cwd: str, mode: Mode) -> ProfileName:
    """A backend that cannot hold read-only is asked about, or refused, before it comes to this."""
    if "read_only" in held.capabilities and (mode is Mode.READ_ONLY or rules.is_read_only(script, cwd)):
        return "read-only"
    return "workspace-write"


def profile_of(rules: ShellRules, held: Confinement, name: ProfileName) -> Profile:
    """Looks for the files that are to be hidden or held, which may take a moment."""
    if name == "unconfined":
        return Profile(workspace=rules.workspace.root, writable=True, network=True, limits=rules.limits)
    root = rules.workspace.root
    # Each command of a backend that holds back less than it should was a question to a person, and said so.
    hides = not held.degraded or "hide" in held.capabilities
    hidden, frozen = rules.hidden() if hides else ((), ())
    return Profile(
        workspace=root,
        writable=name == "workspace-write",
        network=rules.network,
        readable=rules.readable,
        hidden=tuple(join(root, path) for path in hidden),
        read_only=tuple(join(root, path) for path in _held(root, frozen))
        if name == "workspace-write" and hides
        else (),
        limits=rules.limits,
    )


def reach_of(rules: ShellRules, held: Confinement, name: ProfileName, cwd: str) -> Reach:
    return Reach(
        sandbox=held.backend,
        profile=name,
        capabilities=held.capabilities,
        cwd=cwd,
        environment=dict(rules.environment),
    )


def opinion_on(held: Confinement, situation: Situation) -> Decision | None:
    """What the backend means for whether a command may start, whatever rules say."""
    if situation.mode is Mode.READ_ONLY and "read_only" not in held.capabilities:
        reason = f"The run only reads, and {_named(held)} cannot keep a command from writing."
        return Decision(verdict=Verdict.DENY, reason=reason, rule_ids=("sandbox:read_only",), layer=LAYER)
    if not held.degraded:
        return None
    return Decision(
        verdict=Verdict.ASK,
        reason=" ".join((f"Commands are not held back as they should be here ({_named(held)}).", *held.notes)),
        rule_ids=("sandbox:degraded",),
        layer=LAYER,
        risk=("execute", f"sandbox: {held.backend}"),
        scope="once",
    )


def _named(held: Confinement) -> str:
    return "no sandbox" if held.backend == "none" else f"the sandbox {held.backend}"


class Guarded:
    """What no command should change, as it is now."""

    def __init__(self, rules: ShellRules) -> None:
        root = rules.workspace.root
        _, frozen = rules.hidden()
        self._identities = {path: _identity(join(root, path)) for path in (*_held(root, frozen), ".git")}

    def changed_since(self, before: "Guarded") -> list[str]:
        """Paths from the root of the workspace: created, or another file than it was."""
        known = before._identities
        return sorted(path for path, now in self._identities.items() if now and known.get(path) != now)


def _held(root: str, frozen: tuple[str, ...]) -> tuple[str, ...]:
    """`.git` itself stays writable, or nothing could be committed."""
    named = {".git", *(path for path in frozen if basename(path) == ".git")}
    repositories = sorted(path for path in named if S_ISDIR(_mode(join(root, path))))
    held = list(_topmost(path for path in frozen if not _is_in(path, repositories)))
    held += [path for repository in repositories for path in _git_settings(root, repository)]
    if len(held) > MAX_READ_ONLY_PATHS:
        raise SandboxSetupError(f"The workspace has more than {MAX_READ_ONLY_PATHS:,} files that must not be changed.")
    return tuple(held)


def _topmost(paths: Iterable[str]) -> Iterator[str]:
    """A folder stands for all that is in it."""
    last = ""
    for path in sorted(set(paths), key=lambda path: path.split("/")):
        if not last or not _is_in(path, (last,)):
            last = path
            yield path


def _is_in(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _git_settings(root: str, repository: str) -> Iterator[str]:
    inner = (f"{repository}/{name}" for name in ("modules", "worktrees"))
    for folder in (repository, *(path for name in inner for path in _folders_in(root, name))):
        settings = (f"{folder}/{name}" for name in _GIT_SETTINGS)
        yield from (path for path in settings if _mode(join(root, path)))


def _folders_in(root: str, folder: str) -> list[str]:
    try:
        names = sorted(os.listdir(join(root, folder)))[:_MAX_MODULES]
    except OSError:
        return []
    return [path for name in names if S_ISDIR(_mode(join(root, path := f"{folder}/{name}")))]


def _mode(path: str) -> int:
    """0: it is not there."""
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _identity(path: str) -> tuple[int, ...]:
    """Empty: it is not there. What is in a folder that is held cannot change, so it is the same while its inode is."""
    try:
        status = os.lstat(path)
    except OSError:
        return ()
    if S_ISDIR(status.st_mode):
        return status.st_dev, status.st_ino
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
