"""The table of places that no tool writes, for file tools and for commands.

| place | known from | read by tools |
|---|---|---|
| interpreter, environment, installed packages, this package | `programs.runtime_folders` | yes |
| log, artifacts, keys, policy files, settings | `keep_off` | no |

A place is known by its path and by its inode, so that another name leads to the same refusal: a folder that is mounted
a second time or spelled in another case, and a file that is hard-linked (installers link the same package into several
environments). Which files have several links is looked up once in a process, when it is first needed, and only where
code and the runtime's own files are.
"""

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import accumulate
from stat import S_ISDIR
from typing import NamedTuple, TypeAlias

from ...domain.errors import ConfigurationError
from ..host.programs import LIBRARY_FOLDERS, code_folders, is_inside, runtime_folders

#: Device and inode.
Identity: TypeAlias = tuple[int, int]

CODE = "belongs to the Python environment that Interlock runs in, which tools do not write"
OWN = "belongs to Interlock's own files (log, artifacts, keys, policy, settings), which tools do not write"
ALIAS = "is another name of a file or folder that Interlock runs from or keeps, which tools do not write"

_MAX_DEPTH = 256


class Identities(NamedTuple):
    """What frozen places consist of, as far as it can have another name."""

    folders: frozenset[Identity]
    #: Files with more than one link.
    files: frozenset[Identity]


class FrozenPlaces:
    """The frozen places as one workspace meets them. May be used by several threads."""

    def __init__(self, root: str) -> None:
        """
        Args:
            root: The real path of the workspace.
        """
        self._root = root
        #: Real paths of the runtime's own files, and those in the workspace from there on.
        self._own: set[str] = set()
        self._own_inside: frozenset[str] = frozenset()
        #: Why a path, from the workspace on, is not written; "." stands for the workspace.
        self._reasons = dict.fromkeys(self._inside(runtime_folders()), CODE)
        self._identities: dict[int, Identities] = {}

    def keep_off(self, paths: Iterable[str]) -> None:
        """Add files and folders of the runtime. `ConfigurationError` when the workspace lies in one of them."""
        own = [os.path.realpath(path) for path in paths]
        for path in own:
            if is_inside(self._root, path):
                raise ConfigurationError(f"The workspace {self._root!r} lies in {path!r}, which is the runtime's own.")
        self._own.update(own)
        self._own_inside = frozenset(self._inside(self._own))
        self._reasons |= dict.fromkeys(self._own_inside, OWN)
        self._identities = {}

    def reason(self, relative_path: str) -> str:
        """Return why a real path of the workspace is not written; empty when it may be."""
        return next((self._reasons[path] for path in _and_above(relative_path) if path in self._reasons), "")

    def is_own(self, relative_path: str) -> bool:
        """Is this one of the runtime's own files, which tools do not read either?"""
        return bool(self._own_inside) and any(path in self._own_inside for path in _and_above(relative_path))

    def is_outermost(self, relative_path: str) -> bool:
        """Is this where a frozen place begins?"""
        return relative_path in self._reasons

    def has_frozen_folder(self, folder: int, root: int) -> bool:
        """Is an open folder, or one that it is in, up to the open root, a frozen one by another name?"""
        tops, end = self._tops(), _identity(os.fstat(root))
        # Without a mount in between, a frozen folder has no name but those below where its place begins.
        is_mounted = _mount_of(folder) != _mount_of(root)
        above = "."
        for _ in range(_MAX_DEPTH):
            here = _identity(os.stat(above, dir_fd=folder))
            if here in tops or (is_mounted and here in self.identities(here[0]).folders):
                return True
            if here == end:
                return False
            above += "/.."
        return True

    def has_linked_file(self, status: os.stat_result) -> bool:
        """Is a file a frozen one by another name?"""
        return status.st_nlink > 1 and _identity(status) in self.identities(status.st_dev).files

    def identities(self, device: int) -> Identities:
        """Return what frozen places on a device consist of. The first time this takes a moment."""
        known = self._identities.get(device)
        if known is None:
            found = [_scan(path) for path in (*code_folders(), *self._own) if _device(path) == device]
            folders = frozenset(each for part in found for each in part.folders)
            files = frozenset(each for part in found for each in part.files)
            self._identities[device] = known = Identities(folders, files)
        return known

    def _inside(self, paths: Iterable[str]) -> Iterator[str]:
        """Give those in the workspace, from there on, and "." for one that the workspace is in."""
        for path in paths:
            if is_inside(self._root, path):
                yield "."
            elif is_inside(path, self._root):
                yield path[len(self._root.rstrip("/")) + 1 :]

    def _tops(self) -> set[Identity]:
        """Of the folders that frozen places begin with, as they are now."""
        statuses = (_status(path) for path in (*runtime_folders(), *self._own))
        return {_identity(status) for status in statuses if status is not None and S_ISDIR(status.st_mode)}


def held_with(relative_path: str) -> str:
    """Return what is held read-only for a linked file: the file, or the installed package that it is part of.

    A second environment may share thousands of files with this one, and a sandbox takes a limited number of mounts.
    """
    names = relative_path.split("/")
    at = max((names.index(name) for name in LIBRARY_FOLDERS if name in names[:-1]), default=-1)
    return "/".join(names[: at + 2]) if at >= 0 else relative_path


@lru_cache(maxsize=256)
def _scan(top: str) -> Identities:
    """Look at a file, or at everything below a folder. Installed packages below it are a place of their own."""
    folders: set[Identity] = set()
    files: set[Identity] = set()
    waiting: list[str | os.DirEntry[str]] = [top]
    while waiting:
        place = waiting.pop()
        status = _status(place)
        if status is None:
            continue
        if S_ISDIR(status.st_mode):
            folders.add(_identity(status))
            waiting += _entries(os.fspath(place))
        elif status.st_nlink > 1:
            files.add(_identity(status))
    return Identities(frozenset(folders), frozenset(files))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """What this process cannot list is loaded by no process of this user."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.name not in LIBRARY_FOLDERS]
    except OSError:
        return []


def _and_above(relative_path: str) -> Iterator[str]:
    """Give "." and each folder on the way, then the path."""
    yield "."
    yield from accumulate(relative_path.split("/"), lambda folder, name: f"{folder}/{name}")


def _status(place: "str | os.DirEntry[str]") -> os.stat_result | None:
    """None: it is not there, or not for this user."""
    try:
        return os.stat(place, follow_symlinks=isinstance(place, str))
    except OSError:
        return None


def _device(path: str) -> int | None:
    status = _status(path)
    return None if status is None else status.st_dev


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _mount_of(fd: int) -> str:
    """Return the mount that an open file was reached through; where that is unknown, something unique."""
    try:
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as about:
            return next(line for line in about if line.startswith("mnt_id:"))
    except (OSError, StopIteration):
        return f"unknown {fd}"
