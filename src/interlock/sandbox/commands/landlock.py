"""Commands under Landlock and a seccomp filter, for hosts that refuse namespaces. It confines less than bubblewrap
does, and reports that.

- Files: only what rules allow can be opened. Sizes, modes and times of other files can still be seen, and changed where
  they are the user's own: Landlock does not know about those.
- Network: without it no socket can be made at all, but for pairs. A Unix socket of the host (a message bus, an agent
  for keys, a container engine) is a door out of every sandbox, and Landlock does not close it: so there are none of
  these with a network either.
- Processes: others can be seen. Nothing of them can be read but what every user may see, and since version 6 of
  Landlock they cannot be signalled. Before, a command could kill its own supervisor. A limit can kill as well, so a
  second filter refuses to set limits of others. To make them slower remains possible.
- Never as root: root may look into other processes, and our own environment holds keys.
"""

import errno
import os
import platform
import stat
import struct
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from enum import IntEnum

from ...domain.errors import SandboxSetupError
from ..host.descriptors import closing_fd, get_identity
from ..host.landlock import MIN_ABI, MIN_SCOPED_ABI, READ_DIR, READ_RIGHTS, WRITE_RIGHTS, Ruleset, get_abi
from ..host.seccomp import INET, INET6, MACHINES, NETLINK, build_filter
from ..interface import CommandSpec, Confinement, OutputHandler, RunningCommand, SandboxProfile
from .filesystem_view import SandboxView, build_view
from .supervised_launch import Restrictions, create_private_folder, run_supervised

MAX_ENTRIES = 10_000
MAX_DEPTH = 200


class AccessLevel(IntEnum):
    """How much of a path a command may access."""

    HIDDEN = 0
    READABLE = 1
    WRITABLE = 2


_RIGHTS = {AccessLevel.HIDDEN: 0, AccessLevel.READABLE: READ_RIGHTS, AccessLevel.WRITABLE: WRITE_RIGHTS}


class _PathNode:
    """A folder or file with a restriction, or above one."""

    def __init__(self) -> None:
        self.children: dict[str, _PathNode] = {}
        self.max_level = AccessLevel.WRITABLE
        self.is_hidden_folder = False

    def find_lowest_level(self) -> AccessLevel:
        return min([self.max_level, *(place.find_lowest_level() for place in self.children.values())])

    def can_list(self) -> bool:
        """Return True if its names can be shown: no folder below it is hidden."""
        return not self.is_hidden_folder and all(place.can_list() for place in self.children.values())


class PathRestrictions:
    """Paths with less access than the folders around them."""

    def __init__(self, hidden: Iterable[str], read_only: Iterable[str]) -> None:
        self._root = _PathNode()
        self._entries_left = MAX_ENTRIES
        for level, paths in ((AccessLevel.HIDDEN, hidden), (AccessLevel.READABLE, read_only)):
            for path in filter(os.path.lexists, paths):
                self._restrict(os.path.realpath(path), level)

    def _restrict(self, path: str, level: AccessLevel) -> None:
        names, node = _split_names(path), self._root
        if len(names) > MAX_DEPTH:
            raise SandboxSetupError(
                f"A path that is hidden or read-only is more than {MAX_DEPTH} folders deep. Nothing was executed. Name "
                "a folder above it."
            )
        for name in names:
            node = node.children.setdefault(name, _PathNode())
        node.max_level = min(node.max_level, level)
        node.is_hidden_folder |= level is AccessLevel.HIDDEN and os.path.isdir(path)

    def allow(self, ruleset: Ruleset, path: str, level: AccessLevel, identity: tuple[int, ...] = ()) -> None:
        """Allow all below the path that is not limited. `OSError` when it is not there or cannot be opened.

        `identity` says which folder it must be, as device and inode number.
        """
        path = os.path.realpath(path)
        node = self._root
        for name in _split_names(path):
            level = min(level, node.max_level)
            node = node.children.get(name, _PathNode())
        with _open_path(path) as fd:
            if identity and identity != get_identity(os.fstat(fd)):
                raise SandboxSetupError(f"{path} was replaced by another folder. Nothing was executed.")
            self._allow(ruleset, fd, node, level)

    def _allow(self, ruleset: Ruleset, fd: int, node: _PathNode, level: AccessLevel) -> None:
        level = min(level, node.max_level)
        common = min(level, node.find_lowest_level())
        ruleset.allow(fd, _RIGHTS[common])
        if common is level:
            return
        if node.can_list():
            ruleset.allow(fd, READ_DIR)
        for name in self._list_entries(fd):
            with suppress(FileNotFoundError), _open_path(name, fd) as entry:
                if not stat.S_ISLNK(os.fstat(entry).st_mode):
                    self._allow(ruleset, entry, node.children.get(name, _PathNode()), level)

    def _list_entries(self, fd: int) -> list[str]:
        with _open_path(".", fd, os.O_RDONLY | os.O_DIRECTORY) as folder:
            names = os.listdir(folder)
        self._entries_left -= len(names)
        if self._entries_left < 0:
            raise SandboxSetupError(
                f"There are more than {MAX_ENTRIES:,} entries beside the hidden and read-only paths, too many to allow "
                "one by one. Nothing was executed. Hide whole folders, or run where bubblewrap works."
            )
        return names


def _split_names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _open_path(path: str, folder: int | None = None, flags: int = os.O_PATH) -> AbstractContextManager[int]:
    return closing_fd(os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder))


_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/proc")
_CERTIFICATES = ("/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted")
_PRLIMIT64 = {"x86_64": 302, "aarch64": 261}
_SOCKET_FAMILIES = (INET, INET6, NETLINK)

_NOTES = (
    "Commands have no namespaces here, only Landlock: they can see other processes, and change modes and times of your "
    "files outside of the workspace.",
    "They have no sockets without the network, so egress rules open no host, and no Unix sockets with it. `/tmp` and "
    "`/dev/shm` are closed to them: they have to use TMPDIR, where only the size of each file is limited.",
    "A folder with a hidden or read-only entry takes no new files, and cannot be listed when a folder in it is hidden.",
)
_UNSCOPED_NOTE = "This kernel lets commands signal your other processes."
_ADVICE = "`interlock doctor` says why bubblewrap does not work here."


class LandlockSandbox:
    """Command sandbox with Landlock."""

    @property
    def confinement(self) -> Confinement:
        """Restrictions that the kernel's version of Landlock can enforce."""
        scoped = get_abi() >= MIN_SCOPED_ABI
        capabilities = ("files", "read_only", "write_only_workspace", "hide", "network_off", "syscalls")
        return Confinement(
            backend="landlock",
            capabilities=(*capabilities, "kill_tree") if scoped else capabilities,
            degraded=True,
            notes=(*_NOTES, _ADVICE) if scoped else (*_NOTES, _UNSCOPED_NOTE, _ADVICE),
        )

    async def start(self, command: CommandSpec, on_output: OutputHandler) -> RunningCommand:
        """Start a command restricted by Landlock and seccomp."""
        if problem := find_unavailable_reason():
            raise SandboxSetupError(f"Landlock cannot confine commands here: {problem}. Nothing was executed.")
        profile = command.profile
        view = build_view(profile)
        families = _SOCKET_FAMILIES if profile.network else ()
        with create_private_folder(profile.workspace) as private, _build_ruleset(profile, view, private) as ruleset:
            machine = platform.machine()
            confining = Restrictions(ruleset.fd, (build_filter(machine, families), _build_prlimit_filter(machine)))
            return await run_supervised(command, on_output, private, confining)


def _build_prlimit_filter(machine: str) -> bytes:
    """Build a filter that refuses `prlimit64` for any process but the caller, which is number 0."""
    load, equal, give = 0x20, 0x15, 0x06
    steps = (
        (load, 0, 0, 0),  # the number of the call
        (equal, 0, 3, _PRLIMIT64[machine]),
        (load, 0, 0, 16),  # its first argument
        (equal, 1, 0, 0),
        (give, 0, 0, 0x00050000 | errno.EPERM),
        (give, 0, 0, 0x7FFF0000),  # allowed
    )
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def find_unavailable_reason() -> str:
    """Return why Landlock cannot be used; empty when it can."""
    if os.geteuid() == 0 or os.getuid() == 0:
        return "it does not hold root"
    if get_abi() < MIN_ABI:
        return "this kernel has none, or has it switched off" if get_abi() == 0 else "this kernel's is too old"
    return "" if platform.machine() in MACHINES else "there is no filter of system calls for this machine"


def _add_rules(ruleset: Ruleset, profile: SandboxProfile, view: SandboxView, private: str) -> None:
    limits = PathRestrictions(view.hidden, view.read_only)
    readable = (*profile.readable, *view.copies, *(_SYSTEM if profile.system else ()))
    for level, paths in (
        (AccessLevel.READABLE, (*readable, *_CERTIFICATES) if profile.network else readable),
        (AccessLevel.WRITABLE, _DEVICES),
    ):
        for path in paths:
            with suppress(OSError):  # what is not there, or not for us, cannot be reached anyway
                limits.allow(ruleset, path, level)
    limits.allow(ruleset, private, AccessLevel.WRITABLE)
    limits.allow(
        ruleset, profile.workspace, AccessLevel.WRITABLE if profile.writable else AccessLevel.READABLE, profile.identity
    )


def _build_ruleset(profile: SandboxProfile, view: SandboxView, private: str) -> Ruleset:
    ruleset = Ruleset(network=profile.network)
    try:
        _add_rules(ruleset, profile, view, private)
    except OSError as error:
        ruleset.close()
        raise SandboxSetupError(f"The workspace cannot be opened: {error}. Nothing was executed.") from None
    except BaseException:
        ruleset.close()
        raise
    return ruleset
