"""The processes below one process, and the memory that they hold, as Linux tells it in `/proc`."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

#: Stopped, a zombie, dead, or not to be found.
_STOPPED = (b"T", b"t", b"Z", b"X", b"")
_STOP_SECONDS = 0.5
_PAGE = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int, most: int | None = None) -> list[int]:
    """Children before grandchildren, without `pid` itself. Stops soon after `most`: a fork bomb has no end."""
    found: list[int] = []
    waiting = [pid]
    while waiting and (most is None or len(found) <= most):
        below = children(waiting.pop(0))
        found += below
        waiting += below
    return found


def children_when_stopped(pid: int) -> list[int]:
    """Of a process that was told to stop, when it has: then there will be no others. At once when it is gone."""
    until = time.monotonic() + _STOP_SECONDS
    while _state(pid) not in _STOPPED and time.monotonic() < until:
        os.sched_yield()
    return children(pid)


def _state(pid: int) -> bytes:
    try:
        # The name before it may hold anything.
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0]
    except OSError:
        return b""


def is_first_of_its_own(pid: int) -> bool:
    """It is process 1 of a process namespace below ours: all of that namespace ends with it."""
    try:
        lines = _read(f"/proc/{pid}/status").splitlines()
    except OSError:
        return False
    # Its numbers in all namespaces, from ours down.
    return any(line.startswith(b"NSpid:") and line.endswith(b"\t1") and line.count(b"\t") > 1 for line in lines)


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory of all of them together. Pages that they share count once for each: never too little."""
    return sum(_resident(pid) for pid in pids)


def proportional_bytes(pids: Iterable[int]) -> int:
    """As `resident_bytes`, but a page that n of them share counts as 1/n for each. Slower."""
    return sum(_proportional(pid) for pid in pids)


def children(pid: int) -> list[int]:
    """Return the processes that it started; none when it is gone by now."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    except OSError:
        pass
    return found


def _resident(pid: int) -> int:
    try:
        return int(_read(f"/proc/{pid}/statm").split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    try:
        lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()
    except OSError:
        # Not ours to look into; what it holds counts in full.
        return _resident(pid)
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(b"Pss:")), 0)


def _read(path: str) -> bytes:
    return Path(path).read_bytes()
