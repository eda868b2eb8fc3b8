"""How many processes a command may have, held by the kernel also where we are root.

The kernel never holds root to the limit that a user has on processes, and a program that forks without end is faster
than anybody who looks now and then. So where we are root and may make control groups, each command gets one of its own.
"""

import os
from contextlib import suppress
from functools import cache
from secrets import token_hex

#: The folder of the controller, in the first and in the second version of control groups.
_FOLDERS = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")
_PREFIX = "interlock-"
#: Groups of this process that are to be removed.
_closed: set[str] = set()


class ProcessGroup:
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def take(self, pid: int) -> None:
        """It, and what it starts from now on. Those that it started before have to be taken as well."""
        with suppress(OSError):  # it is over, and so is what it started
            _write(f"{self._folder}/cgroup.procs", str(pid))

    def close(self) -> None:
        """Once all in it are dead. What the kernel still holds to is removed with a later one."""
        _closed.add(self._folder)
        _remove_closed()


def make_group(most: int) -> ProcessGroup | None:
    """None where the kernel holds the limit by other means, or where there are no control groups for us."""
    parent = _parent()
    if not parent:
        return None
    folder = f"{parent}/{_PREFIX}{os.getpid()}-{token_hex(8)}"
    try:
        os.mkdir(folder)
    except OSError:
        return None
    group = ProcessGroup(folder)
    try:
        _write(f"{folder}/pids.max", str(most))
    except OSError:
        group.close()
        return None
    return group


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


@cache
def _parent() -> str:
    """Where groups with a limit on processes can be made; empty when there is no such place. Found by making one."""
    if os.getuid() != 0:
        return ""
    for parent in _FOLDERS:
        trial = f"{parent}/{_PREFIX}{os.getpid()}-trial-{token_hex(8)}"
        try:
            os.mkdir(trial)
        except OSError:
            continue
        try:
            if os.path.exists(f"{trial}/pids.max"):
                _closed.update(_left_behind(parent))
                return parent
        finally:
            with suppress(OSError):
                os.rmdir(trial)
    return ""


def _left_behind(parent: str) -> list[str]:
    """Groups of processes that are gone: they were killed before they could tidy up."""
    names = (name for name in os.listdir(parent) if name.startswith(_PREFIX))
    return [f"{parent}/{name}" for name in names if not os.path.exists(f"/proc/{name.split('-')[1]}")]


def holds_root() -> bool:
    """Is root held to a number of processes here?"""
    return bool(_parent())


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
