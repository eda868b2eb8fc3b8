"""The sandbox profile of a command: what it can access, how long it may take, and whether it requires approval.

The profile comes from the mode of the run and from the script, never from what a model says about it: a script that
was proved to only read is run so that it cannot write, and so is every script of a read-only run. The kernel holds
that, so it does not matter whether the proof was right.

In a writable workspace stay read-only: what rules freeze, and guarded files. What does not exist cannot be
protected (it would have to be created first), so it is checked afterwards: `GuardedFiles` reports what was created or
replaced.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from math import isfinite
from os.path import join, lexists, realpath
from stat import S_IFMT, S_ISDIR, S_ISLNK
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from ...domain.decision import Decision, Verdict
from ...domain.egress import EgressRule
from ...domain.errors import SandboxSetupError
from ...domain.tool import CallContext, PermissionMode, SandboxScope
from ...sandbox.host.programs import is_inside
from ...sandbox.interface import CommandLimits, Confinement, SandboxProfile
from ...sandbox.workspace.workspace import Workspace
from .fingerprint import FolderListings

ProfileName: TypeAlias = Literal["read-only", "workspace-write", "unconfined"]
#: The words of each simple command of a script; None when it cannot be read.
ScriptParser: TypeAlias = Callable[[str], Sequence[Sequence[str]] | None]

SANDBOX_LAYER = "sandbox"
MAX_READ_ONLY_PATHS = 1_000
#: How a profile with the network is called beside its name.
_NETWORK_SUFFIX = "+network"
#: And one with a proxy that decides which hosts it reaches.
_HOSTS_SUFFIX = "+hosts"
_DIGEST_CHARS = 16
#: What a backend must do so that nothing of a command gets out.
_CONTAINING = frozenset(("files", "write_only_workspace", "hide", "network_off", "kill_tree"))
#: Programs that may stand before a command that was proved to only read.
_PROVED_WRAPPERS = ("nice", "timeout")


class ProtectedPaths(Protocol):
    """Protected paths, relative to the workspace, that exist now. A folder includes its content."""

    @property
    def hidden(self) -> tuple[str, ...]:
        """Paths that commands see empty."""
        ...

    @property
    def read_only(self) -> tuple[str, ...]:
        """Paths that commands cannot change."""
        ...

    @property
    def watched(self) -> tuple[str, ...]:
        """Paths that commands may change; people are notified when one appears."""
        ...


class CommandTimeout(NamedTuple):
    """The timeout of a command, and whether it was reduced to the maximum."""

    seconds: float
    #: Less than was asked for.
    is_clamped: bool


def choose_timeout(asked: float | None, default: float, most: float) -> CommandTimeout:
    """Return the requested timeout, reduced to the maximum."""
    if asked is None:
        return CommandTimeout(min(default, most), False)
    return CommandTimeout(asked, False) if isfinite(asked) and asked <= most else CommandTimeout(most, True)


class ShellConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The developer's configuration for all commands."""

    workspace: Workspace
    parse_script: ScriptParser = lambda script: None
    #: Whether every command of this script, started in that absolute folder, provably only reads.
    is_read_only: Callable[[str, str], bool]
    #: What commands see empty, and what they cannot change.
    hidden: Callable[[], ProtectedPaths]
    #: Whether a command of this script is known to need the network.
    uses_network: Callable[[str], bool] = lambda script: False
    #: What commands can read beside the workspace and the system.
    readable: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    limits: CommandLimits = CommandLimits()
    network: bool = False
    default_timeout_seconds: float = 120.0
    max_timeout_seconds: float = 600.0
    #: The same for commands in the background.
    max_task_seconds: float = 3_600.0
    #: The egress rules in force, and what is done with a credential that a proxy adds to requests.
    egress: Callable[[], tuple[EgressRule, ...]] = lambda: ()
    add_secret: Callable[[str], None] = lambda value: None
    #: Where the proxy of a command listens; 0: it has none.
    egress_port: int = 0
    #: What the folders of the workspace hold.
    listings: FolderListings = msgspec.field(default_factory=FolderListings)


def choose_profile(
    config: ShellConfig, confinement: Confinement, script: str, cwd: str, mode: PermissionMode
) -> ProfileName:
    """Return the profile of a command. A backend that cannot enforce read-only was asked about, or refused, before."""
    if "read_only" in confinement.capabilities and (
        mode is PermissionMode.READ_ONLY or config.is_read_only(script, cwd)
    ):
        return "read-only"
    return "workspace-write"


def has_network(sandbox: str) -> bool:
    """Return True if this profile, as it is recorded, has the network."""
    return sandbox.endswith(_NETWORK_SUFFIX)


def read_recorded_profile(reach: SandboxScope | None) -> ProfileName | None:
    """Return the profile in the record of a call; None when there is none."""
    match reach.profile.removesuffix(_NETWORK_SUFFIX).removesuffix(_HOSTS_SUFFIX) if reach is not None else "":
        case "read-only" | "workspace-write" as name:
            return name
        case _:
            return None


def build_profile(config: ShellConfig, confinement: Confinement, name: ProfileName) -> SandboxProfile:
    """Return the sandbox profile. Scans for hidden and frozen files, which may take a moment."""
    return inspect_profile(config, confinement, name)[0]


def inspect_profile(
    config: ShellConfig, confinement: Confinement, name: ProfileName
) -> "tuple[SandboxProfile, GuardedFiles | None]":
    """Return the profile, and, where it may write, the current state of the guarded files."""
    root = config.workspace.root
    config.workspace.check_not_replaced()
    if name == "unconfined":
        profile = SandboxProfile(
            workspace=root, identity=config.workspace.identity, writable=True, network=True, limits=config.limits
        )
        return profile, GuardedFiles(config)
    # Each command of a backend with incomplete confinement required an approval that said so.
    hides = not confinement.degraded or "hide" in confinement.capabilities
    found = config.hidden()
    frozen = _list_read_only(found) if name == "workspace-write" and hides else ()
    profile = SandboxProfile(
        workspace=root,
        identity=config.workspace.identity,
        writable=name == "workspace-write",
        network=config.network,
        egress_port=config.egress_port,
        readable=config.readable,
        hidden=tuple(join(root, path) for path in found.hidden) if hides else (),
        read_only=tuple(join(root, path) for path in frozen),
        limits=config.limits,
    )
    return profile, GuardedFiles(config, found) if profile.writable else None


def _list_read_only(found: ProtectedPaths) -> tuple[str, ...]:
    frozen = tuple(_drop_nested(found.read_only))
    if len(frozen) > MAX_READ_ONLY_PATHS:
        raise SandboxSetupError(
            f"The workspace has more than {MAX_READ_ONLY_PATHS:,} files that must not be changed. "
            f"Ask the user to remove some, for example {frozen[-1][:200]!r}."
        )
    return frozen


def describe_scope(
    config: ShellConfig,
    confinement: Confinement,
    name: ProfileName,
    cwd: str,
    environment: Mapping[str, str] | None = None,
) -> SandboxScope:
    """Return the scope for the record. Variables are recorded as digests: their values may be secrets."""
    variables = config.environment if environment is None else environment
    has_hosts = config.network or config.egress_port > 0 or name == "unconfined"
    suffix = _NETWORK_SUFFIX if config.network else _HOSTS_SUFFIX if config.egress_port else ""
    return SandboxScope(
        sandbox=confinement.backend,
        profile=name if name == "unconfined" else f"{name}{suffix}",
        capabilities=tuple(one for one in confinement.capabilities if not (has_hosts and one == "network_off")),
        cwd=cwd,
        environment={key: _digest_value(value) for key, value in variables.items()},
    )


def choose_environment(
    config: ShellConfig, name: ProfileName, commands: Sequence[Sequence[str]] | None
) -> Mapping[str, str]:
    """Return the variables of a command. What was proved to only read was proved for programs of the system: if the
    workspace has programs of these names, its folders come last on `PATH`. `commands`: their words; None: not known.
    """
    if name != "read-only" or "PATH" not in config.environment:
        return config.environment
    root, entries = config.workspace.root, config.environment["PATH"].split(":")
    inside = [entry for entry in entries if is_inside(realpath(entry), root)]
    programs = {*_PROVED_WRAPPERS, *(words[0] for words in commands or () if words)}
    if commands is not None and not any(lexists(join(entry, program)) for entry in inside for program in programs):
        return config.environment
    return {**config.environment, "PATH": ":".join((*(entry for entry in entries if entry not in inside), *inside))}


def _digest_value(value: str) -> str:
    return f"sha256:{sha256(value.encode(errors='surrogateescape')).hexdigest()[:_DIGEST_CHARS]}"


def is_contained(config: ShellConfig, confinement: Confinement) -> bool:
    """Return True if the sandbox keeps all effects of commands in the workspace, and has no network."""
    return not (confinement.degraded or config.network) and _CONTAINING.issubset(confinement.capabilities)


def authorize_network(
    config: ShellConfig, confinement: Confinement, script: str, situation: CallContext
) -> Decision | None:
    """Ask, whatever rules say, about a command that needs the network in the mode `contained`: if a person approves,
    this one call gets it.
    """
    if situation.mode is not PermissionMode.CONTAINED or not is_contained(config, confinement):
        return None
    if not config.uses_network(script):
        return None
    return Decision(
        verdict=Verdict.ASK,
        reason="If approved, it can reach any host.",
        rule_ids=("sandbox:network",),
        layer=SANDBOX_LAYER,
        risk=("execute", "network"),
        scope="once",
    )


def authorize_backend(confinement: Confinement, situation: CallContext) -> Decision | None:
    """Return the decision that the backend implies, whatever rules say."""
    backend = "no sandbox" if confinement.backend == "none" else f"the sandbox {confinement.backend}"
    if situation.mode is PermissionMode.READ_ONLY and "read_only" not in confinement.capabilities:
        reason = f"The run only reads, and {backend} cannot keep a command from writing."
        return Decision(verdict=Verdict.DENY, reason=reason, rule_ids=("sandbox:read_only",), layer=SANDBOX_LAYER)
    if not confinement.degraded:
        return None
    return Decision(
        verdict=Verdict.ASK,
        reason=" ".join((f"Commands are not fully confined here ({backend}).", *confinement.notes)),
        rule_ids=("sandbox:degraded",),
        layer=SANDBOX_LAYER,
        risk=("execute", f"sandbox: {confinement.backend}"),
        scope="once",
    )


class GuardedFiles:
    """The state of files that no command should change."""

    def __init__(self, config: ShellConfig, found: ProtectedPaths | None = None) -> None:
        """Record the identities of guarded files. `found` is the result of a recent scan."""
        root = config.workspace.root
        found = config.hidden() if found is None else found
        held = {path: _read_identity(join(root, path)) for path in _drop_nested(found.read_only)}
        #: By path, relative to the workspace.
        self.identities = held | {path: _read_identity(join(root, path), is_held=False) for path in found.watched}

    @classmethod
    def restore(cls, identities: Mapping[str, tuple[int, ...]]) -> "GuardedFiles":
        """Return a recorded state."""
        restored = cls.__new__(cls)
        restored.identities = dict(identities)
        return restored

    def changed_since(self, before: "GuardedFiles") -> list[str]:
        """Return the created or replaced paths, relative to the workspace."""
        known = before.identities
        return sorted(path for path, now in self.identities.items() if now and known.get(path) != now)


def _drop_nested(paths: Iterable[str]) -> Iterator[str]:
    """Drop paths below others: a folder includes everything in it."""
    last = ""
    for path in sorted(set(paths), key=lambda path: path.split("/")):
        if not last or not path.startswith(f"{last}/"):
            last = path
            yield path


def _read_identity(path: str, *, is_held: bool = True) -> tuple[int, ...]:
    """Return what identifies a file; empty if it does not exist. The content of a held folder cannot change, so its
    inode is enough. Of what is not held, only a link counts as exchanged: git writes the other files itself.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return ()
    if not is_held and not S_ISLNK(status.st_mode):
        return (S_IFMT(status.st_mode),)
    if S_ISDIR(status.st_mode):
        return status.st_dev, status.st_ino
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
