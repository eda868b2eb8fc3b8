"""Limit the processes and the memory of a command with control groups.

The kernel does not apply a user's process limit to root, and resident memory leaves out what no process has mapped:
memfd files, System V segments, temporary folders in memory, buffers of sockets and pipes. A control group counts all of
it. Each command gets its own group where this process can make one: as root, or as an ordinary user whose group was
delegated to it (for example by a systemd user session).

Both versions are supported. Version 1 has a separate hierarchy for each controller; version 2 has one for all.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from secrets import token_hex
from typing import NamedTuple

_PREFIX = "interlock-"
_PROCESSES = "pids.max"
#: The file of the memory limit: version 1, version 2.
_MEMORY_V1, _MEMORY_V2 = "memory.limit_in_bytes", "memory.max"
#: Written after the limit where they exist: memory with swap, and buffers of TCP, which version 1 counts apart.
_EXTRA_LIMITS_V1 = ("memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes")
#: No swap, and all processes of the group end together.
_EXTRA_LIMITS_V2 = (("memory.swap.max", "0"), ("memory.oom.group", "1"))
#: By the file of the limit: the highest use, and where the kernel counts the processes that it killed for the limit.
_USAGE_FILES = {
    _MEMORY_V1: ("memory.max_usage_in_bytes", "memory.oom_control"),
    _MEMORY_V2: ("memory.peak", "memory.events"),
}
#: Closed groups of this process that still have to be removed.
_closed: set[str] = set()


class MemoryUsage(NamedTuple):
    """The memory of a group as the kernel counts it, with cached file contents."""

    #: The highest use; 0 where the kernel does not keep it.
    peak_bytes: int = 0
    #: The kernel killed a process because the limit was reached.
    is_exceeded: bool = False


class CommandCgroup:
    """The control groups of one command."""

    def __init__(self, folders: tuple[str, ...], memory_limit_file: str = "") -> None:
        self._folders = folders
        self._memory_limit_file = memory_limit_file
        self._memory_usage = MemoryUsage()

    @property
    def can_limit_memory(self) -> bool:
        """Whether the kernel limits the memory of every process that was taken."""
        return bool(self._memory_limit_file)

    def add_process(self, pid: int) -> None:
        """Add a process, with all that it starts from now on. Its earlier children have to be taken as well."""
        for folder in self._folders:
            # To move a process waits for the whole system; to look is cheap.
            if _has_process(folder, pid):
                continue
            try:
                _write(f"{folder}/cgroup.procs", str(pid))
            except ProcessLookupError:
                pass  # it has ended
            except OSError:
                if self._memory_limit_file.startswith(f"{folder}/"):
                    self._memory_limit_file = ""

    def read_memory_usage(self) -> MemoryUsage:
        """Return the use so far. After `close`, the use until then."""
        if self._memory_limit_file and self._folders:
            self._memory_usage = _read_usage(self._memory_limit_file)
        return self._memory_usage

    def close(self) -> None:
        """Remove the group when all of its processes have ended. What the kernel still uses is removed later."""
        self.read_memory_usage()
        _closed.update(self._folders)
        self._folders = ()
        _remove_closed()


def create_cgroup(processes: int, memory_bytes: int | None = None) -> CommandCgroup | None:
    """Make the groups of one command. Return None where there is nothing to limit, or no group can be made.

    `processes` is limited for root only: the kernel limits other users by itself.
    """
    name = f"{_PREFIX}{os.getpid()}-{token_hex(8)}"
    folders: list[str] = []
    memory_limit_file = ""
    for parent in _find_parents():
        limits = _limit_files(parent, processes, memory_bytes)
        if not limits:
            continue
        folder = f"{parent.parent}/{name}"
        try:
            os.mkdir(folder)
        except OSError:
            continue
        try:
            for file, value in limits:
                _write(f"{folder}/{file}", value)
        except OSError:
            _closed.add(folder)
            continue
        folders.append(folder)
        if memory_bytes is not None and parent.memory_file:
            memory_limit_file = f"{folder}/{parent.memory_file}"
            _write_extra_limits(memory_limit_file)
    _remove_closed()
    return CommandCgroup(tuple(folders), memory_limit_file) if folders else None


def _has_process(folder: str, pid: int) -> bool:
    """Return whether a process is in the group already, as what a member starts is."""
    try:
        with open(f"{folder}/cgroup.procs", encoding="ascii") as members:
            return str(pid) in members.read().split()
    except OSError:
        return False


def can_limit_root() -> bool:
    """Return whether the kernel limits the number of root's processes here."""
    return any(place.has_processes for place in _find_parents())


class _ParentCgroup(NamedTuple):
    """A group of ours that others can be made in, and what can be limited there."""

    parent: str
    has_processes: bool
    #: The file of the memory limit; empty where memory is not limited.
    memory_file: str
    #: The lowest memory limit of the groups that a process leaves by going there.
    max_bytes: int | None = None

    @property
    def controllers(self) -> int:
        return self.has_processes + bool(self.memory_file)


def _limit_files(parent: _ParentCgroup, processes: int, memory_bytes: int | None) -> list[tuple[str, str]]:
    limits = [(_PROCESSES, str(processes))] if parent.has_processes else []
    if memory_bytes is not None and parent.memory_file:
        most = memory_bytes if parent.max_bytes is None else min(memory_bytes, parent.max_bytes)
        limits.append((parent.memory_file, str(most)))
    return limits


def _write_extra_limits(memory_limit_file: str) -> None:
    folder, file = os.path.split(memory_limit_file)
    limit = _read(memory_limit_file).strip()
    more = [(name, limit) for name in _EXTRA_LIMITS_V1] if file == _MEMORY_V1 else _EXTRA_LIMITS_V2
    for name, value in more:
        if os.path.exists(f"{folder}/{name}"):
            with suppress(OSError):
                _write(f"{folder}/{name}", value)


def _read_usage(memory_limit_file: str) -> MemoryUsage:
    folder, file = os.path.split(memory_limit_file)
    peak, kills = (_read(f"{folder}/{name}") for name in _USAGE_FILES[file])
    killed = any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in kills.splitlines())
    return MemoryUsage(int(peak or 0), killed)


@cache
def _find_parents() -> tuple[_ParentCgroup, ...]:
    """Find where groups can be made, at most one place for each controller, by making one."""
    found: list[_ParentCgroup] = []
    for mount, own, is_unified in _find_hierarchies():
        best = max(_find_candidates(mount, own, is_unified), key=lambda place: place.controllers, default=None)
        if best is None or any(
            (best.has_processes and place.has_processes) or (best.memory_file and place.memory_file) for place in found
        ):
            continue
        _closed.update(_find_stale_groups(best.parent))
        found.append(best)
    return tuple(found)


def _find_hierarchies() -> Iterator[tuple[str, str, bool]]:
    """Yield the mount point, our own group, and whether it is version 2, for hierarchies that may limit something."""
    own_groups: dict[str, str] = {}
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        own_groups.update(dict.fromkeys(controllers.split(","), path))
    for line in _read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        (root, mount), (kind, *_, options) = before.split()[3:5], after.split()
        controllers = {"cgroup": {"pids", "memory"} & {*options.split(",")}, "cgroup2": {""}}.get(kind, set[str]())
        path = next((own_groups[name] for name in sorted(controllers) if name in own_groups), None)
        if path is not None:
            yield mount, _own_folder(mount, root, path), kind == "cgroup2"


def _own_folder(mount: str, root: str, path: str) -> str:
    """Return where our group is, in a mount that shows the hierarchy from `root` on."""
    root, path = root.rstrip("/"), path.rstrip("/")
    return mount + path.removeprefix(root) if f"{path}/".startswith(f"{root}/") and ".." not in path else mount


def _find_candidates(mount: str, own: str, is_unified: bool) -> Iterator[_ParentCgroup]:
    """Yield our own group and, in version 2, those above: a group that has processes cannot limit groups in it."""
    max_bytes: int | None = None
    while True:
        place = _probe_parent(own, max_bytes)
        if place.controllers:
            yield place
        if not is_unified or own == mount:
            return
        limit = _read(f"{own}/{_MEMORY_V2}").strip()
        if limit.isdecimal():
            max_bytes = min(int(limit), max_bytes or int(limit))
        own = os.path.dirname(own)


def _probe_parent(parent: str, max_bytes: int | None) -> _ParentCgroup:
    trial = f"{parent}/{_PREFIX}{os.getpid()}-trial-{token_hex(8)}"
    nothing = _ParentCgroup(parent, False, "")
    if not os.access(f"{parent}/cgroup.procs", os.W_OK):
        return nothing
    try:
        os.mkdir(trial)
    except OSError:
        return nothing
    try:
        memory_file = next((file for file in _USAGE_FILES if os.path.exists(f"{trial}/{file}")), "")
        has_processes = os.getuid() == 0 and os.path.exists(f"{trial}/{_PROCESSES}")
        return _ParentCgroup(parent, has_processes, memory_file, max_bytes)
    finally:
        with suppress(OSError):
            os.rmdir(trial)


def _find_stale_groups(parent: str) -> list[str]:
    """Return the groups of processes that ended before they could remove them."""
    names = (name for name in os.listdir(parent) if name.startswith(_PREFIX))
    return [f"{parent}/{name}" for name in names if not os.path.exists(f"/proc/{name.split('-')[1]}")]


def _remove_closed() -> None:
    for folder in tuple(_closed):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            _closed.discard(folder)
        except OSError:
            continue
        else:
            _closed.discard(folder)


def _read(path: str) -> str:
    """Return the text of a small file of the kernel; empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
