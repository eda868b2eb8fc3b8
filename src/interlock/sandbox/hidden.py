"""Where in a workspace the files are that a command must not see, or not change: found anew before every command.

A workspace may hold a hundred thousand files, and a command should not wait for a walk over all of them. So a folder is
remembered with the time of its last change, and read again only when that moved. A folder that changed just before it
was read is not remembered: a clock that ticks slowly could hide the next change. Nothing is followed: a link to a
secret is only a name, and what it leads to has a path of its own.
"""

import os
from collections.abc import Callable
from time import time_ns
from typing import NamedTuple

from ..domain.errors import SandboxSetupError

_MAX_FOLDERS = 200_000
#: Content by digest: it is large, and no name in it is a person's.
_SKIPPED = frozenset({".git/objects", ".git/lfs", ".hg/store", ".svn/pristine"})
_SETTLED_NS = 2_000_000_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Found(NamedTuple):
    """Paths from the workspace on. A folder stands for all that is in it."""

    hidden: tuple[str, ...]
    read_only: tuple[str, ...]


class _Folder(NamedTuple):
    changed: tuple[int, int, int, int]
    folders: tuple[str, ...]
    hidden: tuple[str, ...]
    read_only: tuple[str, ...]


class HiddenFiles:
    def __init__(
        self,
        root: int,
        hides: Callable[[str], bool],
        freezes: Callable[[str], bool],
        now: Callable[[], int] = time_ns,
    ) -> None:
        """`root` is an open folder. The predicates get paths from there on, without links in them."""
        self._root = root
        self._hides = hides
        self._freezes = freezes
        self._now = now
        self._known: dict[str, _Folder] = {}

    def forget(self) -> None:
        """The predicates say something else now."""
        self._known.clear()

    def find(self) -> Found:
        """`SandboxSetupError` when there is too much to look at: then nobody can say what is to be hidden."""
        hidden: list[str] = []
        read_only: list[str] = []
        seen: dict[str, _Folder] = {}
        waiting = [""]
        while waiting:
            path = waiting.pop()
            folder = self._look(path)
            if folder is None:
                continue
            seen[path] = folder
            if len(seen) > _MAX_FOLDERS:
                raise SandboxSetupError(f"The workspace has more than {_MAX_FOLDERS:,} folders to look for secrets in.")
            hidden += folder.hidden
            read_only += folder.read_only
            waiting += folder.folders
        self._known = {path: folder for path, folder in seen.items() if folder.changed[0]}
        return Found(tuple(hidden), tuple(read_only))

    def _look(self, path: str) -> _Folder | None:
        known = self._known.get(path)
        try:
            if (
                known is not None
                and _changed(os.stat(path or ".", dir_fd=self._root, follow_symlinks=False)) == known.changed
            ):
                return known
            opened = os.open(path or ".", _FOLDER, dir_fd=self._root)
        except OSError:
            return None  # gone, no folder any more, or not for us: then not for a command either
        try:
            return self._read(path, opened)
        finally:
            os.close(opened)

    def _read(self, path: str, opened: int) -> _Folder:
        changed = _changed(os.fstat(opened))
        if self._now() - max(changed[2:]) < _SETTLED_NS:
            changed = (0, 0, 0, 0)
        folders: list[str] = []
        hidden: list[str] = []
        read_only: list[str] = []
        with os.scandir(opened) as entries:
            for entry in entries:
                place = f"{path}/{entry.name}" if path else entry.name
                if self._hides(place):
                    hidden.append(place)
                    continue
                if self._freezes(place):
                    read_only.append(place)
                if entry.is_dir(follow_symlinks=False) and place not in _SKIPPED:
                    folders.append(place)
        return _Folder(changed, tuple(folders), tuple(hidden), tuple(read_only))


def _changed(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
