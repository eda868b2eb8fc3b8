"""A cheap fingerprint of a workspace, to detect that a check is out of date.

It is a digest over path, size and times of every file, without reading any: an edit, a new file, a deleted one or one
that was only touched makes another digest. The time of the last change of the inode is in it, because tools restore
the other one. What programs write for themselves while they test or check is left out, or each run would make its own
result stale; whole folders of installed or built things are looked at from outside only, for the list of changes.

Every file is looked at each time. What a folder holds is remembered, and listed again only when its inode changed: any
name that comes or goes changes that time, which no program can set. A folder that changed just before it was listed is
not remembered, since a clock that ticks slowly could hide the next change.

Nothing is followed, and everything goes by descriptors below the root. Limits of files and of depth hold; beyond them
`truncated` says that equal digests prove nothing.
"""

import os
import re
from collections.abc import Callable, Mapping
from fnmatch import translate
from hashlib import sha256
from itertools import islice
from time import time_ns
from typing import NamedTuple, TypeAlias

import msgspec

from ...domain.state.verification import REPOSITORY_FOLDERS

MAX_FILES = 20_000
MAX_DEPTH = 64

#: Folders that tests and checks fill for themselves.
CACHE_FOLDERS = frozenset(
    (
        *("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".nyc_output", ".eggs"),
        *("htmlcov", ".coverage-html", ".cache", ".turbo", ".parcel-cache", ".gradle"),
    )
)
#: Files of the same kind, as patterns for names.
CACHE_FILES = (".coverage", ".coverage.*", "coverage.xml", "lcov.info", "*.pyc", ".eslintcache", "*.tsbuildinfo")
#: Folders of installed or built things, and of a repository. With names beside them that must be there, because some
#: projects call sources so.
SHALLOW_FOLDERS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys((".git", ".hg", ".svn", "node_modules", ".venv", "venv", ".tox", ".nox"), frozenset[str]()),
    "target": frozenset({"Cargo.toml", "pom.xml", "build.sbt"}),
}
#: What changes in a repository when something is committed, staged or switched. Reading it may refresh the index, so
#: that is not here.
_REPOSITORY_FILES = ("HEAD", "logs/HEAD", "packed-refs", "refs/heads", "refs/tags", "refs/stash", "config")

#: Names that decide what a folder beside them is.
_MARKERS = frozenset[str]().union(*SHALLOW_FOLDERS.values())
_SETTLED_NS = 2_000_000_000

_is_cache_file = re.compile("|".join(map(translate, CACHE_FILES))).match
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Size and times of a file; of a folder only that it is there, since a cache in it would change its times.
_Stamp: TypeAlias = tuple[int, ...]
_IS_FOLDER: _Stamp = ()


def is_cache(path: str) -> bool:
    """Return True for what programs write for themselves while they test or check."""
    *folders, name = path.split("/")
    return not CACHE_FOLDERS.isdisjoint((*folders, name)) or _is_cache_file(name) is not None


def is_rebuilt(path: str, root: str) -> bool:
    """Return True for what is in a folder of installed or built things, or in a cache: a program makes it again."""
    names = path.split("/")
    for at, name in enumerate(names):
        beside = SHALLOW_FOLDERS.get(name)
        if name in CACHE_FOLDERS or (beside is not None and not beside and name not in REPOSITORY_FOLDERS):
            return True
        if beside and any(os.path.lexists("/".join((root, *names[:at], other))) for other in beside):
            return True
    return False


class WorkspaceFingerprint(msgspec.Struct, frozen=True):
    """The stamps of all files of a workspace."""

    #: How many files it is made of.
    files: int
    #: There are more, or deeper ones.
    truncated: bool
    #: By path from the root. Bytes of names that are no UTF-8 are lone surrogates.
    stamps: Mapping[str, _Stamp]
    #: Of the folders that are looked at from outside.
    shallow_stamps: Mapping[str, _Stamp]

    @property
    def digest(self) -> str:
        """The digest, computed on demand: most commands verify nothing."""
        listed = "".join(f"{path}\0{self.stamps[path]}\n" for path in sorted(self.stamps))
        mark = "truncated:" if self.truncated else ""
        return mark + sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()[:32]


class WorkspaceChanges(msgspec.Struct, frozen=True):
    """Paths from the root, sorted. A folder is named only when it came or went."""

    created: tuple[str, ...]
    modified: tuple[str, ...]
    deleted: tuple[str, ...]
    #: False: there were more files than were looked at.
    complete: bool

    @property
    def count(self) -> int:
        """Number of changed files."""
        return len(self.created) + len(self.modified) + len(self.deleted)


class _Listing(NamedTuple):
    """The names in a folder, sorted, without caches."""

    #: Which folder it is, and when its inode last changed. None: it has to be listed again.
    change_stamp: tuple[int, int, int] | None
    files: tuple[str, ...]
    folders: tuple[str, ...]
    markers: frozenset[str]


class FolderListings:
    """What the folders of one workspace hold, as they were last listed."""

    def __init__(self, now: Callable[[], int] = time_ns) -> None:
        self._now = now
        #: Replaced as a whole by each walk, so that walks in several threads do not disturb each other.
        self.by_path: Mapping[str, _Listing] = {}

    def list_folder(self, folder: int, path: str, limit: int) -> _Listing:
        """Return what the open folder holds, or that there are more than `limit` names."""
        status = os.fstat(folder)
        change_stamp = (status.st_dev, status.st_ino, status.st_ctime_ns)
        known = self.by_path.get(path)
        if known is not None and known.change_stamp == change_stamp:
            return known
        is_settled = self._now() - max(status.st_mtime_ns, status.st_ctime_ns) >= _SETTLED_NS
        with os.scandir(folder) as scan:
            entries = sorted(islice(scan, limit + 1), key=lambda entry: entry.name)
        files: list[str] = []
        folders: list[str] = []
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif not _is_cache_file(entry.name):
                    files.append(entry.name)
            except OSError:
                is_settled = False  # gone meanwhile
        return _Listing(
            change_stamp if is_settled and len(entries) <= limit else None,
            tuple(files),
            tuple(folders),
            _MARKERS.intersection(entry.name for entry in entries),
        )


def take_fingerprint(
    root: int, *, max_files: int = MAX_FILES, listings: FolderListings | None = None
) -> WorkspaceFingerprint:
    """Return the fingerprint of the folder that `root` is open for.

    Args:
        root: The open folder.
        max_files: How many files are looked at.
        listings: What was found before in this folder; it is brought up to date.
    """
    listings = listings or FolderListings()
    walk = _FingerprintWalk(max_files, listings)
    walk.enter(root, "", 0)
    listings.by_path = walk.listings
    return WorkspaceFingerprint(walk.files, walk.truncated, walk.stamps, walk.shallow_stamps)


def compare_fingerprints(before: WorkspaceFingerprint, after: WorkspaceFingerprint) -> WorkspaceChanges:
    """Return the differences, also in folders that are no part of the digest."""
    complete = not (before.truncated or after.truncated)
    if before.stamps == after.stamps and before.shallow_stamps == after.shallow_stamps:
        return WorkspaceChanges((), (), (), complete)  # mostly so, and found much sooner
    old, new = {**before.stamps, **before.shallow_stamps}, {**after.stamps, **after.shallow_stamps}
    return WorkspaceChanges(
        tuple(sorted(new.keys() - old.keys())),
        tuple(sorted(path for path in new.keys() & old.keys() if new[path] != old[path])),
        tuple(sorted(old.keys() - new.keys())),
        complete,
    )


class _FingerprintWalk:
    def __init__(self, max_files: int, known: FolderListings) -> None:
        self.stamps: dict[str, _Stamp] = {}
        self.shallow_stamps: dict[str, _Stamp] = {}
        self.files = 0
        self.truncated = False
        self.listings: dict[str, _Listing] = {}
        self._max_files = max_files
        self._known = known

    def enter(self, folder: int, path: str, depth: int) -> None:
        """Look at a folder, files first and in order, so that a limit leaves out the same ones each time."""
        listing = self._known.list_folder(folder, path, self._max_files)
        if listing.change_stamp is not None:
            self.listings[path] = listing
        files = listing.files[: self._max_files - self.files]
        self.files += len(files)
        stat, stamps = os.stat, self.stamps
        for name in files:
            try:
                status = stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue  # gone meanwhile
            stamps[path + name] = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if len(files) < len(listing.files):
            self.truncated = True
            return
        for name in listing.folders:
            self._descend(folder, path + name, name, listing.markers, depth)

    def _descend(self, folder: int, path: str, name: str, beside: frozenset[str], depth: int) -> None:
        if name in CACHE_FOLDERS:
            return
        needed = SHALLOW_FOLDERS.get(name)
        is_aside = needed is not None and (not needed or bool(needed & beside))
        if not is_aside:
            self.stamps[path] = _IS_FOLDER
            if depth >= MAX_DEPTH or self.files >= self._max_files:
                self.truncated = True
                return
        try:
            opened = os.open(name, _FOLDER, dir_fd=folder)
        except OSError:
            return  # gone, or not for us
        try:
            if is_aside:
                self.shallow_stamps[path] = _make_shallow_stamp(opened)
            else:
                self.enter(opened, path + "/", depth + 1)
        except OSError:
            self.truncated = True
        finally:
            os.close(opened)


def _make_stamp(status: os.stat_result) -> _Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _make_shallow_stamp(folder: int) -> _Stamp:
    """Return the stamp of a folder: of a repository by its head, else by the names in it, which its time reflects."""
    found: list[int] = []
    for name in _REPOSITORY_FILES:
        try:
            found += _make_stamp(os.stat(name, dir_fd=folder, follow_symlinks=False))
        except OSError:
            found.append(0)
    return tuple(found) if any(found) else (os.fstat(folder).st_mtime_ns,)
