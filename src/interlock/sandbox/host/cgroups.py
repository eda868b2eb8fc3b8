"""Limit the processes and the memory of a command with control groups.

The kernel does not apply a user's process limit to root, and resident memory leaves out what no process has mapped:
memfd files, System V segments, temporary folders in memory, buffers of sockets and pipes. A control group counts all of
it. Each command gets its own group where this process can make one: as root, or as an ordinary user whose group was
delegated to it (for example by a systemd user session).

Both versions are supported. Version 1 has a separate hierarchy for each controller; version 2 has one for all.

To move a process into a group waits for all forks and exits of the host; a thread that moves itself does not wait.
Version 1 allows that, so there a thread enters the group of a command, starts the process, and leaves the group. It is
a separate thread, because the kernel charges the memory of this process to the group of its main thread.
"""

import atexit
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from queue import SimpleQueue
from secrets import token_hex
from threading import Lock, Thread
from typing import NamedTuple, TypeVar

from .descriptors import closing_fd
from .process_tree import read_bytes

_T = TypeVar("_T")

_PREFIX = "interlock-"
_PROCESSES = "pids.max"
#: Version 1: the threads of a group.
_THREADS_V1 = "tasks"
#: The file of the memory limit: version 1, version 2.
_MEMORY_V1, _MEMORY_V2 = "memory.limit_in_bytes", "memory.max"
#: Written after the limit, where they exist: memory with swap, and buffers of TCP, which version 1 counts apart.
_EXTRA_LIMITS_V1 = ("memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes")
#: No swap, and all processes of the group end together.
_EXTRA_LIMITS_V2 = (("memory.swap.max", "0"), ("memory.oom.group", "1"))
#: By the file of the limit: the highest use, and where the kernel counts the processes that it killed for the limit.
_USAGE_FILES = {
    _MEMORY_V1: ("memory.max_usage_in_bytes", "memory.oom_control"),
    _MEMORY_V2: ("memory.peak", "memory.events"),
}
#: Groups made in advance, by the process that made them: one that was forked has others.
_spares: "dict[int, dict[_ParentCgroup, str]]" = {}
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

    def __init__(
        self,
        folders: tuple[str, ...],
        memory_limit_file: str = "",
        *,
        limits: Sequence[tuple[str, str]] = (),
        can_enter: bool = False,
    ) -> None:
        self._folders = folders
        self._memory_limit_file = memory_limit_file
        self._memory_usage = MemoryUsage()
        #: Files and values, still to be written. It takes a while, so the process is started first.
        self._limits = limits
        self._can_enter = can_enter
        self._has_all = False

    @property
    def can_limit_memory(self) -> bool:
        """Whether the kernel limits the memory of every process that was taken."""
        return bool(self._memory_limit_file)

    @property
    def has_all(self) -> bool:
        """Whether the process was started in the groups: then all that it starts is in them."""
        return self._has_all

    def run_inside(self, start: Callable[[], _T]) -> _T:
        """Call a function that starts a process and adds it, in a thread that is in the groups where that can be.

        What has to be done before the process may continue is best done there: to come back takes a while.
        """
        if not self._can_enter:
            return start()

        def call(has_entered_all: bool) -> _T:
            self._has_all = has_entered_all
            return start()

        return _entering_thread.call(self._folders, call)

    def add_process(self, pid: int) -> None:
        """Add a process, with all that it starts from now on. Its earlier children have to be taken as well."""
        self._set_limits()
        for folder in () if self._has_all else self._folders:
            # What a member starts is in the group already. To move a process waits for the whole system; to look is
            # cheap.
            if str(pid) in _read(f"{folder}/cgroup.procs").split():
                continue
            try:
                _write(f"{folder}/cgroup.procs", str(pid))
            except ProcessLookupError:
                pass  # it has ended
            except OSError:
                if self._memory_limit_file.startswith(f"{folder}/"):
                    self._memory_limit_file = ""

    def _set_limits(self) -> None:
        limits, self._limits = self._limits, ()
        for file, value in limits:
            try:
                _write(file, value)
            except OSError:
                if file == self._memory_limit_file:
                    self._memory_limit_file = ""

    def read_memory_usage(self) -> MemoryUsage:
        """Return the use so far. After `close`, the use until then."""
        if self._memory_limit_file and self._folders:
            self._memory_usage = _read_usage(self._memory_limit_file)
        return self._memory_usage

    def give_up(self) -> None:
        """Read the use a last time, and leave the group to `remove_unused_groups`."""
        self.read_memory_usage()
        _closed.update(self._folders)
        self._folders = ()

    def close(self) -> None:
        """Remove the group when all of its processes have ended. What the kernel still uses is removed later."""
        self.give_up()
        remove_unused_groups()


class _EnteringThread:
    """The thread that starts processes in groups of version 1. It never ends: to the kernel it is their parent."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner = 0
        self._requests: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def call(self, folders: tuple[str, ...], function: Callable[[bool], _T]) -> _T:
        """Call the function in the thread, in these groups, with whether all of them could be entered."""
        reply: SimpleQueue[tuple[_T] | BaseException] = SimpleQueue()

        def enter_and_call() -> None:
            entered = [folder for folder in folders if _move_thread(folder)]
            try:
                reply.put((function(len(entered) == len(folders)),))
            except BaseException as error:
                reply.put(error)
            for folder in entered:
                _move_thread(os.path.dirname(folder))

        with self._lock:
            if self._owner != os.getpid():
                self._owner, self._requests = os.getpid(), SimpleQueue()
                Thread(target=_serve, args=(self._requests,), daemon=True, name="interlock-cgroups").start()
        self._requests.put(enter_and_call)
        if isinstance(result := reply.get(), BaseException):
            raise result
        return result[0]


def _serve(requests: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        requests.get()()


def _move_thread(folder: str) -> bool:
    try:
        _write(f"{folder}/{_THREADS_V1}", "0")
    except OSError:
        return False
    return True


_entering_thread = _EnteringThread()


def create_cgroup(processes: int, memory_bytes: int | None = None) -> CommandCgroup | None:
    """Make the groups of one command. Return None where there is nothing to limit, or no group can be made.

    `processes` is limited for root only: the kernel limits other users by itself.
    """
    limits: list[tuple[str, str]] = []
    memory_limit_file, can_enter = "", True
    with_memory = memory_bytes is not None
    made = (_spares.pop(os.getpid(), None) if with_memory else None) or _make_folders(with_memory)
    for parent, folder in made.items():
        can_enter &= parent.can_enter
        limits += ((f"{folder}/{file}", value) for file, value in _limit_files(parent, processes, memory_bytes))
        if with_memory and parent.memory_file:
            memory_limit_file = f"{folder}/{parent.memory_file}"
    if not made:
        return None
    return CommandCgroup(tuple(made.values()), memory_limit_file, limits=limits, can_enter=can_enter)


def _make_folders(with_memory: bool) -> "dict[_ParentCgroup, str]":
    name = f"{_PREFIX}{os.getpid()}-{token_hex(8)}"
    made: dict[_ParentCgroup, str] = {}
    for parent in _find_parents():
        if parent.has_processes or (with_memory and parent.memory_file):
            with suppress(OSError):
                os.mkdir(folder := f"{parent.parent}/{name}")
                made[parent] = folder
    return made


def prepare_cgroup() -> None:
    """Make the groups of the next command now, while there is time."""
    if os.getpid() not in _spares:
        _spares[os.getpid()] = _make_folders(with_memory=True)


@atexit.register
def _remove_spare() -> None:
    _closed.update(_spares.pop(os.getpid(), {}).values())
    remove_unused_groups()


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
    #: A thread can move itself between this group and those in it.
    can_enter: bool = False

    @property
    def controllers(self) -> int:
        return self.has_processes + bool(self.memory_file)


def _limit_files(parent: _ParentCgroup, processes: int, memory_bytes: int | None) -> list[tuple[str, str]]:
    """Return the files to write, and their values. What a kernel lacks of the last ones is left out."""
    limits = [(_PROCESSES, str(processes))] if parent.has_processes else []
    if memory_bytes is not None and parent.memory_file:
        most = str(memory_bytes if parent.max_bytes is None else min(memory_bytes, parent.max_bytes))
        extra = [(name, most) for name in _EXTRA_LIMITS_V1] if parent.memory_file == _MEMORY_V1 else _EXTRA_LIMITS_V2
        limits += [(parent.memory_file, most), *extra]
    return limits


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
        can_enter = all(os.access(f"{folder}/{_THREADS_V1}", os.W_OK) for folder in (parent, trial))
        return _ParentCgroup(parent, has_processes, memory_file, max_bytes, can_enter)
    finally:
        with suppress(OSError):
            os.rmdir(trial)


def _find_stale_groups(parent: str) -> list[str]:
    """Return the groups of processes that ended before they could remove them."""
    names = (name for name in os.listdir(parent) if name.startswith(_PREFIX))
    return [f"{parent}/{name}" for name in names if not os.path.exists(f"/proc/{name.split('-')[1]}")]


def remove_unused_groups() -> None:
    """Remove the groups that were given up. The kernel takes a millisecond for each."""
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
        return os.fsdecode(read_bytes(path))
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with closing_fd(os.open(path, os.O_WRONLY | os.O_CLOEXEC)) as fd:
        os.write(fd, text.encode())
