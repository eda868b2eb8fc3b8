"""What a command can reach, how long it may take, and what must be said before it may start.

The profile comes from the mode of the run and from the script, never from what a model says about it: a script that
was proved to only read is run so that it cannot write, and so is every script of a read-only run. The kernel holds
that, so it does not matter whether the proof was right.

In a writable workspace stay read-only: what rules freeze, and what other programs obey. What does not exist cannot be
held (it would have to be created first), so it is looked for afterwards: `Guarded` tells what came or was exchanged.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from math import isfinite
from os.path import join
from stat import S_IFMT, S_ISDIR, S_ISLNK
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from ...domain.decision import Decision, Verdict
from ...domain.errors import SandboxSetupError
from ...domain.tool import Mode, Reach, Situation
from ...sandbox.interface import CommandLimits, Confinement, Profile
from ...sandbox.workspace.workspace import Workspace

ProfileName: TypeAlias = Literal["read-only", "workspace-write", "unconfined"]

LAYER = "sandbox"
MAX_READ_ONLY_PATHS = 1_000
#: How a profile with the network is called beside its name.
_NETWORK = "+network"
_DIGEST_CHARS = 16


class Protected(Protocol):
    """Paths from the root of the workspace that exist now. A folder stands for all that is in it."""

    @property
    def hidden(self) -> tuple[str, ...]:
        """What commands see empty."""
        ...

    @property
    def read_only(self) -> tuple[str, ...]:
        """What commands cannot change."""
        ...

    @property
    def told(self) -> tuple[str, ...]:
        """What they may change, and people are told when one comes."""
        ...


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


def recorded_name(reach: Reach | None) -> ProfileName | None:
    """The profile that the record of a call says; None when it says none."""
    match reach.profile.removesuffix(_NETWORK) if reach is not None else "":
        case "read-only" | "workspace-write" as name:
            return name
        case _:
            return None


def profile_of(rules: ShellRules, held: Confinement, name: ProfileName) -> Profile:
    """Looks for the files that are to be hidden or held, which may take a moment."""
    return look(rules, held, name)[0]


def look(rules: ShellRules, held: Confinement, name: ProfileName) -> "tuple[Profile, Guarded | None]":
    """The profile, and, where it may write, what no command should change, as it is now."""
    root = rules.workspace.root
    rules.workspace.check_unmoved()
    if name == "unconfined":
        profile = Profile(
            workspace=root, identity=rules.workspace.identity, writable=True, network=True, limits=rules.limits
        )
        return profile, Guarded(rules)
    # Each command of a backend that holds back less than it should was a question to a person, and said so.
    hides = not held.degraded or "hide" in held.capabilities
    found = rules.hidden()
    frozen = _frozen(found) if name == "workspace-write" and hides else ()
    profile = Profile(
        workspace=root,
        identity=rules.workspace.identity,
        writable=name == "workspace-write",
        network=rules.network,
        readable=rules.readable,
        hidden=tuple(join(root, path) for path in found.hidden) if hides else (),
        read_only=tuple(join(root, path) for path in frozen),
        limits=rules.limits,
    )
    return profile, Guarded(rules, found) if profile.writable else None


def _frozen(found: Protected) -> tuple[str, ...]:
    frozen = tuple(_topmost(found.read_only))
    if len(frozen) > MAX_READ_ONLY_PATHS:
        raise SandboxSetupError(
            f"The workspace has more than {MAX_READ_ONLY_PATHS:,} files that must not be changed. "
            f"Ask the user to remove some, for example {frozen[-1][:200]!r}."
        )
    return frozen


def reach_of(rules: ShellRules, held: Confinement, name: ProfileName, cwd: str) -> Reach:
    """Of variables the record has digests: their values may be secrets."""
    has_network = rules.network or name == "unconfined"
    return Reach(
        sandbox=held.backend,
        profile=f"{name}{_NETWORK}" if rules.network and name != "unconfined" else name,
        capabilities=tuple(one for one in held.capabilities if not (has_network and one == "network_off")),
        cwd=cwd,
        environment={name: _digest(value) for name, value in rules.environment.items()},
    )


def _digest(value: str) -> str:
    return f"sha256:{sha256(value.encode(errors='surrogateescape')).hexdigest()[:_DIGEST_CHARS]}"


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

    def __init__(self, rules: ShellRules, found: Protected | None = None) -> None:
        """`found` is what was found a moment ago."""
        root = rules.workspace.root
        found = rules.hidden() if found is None else found
        held = {path: _identity(join(root, path)) for path in _topmost(found.read_only)}
        self._identities = held | {path: _identity(join(root, path), is_held=False) for path in found.told}

    def changed_since(self, before: "Guarded") -> list[str]:
        """Paths from the root of the workspace: created, or another file than it was."""
        known = before._identities
        return sorted(path for path, now in self._identities.items() if now and known.get(path) != now)


def _topmost(paths: Iterable[str]) -> Iterator[str]:
    """A folder stands for all that is in it."""
    last = ""
    for path in sorted(set(paths), key=lambda path: path.split("/")):
        if not last or not path.startswith(f"{last}/"):
            last = path
            yield path


def _identity(path: str, *, is_held: bool = True) -> tuple[int, ...]:
    """Empty: it is not there. What is in a folder that is held cannot change, so it is the same while its inode is. Of
    what is not held, only a link is another one when it was exchanged: git writes the other files itself."""
    try:
        status = os.lstat(path)
    except OSError:
        return ()
    if not is_held and not S_ISLNK(status.st_mode):
        return (S_IFMT(status.st_mode),)
    if S_ISDIR(status.st_mode):
        return status.st_dev, status.st_ino
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
