"""The table of places that no tool writes, for file tools and for commands.

| place | known from | read by tools |
|---|---|---|
| interpreter, environment, installed packages, this package | `programs.runtime_folders` | yes |
| log, artifacts, keys, policy files, settings | `keep_off` | no |

A place is known by its path and by its inode, so that another name leads to the same refusal: a folder that is mounted
a second time or spelled in another case, and a file that is hard-linked (installers link the same package into several
environments). Which files have several links is looked up once in a process, only where code and the runtime's own
files are, and not before a file of the workspace has several: there are tens of thousands to look at.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import accumulate
from stat import S_ISDIR

from ...domain.errors import ConfigurationError
from ..host.descriptors import FileIdentity, get_identity
from ..host.programs import LIBRARY_FOLDERS, code_folders, is_inside, runtime_folders

CODE_REASON = "belongs to the Python environment that Interlock runs in, which tools do not write"
OWN_REASON = "belongs to Interlock's own files (log, artifacts, keys, policy, settings), which tools do not write"
ALIAS_REASON = "is another name of a file or folder that Interlock runs from or keeps, which tools do not write"

_MAX_DEPTH = 256


class FrozenPaths:
    """The frozen places as seen from one workspace. Thread-safe."""

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
        self._reasons = dict.fromkeys(self._relative_paths(runtime_folders()), CODE_REASON)
        #: By device: the folders, and the files with several links.
        self._folders: dict[int, frozenset[FileIdentity]] = {}
        self._files: dict[int, frozenset[FileIdentity]] = {}

    def add_own_paths(self, paths: Iterable[str]) -> None:
        """Add files and folders of the runtime. Raise `ConfigurationError` when the workspace is in one of them."""
        own = [os.path.realpath(path) for path in paths]
        for path in own:
            if is_inside(self._root, path):
                raise ConfigurationError(f"The workspace {self._root!r} lies in {path!r}, which is the runtime's own.")
        self._own.update(own)
        self._own_inside = frozenset(self._relative_paths(self._own))
        self._reasons |= dict.fromkeys(self._own_inside, OWN_REASON)
        self._folders, self._files = {}, {}

    def find_reason(self, relative_path: str) -> str:
        """Return why a real path of the workspace is not written; empty when it may be."""
        return next((self._reasons[path] for path in _path_and_parents(relative_path) if path in self._reasons), "")

    def is_own_path(self, relative_path: str) -> bool:
        """Return True if this is one of the runtime's files, which tools do not read either."""
        return bool(self._own_inside) and any(path in self._own_inside for path in _path_and_parents(relative_path))

    def is_frozen_root(self, relative_path: str) -> bool:
        """Return True if a frozen place begins here."""
        return relative_path in self._reasons

    def is_folder_frozen(self, folder: int, root: int) -> bool:
        """Return True if an open folder, or one it is in up to the open root, is a frozen one by another name."""
        tops, end = self._root_identities(), get_identity(os.fstat(root))
        # Without a mount in between, a frozen folder has no name but those below where its place begins.
        is_mounted = _read_mount_id(folder) != _read_mount_id(root)
        above = "."
        for _ in range(_MAX_DEPTH):
            here = get_identity(os.stat(above, dir_fd=folder))
            if here in tops or (is_mounted and here in self.find_folders(here[0])):
                return True
            if here == end:
                return False
            above += "/.."
        return True

    def is_file_linked(self, status: os.stat_result) -> bool:
        """Return True if a file is a frozen one by another name."""
        return status.st_nlink > 1 and get_identity(status) in self._find_files(status.st_dev)

    def find_folders(self, device: int) -> frozenset[FileIdentity]:
        """Return the inodes of the frozen folders on a device. The first call takes a moment."""
        if device not in self._folders:
            self._folders[device] = self._scan(_scan_folders, device)
        return self._folders[device]

    def _find_files(self, device: int) -> frozenset[FileIdentity]:
        """Return the inodes of the frozen files on a device that have several links. The first call takes longer."""
        if device not in self._files:
            self._files[device] = self._scan(_scan_linked_files, device)
        return self._files[device]

    def _scan(self, scan: Callable[[str], frozenset[FileIdentity]], device: int) -> frozenset[FileIdentity]:
        places = (path for path in (*code_folders(), *self._own) if _device_of(path) == device)
        return frozenset(each for path in places for each in scan(path))

    def _relative_paths(self, paths: Iterable[str]) -> Iterator[str]:
        """Give those in the workspace, from there on, and "." for one that the workspace is in."""
        for path in paths:
            if is_inside(self._root, path):
                yield "."
            elif is_inside(path, self._root):
                yield path[len(self._root.rstrip("/")) + 1 :]

    def _root_identities(self) -> set[FileIdentity]:
        """Return the current identities of the folders that frozen places begin with."""
        statuses = (_stat_or_none(path) for path in (*runtime_folders(), *self._own))
        return {get_identity(status) for status in statuses if status is not None and S_ISDIR(status.st_mode)}


def find_protected_unit(relative_path: str) -> str:
    """Return what is held read-only for a linked file: the file, or the installed package that it is part of.

    A second environment may share thousands of files with this one, and a sandbox takes a limited number of mounts.
    """
    names = relative_path.split("/")
    at = max((names.index(name) for name in LIBRARY_FOLDERS if name in names[:-1]), default=-1)
    return "/".join(names[: at + 2]) if at >= 0 else relative_path


@lru_cache(maxsize=256)
def _scan_folders(top: str) -> frozenset[FileIdentity]:
    """Look at a folder and those below it. Installed packages below it are a place of their own."""
    folders: set[FileIdentity] = set()
    waiting: list[str] = [top]
    while waiting:
        place = waiting.pop()
        status = _stat_or_none(place)
        if status is not None and S_ISDIR(status.st_mode):
            folders.add(get_identity(status))
            waiting += (entry.path for entry in _entries(place) if entry.is_dir(follow_symlinks=False))
    return frozenset(folders)


@lru_cache(maxsize=256)
def _scan_linked_files(top: str) -> frozenset[FileIdentity]:
    """Look at a file, or at each below a folder."""
    files: set[FileIdentity] = set()
    waiting: list[str | os.DirEntry[str]] = [top]
    while waiting:
        place = waiting.pop()
        status = _stat_or_none(place)
        if status is None:
            continue
        if S_ISDIR(status.st_mode):
            waiting += _entries(os.fspath(place))
        elif status.st_nlink > 1:
            files.add(get_identity(status))
    return frozenset(files)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """List a folder. One that cannot be listed here is loaded by no process of this user."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.name not in LIBRARY_FOLDERS]
    except OSError:
        return []


def _path_and_parents(relative_path: str) -> Iterator[str]:
    """Give "." and each folder on the way, then the path."""
    yield "."
    yield from accumulate(relative_path.split("/"), lambda folder, name: f"{folder}/{name}")


def _stat_or_none(place: "str | os.DirEntry[str]") -> os.stat_result | None:
    """Return the status; None if the path does not exist or is not accessible."""
    try:
        return os.stat(place, follow_symlinks=isinstance(place, str))
    except OSError:
        return None


def _device_of(path: str) -> int | None:
    status = _stat_or_none(path)
    return None if status is None else status.st_dev


def _read_mount_id(fd: int) -> str:
    """Return the mount that an open file was reached through; where that is unknown, something unique."""
    try:
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as about:
            return next(line for line in about if line.startswith("mnt_id:"))
    except (OSError, StopIteration):
        return f"unknown {fd}"
