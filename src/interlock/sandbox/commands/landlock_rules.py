"""Which folders get Landlock rules, so that a command can reach what its profile says and nothing more.

A rule holds for all that is below a folder, and cannot be taken back further down. So where something below is to be
reached less, the folder itself gets only what all of it may get, and its other entries get rules one by one. It has a
price: such a folder takes no new entries, and it cannot be listed when a folder below is hidden.

Entries are opened from the descriptor of their folder and links are left out, so nobody who moves things around at this
moment gets a rule for something else. What is hidden or read-only has to exist: a name alone cannot be kept from use.
"""

import os
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from enum import IntEnum

from ...domain.errors import SandboxSetupError
from ..host.landlock import READ_RIGHTS, READ_DIR, WRITE_RIGHTS, Ruleset

MAX_ENTRIES = 10_000
MAX_DEPTH = 200


class AccessLevel(IntEnum):
    HIDDEN = 0
    READABLE = 1
    WRITABLE = 2


_RIGHTS = {AccessLevel.HIDDEN: 0, AccessLevel.READABLE: READ_RIGHTS, AccessLevel.WRITABLE: WRITE_RIGHTS}


class _PathNode:
    """A folder or file of which something is said, or below which there is one."""

    def __init__(self) -> None:
        self.children: dict[str, _PathNode] = {}
        self.max_level = AccessLevel.WRITABLE
        self.is_hidden_folder = False

    def find_lowest_level(self) -> AccessLevel:
        return min([self.max_level, *(place.find_lowest_level() for place in self.children.values())])

    def can_list(self) -> bool:
        """Its names can be shown: no folder below it is hidden."""
        return not self.is_hidden_folder and all(place.can_list() for place in self.children.values())


class PathRestrictions:
    """What may be reached less than the folders around it."""

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
            found = os.fstat(fd)
            if identity and identity != (found.st_dev, found.st_ino):
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


@contextmanager
def _open_path(path: str, folder: int | None = None, flags: int = os.O_PATH) -> Generator[int]:
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)
