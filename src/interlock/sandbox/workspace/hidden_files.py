"""Scans a workspace for files that a command must not see, or not change, before every command.

A workspace may hold a hundred thousand files, and a command should not wait for a walk over all of them. So a folder is
remembered with the time of its last change, and read again only when that moved. A folder that changed just before it
was read is not remembered: a clock that ticks slowly could hide the next change. Nothing is followed: a link to a
secret is only a name, and what it leads to has its own path.

No folder is left out, since a command can move a secret into any. One that cannot be looked into (its mode, a path that
is too long to be used) is hidden as a whole: a command could change the mode and then read what is in it.
"""

import os
from collections.abc import Callable
from errno import ELOOP, ENOENT, ENOTDIR
from threading import Lock
from time import time_ns
from typing import NamedTuple

from ...domain.errors import SandboxSetupError
from ..host.descriptors import closing_fd, get_identity
from .frozen_paths import FrozenPaths, find_protected_unit
from .protected_names import EntryKind, GuardAction, find_guard

_MAX_FOLDERS = 200_000
_MAX_WALK_NS = 1_000_000_000
#: A path from the workspace on. What is hidden is mounted over by its whole path, and the system takes 4,095 bytes.
_MAX_PATH_BYTES = 3_000
_SETTLED_NS = 2_000_000_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: It was there a moment ago, and is gone or no folder any more.
_GONE_ERRNOS = frozenset({ENOENT, ENOTDIR, ELOOP})


class WorkspaceScan(NamedTuple):
    """Paths relative to the workspace, sorted. A folder includes its content."""

    hidden: tuple[str, ...]
    read_only: tuple[str, ...]
    #: May be written, and people are notified when one appears.
    watched: tuple[str, ...] = ()


class _ScannedFolder(NamedTuple):
    #: Which folder it is, and when it last changed, its mode too. None: it has to be read again.
    change_stamp: tuple[int, int, int] | None
    folders: tuple[str, ...]
    scan: WorkspaceScan


class HiddenFileScanner:
    """Finds hidden and frozen files in a workspace. Thread-safe."""

    def __init__(  # noqa: PLR0913 - one for each reason to hide or to hold
        self,
        root: int,
        is_hidden: Callable[[str], bool],
        is_frozen: Callable[[str], bool],
        now: Callable[[], int] = time_ns,
        *,
        find_guard: Callable[[str, EntryKind], GuardAction] = find_guard,
        frozen: FrozenPaths | None = None,
    ) -> None:
        """Scan an open folder. The predicates get paths relative to `root` without links; `find_guard` also gets the
        kind of entry. Paths that it says to hold are frozen, and so are those in `frozen`, by any name.
        """
        self._root = root
        self._is_hidden = is_hidden
        self._is_frozen = is_frozen
        self._find_guard = find_guard
        self._frozen_paths = frozen
        self._now = now
        self._known: dict[str, _ScannedFolder] = {}
        self._lock = Lock()

    def clear_cache(self) -> None:
        """Forget cached folders, because the predicates changed."""
        with self._lock:
            self._known.clear()

    def scan(self) -> WorkspaceScan:
        """Scan the workspace. Raise `SandboxSetupError` when there is too much to scan: then hidden files are
        unknown.
        """
        with self._lock:
            seen = self._walk_until_stable()
            self._known = {path: folder for path, folder in seen.items() if folder.change_stamp is not None}
        parts = [folder.scan for folder in seen.values()]
        return WorkspaceScan(*(tuple(sorted(path for part in parts for path in part[kind])) for kind in range(3)))

    def _walk_until_stable(self) -> dict[str, _ScannedFolder]:
        """Walk until nothing changed: folders may move meanwhile, from unscanned to scanned places."""
        began = self._now()
        while (seen := self._walk()) is None and self._now() - began < _MAX_WALK_NS:
            pass
        if seen is not None:
            return seen
        raise SandboxSetupError("Folders of the workspace are moved all the time, so it is unknown what to hide.")

    def _walk(self) -> dict[str, _ScannedFolder] | None:
        """Walk all folders. Return None if one disappeared after it was listed."""
        seen: dict[str, _ScannedFolder] = {}
        waiting = [""]
        while waiting:
            path = waiting.pop()
            folder = self._scan_folder(path)
            if folder is None:
                return None
            seen[path] = folder
            waiting += folder.folders
            if len(seen) > _MAX_FOLDERS:
                raise SandboxSetupError(
                    f"The workspace has more than {_MAX_FOLDERS:,} folders, too many to look for secrets in. "
                    "Ask the user to remove folders that are not needed, or to work in a part of it."
                )
        return seen

    def _scan_folder(self, path: str) -> _ScannedFolder | None:
        """Scan a folder, or return its known scan if it is unchanged; None if it is gone."""
        known = self._known.get(path)
        try:
            if known is not None and known.change_stamp == _change_stamp(
                os.stat(path or ".", dir_fd=self._root, follow_symlinks=False)
            ):
                return known
            return self._read_folder(path)
        except OSError as error:
            if not path and error.errno not in _GONE_ERRNOS:
                raise SandboxSetupError(f"The workspace cannot be looked into: {error}.") from error
            return None if error.errno in _GONE_ERRNOS else _ScannedFolder(None, (), WorkspaceScan((path,), ()))

    def _read_folder(self, path: str) -> _ScannedFolder:
        with closing_fd(os.open(path or ".", _FOLDER, dir_fd=self._root)) as opened:
            # Not of the descriptor itself: this fails where nothing in the folder can be reached.
            status = os.stat(".", dir_fd=opened)
            with os.scandir(opened) as entries:
                listed = list(entries)
            names: list[tuple[str, EntryKind]] = [(entry.name, _entry_kind(entry)) for entry in listed]
            aliases = self._find_aliases(path, status, listed)
            if _change_stamp(os.stat(".", dir_fd=opened)) != _change_stamp(status):
                # Two names that are exchanged while they are listed may both look like links.
                raise FileNotFoundError(ENOENT, "it changed while it was read", path)
        is_settled = self._now() - max(status.st_mtime_ns, status.st_ctime_ns) >= _SETTLED_NS
        return self._classify_entries(
            f"{path}/" if path else "", names, aliases, _change_stamp(status) if is_settled else None
        )

    def _find_aliases(self, path: str, status: os.stat_result, entries: list[os.DirEntry[str]]) -> list[str]:
        """Find other names of frozen places: the folder itself, or files in it that have several links."""
        frozen = self._frozen_paths
        if frozen is None or frozen.find_reason(path or "."):
            return []
        if path and get_identity(status) in frozen.find_folders(status.st_dev):
            return [path]
        base = f"{path}/" if path else ""
        linked = (entry.name for entry in entries if _entry_kind(entry) == "other" and _is_linked(entry, frozen))
        return sorted({find_protected_unit(base + name) for name in linked})

    def _classify_entries(
        self, base: str, names: list[tuple[str, EntryKind]], aliases: list[str], changed: tuple[int, int, int] | None
    ) -> _ScannedFolder:
        folders: list[str] = []
        hidden: list[str] = []
        read_only = aliases
        watched: list[str] = []
        is_hidden, is_frozen, find_guard = self._is_hidden, self._is_frozen, self._find_guard
        for name, kind in names:
            path, is_folder = base + name, kind == "folder"
            if is_hidden(path) or (is_folder and len(os.fsencode(path)) > _MAX_PATH_BYTES):
                hidden.append(path)
                continue
            guard = find_guard(path, kind)
            if (
                guard == "hold"
                or is_frozen(path)
                or (self._frozen_paths is not None and self._frozen_paths.is_frozen_root(path))
            ):
                read_only.append(path)
            elif guard == "notify":
                watched.append(path)
            if is_folder:
                folders.append(path)
        return _ScannedFolder(changed, tuple(folders), WorkspaceScan(tuple(hidden), tuple(read_only), tuple(watched)))


def _entry_kind(entry: os.DirEntry[str]) -> EntryKind:
    if entry.is_symlink():
        return "link"
    return "folder" if entry.is_dir(follow_symlinks=False) else "other"


def _is_linked(entry: os.DirEntry[str], frozen: FrozenPaths) -> bool:
    return frozen.is_file_linked(entry.stat(follow_symlinks=False))


def _change_stamp(status: os.stat_result) -> tuple[int, int, int]:
    """Return a stamp of a folder. Any change in it changes the last field, which cannot be set."""
    return status.st_dev, status.st_ino, status.st_ctime_ns
