"""The processes below one process, and the memory that they hold, as Linux shows it in `/proc`."""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, TypeAlias

#: Stopped, a zombie, dead.
_STOPPED = (b"T", b"t", b"Z", b"X")
_STOP_SECONDS = 0.5
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: How links to descriptors of shared memory begin: files without a name, and files of the folder for shared memory.
_SHARED_MEMORY = ("/memfd:", "/dev/shm/")  # noqa: S108 - nothing is written there
#: The number of descriptors that are looked at in one look: some milliseconds.
_MAX_DESCRIPTORS = 4096
_BLOCK_BYTES = 512
_CHUNK_BYTES = 1 << 16
#: Device and inode of a file.
_FileId: TypeAlias = tuple[int, int]


def list_descendants(pid: int, limit: int | None = None) -> list[int]:
    """Return descendants, children before grandchildren, without `pid` itself. Stops soon after `limit`: a fork bomb
    has no end.
    """
    found: list[int] = []
    waiting = [pid]
    while waiting and (limit is None or len(found) <= limit):
        below = list_children(waiting.pop(0))
        found += below
        waiting += below
    return found


def list_children_when_stopped(pid: int) -> list[int]:
    """Wait until a process that was sent a stop has stopped, and return its children: there will be no others. Returns
    at once when it is gone.
    """
    until = time.monotonic() + _STOP_SECONDS
    while not is_stopped(pid) and time.monotonic() < until:
        os.sched_yield()
    return list_children(pid)


def is_stopped(pid: int) -> bool:
    """Return True when no thread of it runs, or when it is gone."""
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                # The name before it may hold anything.
                if read_bytes(f"/proc/{pid}/task/{task}/stat").rpartition(b")")[2].split()[0] not in _STOPPED:
                    return False
    return True


def is_namespace_init(pid: int) -> bool:
    """Return True if it is process 1 of a pid namespace below ours: all of that namespace ends with it."""
    try:
        lines = read_bytes(f"/proc/{pid}/status").splitlines()
    except OSError:
        return False
    # Its numbers in all namespaces, from ours down.
    return any(line.startswith(b"NSpid:") and line.endswith(b"\t1") and line.count(b"\t") > 1 for line in lines)


def sum_resident_bytes(pids: Iterable[int]) -> int:
    """Return the resident memory of all of them. Shared pages count once for each: never too little."""
    return sum(_read_resident(pid) for pid in pids)


def sum_proportional_bytes(pids: Iterable[int]) -> int:
    """Return memory like `sum_resident_bytes`, but a page shared by n of them counts 1/n for each. Slower."""
    return sum(_read_proportional(pid) for pid in pids)


def measure_used_bytes(pids: list[int], limit: int, shared: "SharedMemoryCounter | None" = None) -> int:
    """Return the memory of all processes together, with what they hold in `shared`. Exact only above the limit."""
    held = shared.scan(pids) if shared is not None else 0
    total = sum_resident_bytes(pids) + held
    if total > limit:
        total = sum_proportional_bytes(pids) + held
    if total > limit and shared is not None and held:
        total = shared.sum_other_bytes(pids) + held
    return total


class _SharedFile(NamedTuple):
    num_bytes: int
    #: The number of the round in which it was seen last.
    round: int


class SharedMemoryCounter:
    """Counts shared memory that processes hold by descriptors. It counts as resident only while it is mapped.

    One look reads a limited number of descriptors and continues where the last one stopped. A file counts until a
    whole round has not found it: many other descriptors delay the count, and hide nothing.
    """

    def __init__(self, max_descriptors: int = _MAX_DESCRIPTORS) -> None:
        self._max_descriptors = max_descriptors
        self._files: dict[_FileId, _SharedFile] = {}
        self._round = 0
        #: Still to be looked at in this round.
        self._paths: Iterator[str] = iter(())
        self._is_round_over = True

    def scan(self, pids: Iterable[int]) -> int:
        """Return the allocated bytes of all files held, each file once."""
        if self._is_round_over:
            self._paths, self._is_round_over = _iterate_descriptors(list(pids)), False
            self._round += 1
        for _ in range(self._max_descriptors):
            path = next(self._paths, None)
            if path is None:
                self._is_round_over = True
                self._files = {key: held for key, held in self._files.items() if held.round == self._round}
                break
            if (found := _stat_shared_file(path)) is not None:
                self._files[found[0]] = _SharedFile(found[1], self._round)
        return sum(held.num_bytes for held in self._files.values())

    def sum_other_bytes(self, pids: Iterable[int]) -> int:
        """Return memory like `sum_proportional_bytes`, without mappings of the held files. Slow."""
        return sum(_read_proportional_without(pid, self._files) for pid in pids)


def _iterate_descriptors(pids: Iterable[int]) -> Iterator[str]:
    for pid in pids:
        with suppress(OSError):  # it has ended, or may not be read
            for name in os.listdir(f"/proc/{pid}/fd"):
                yield f"/proc/{pid}/fd/{name}"


def _stat_shared_file(path: str) -> tuple[_FileId, int] | None:
    try:
        if not os.readlink(path).startswith(_SHARED_MEMORY):
            return None
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino), found.st_blocks * _BLOCK_BYTES


def list_children(pid: int) -> list[int]:
    """Return the processes that it started; none when it is gone by now."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, read_bytes(f"/proc/{pid}/task/{task}/children").split())
    except OSError:
        pass
    return found


def _read_resident(pid: int) -> int:
    try:
        return int(read_bytes(f"/proc/{pid}/statm").split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _read_proportional(pid: int) -> int:
    try:
        lines = read_bytes(f"/proc/{pid}/smaps_rollup").splitlines()
    except OSError:
        # Not ours to look into; what it holds counts in full.
        return _read_resident(pid)
    return next((_parse_kibibytes(line) for line in lines if line.startswith(b"Pss:")), 0)


def _read_proportional_without(pid: int, files: Iterable[_FileId]) -> int:
    """Read both in one look: a process that ends between two looks would count its mappings twice."""
    unwanted = {(os.major(device), os.minor(device), inode) for device, inode in files}
    total, is_counted = 0, True
    try:
        lines = read_bytes(f"/proc/{pid}/smaps").splitlines()
    except OSError:
        return _read_resident(pid)
    for line in lines:
        if line.startswith(b"Pss:"):
            total += _parse_kibibytes(line) if is_counted else 0
        elif not line.split(b" ", 1)[0].endswith(b":"):
            # Addresses, permissions, offset, device, inode.
            device, inode = line.split(None, 5)[3:5]
            major, minor = device.split(b":")
            is_counted = (int(major, 16), int(minor, 16), int(inode)) not in unwanted
    return total


def _parse_kibibytes(line: bytes) -> int:
    return int(line.split()[1]) << 10


def read_bytes(path: str) -> bytes:
    """Return the content of a small file of the kernel, with as few system calls as possible."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = chunk = os.read(fd, _CHUNK_BYTES)
        while chunk:
            content += (chunk := os.read(fd, _CHUNK_BYTES))
        return content
    finally:
        os.close(fd)
