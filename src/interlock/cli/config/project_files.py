"""The files of a project: everything under its `.interlock` folder, and nothing else.

Reading is harmless: files are counted and digested, never interpreted. Links are not followed and reads do not block. A
project whose files cannot be read reliably, or that everyone may change, cannot be trusted; `refusal` says why.
"""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import msgspec

PROJECT_FOLDER = ".interlock"
#: What makes a folder the root of a project.
_ROOT_MARKERS = (PROJECT_FOLDER, ".git", ".hg", ".jj", ".svn")
MAX_FILES = 1_000
MAX_DEPTH = 16
MAX_TOTAL_BYTES = 32 << 20

_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class ProjectFile(msgspec.Struct, frozen=True):
    """A file of a project. `path` is relative to its root."""

    path: str
    size_bytes: int
    sha256: str


class ProjectFiles(msgspec.Struct, frozen=True):
    """The files of a project."""

    #: The real path of the project.
    root: str
    files: tuple[ProjectFile, ...] = ()
    #: Why none of it can be trusted; empty when it can.
    refusal: str = ""


class _ScanError(Exception):
    pass


def find_project_root(start: Path) -> Path:
    """Return the project of a folder: the nearest one at or above it that looks like a project root, else itself."""
    real = Path(os.path.realpath(start))
    return next((folder for folder in (real, *real.parents) if is_project_root(folder)), real)


def is_project_root(folder: Path) -> bool:
    return any(os.path.lexists(folder / mark) for mark in _ROOT_MARKERS)


def scan_project(root: Path) -> ProjectFiles:
    """Scan a project. Never raises for its contents."""
    real = os.path.realpath(root)
    scan = _ProjectScan()
    try:
        with _open_descriptor(real, None) as folder:
            if not _has_project_folder(folder):
                return ProjectFiles(real)
            scan.check(os.fstat(folder), real)
            scan.walk(folder, PROJECT_FOLDER, 1)
    except _ScanError as refused:
        return ProjectFiles(real, tuple(scan.files), str(refused))
    except OSError as error:
        return ProjectFiles(real, tuple(scan.files), f"it cannot be read: {error.strerror or error}")
    return ProjectFiles(real, tuple(sorted(scan.files, key=lambda file: file.path)))


class _ProjectScan:
    def __init__(self) -> None:
        self.files: list[ProjectFile] = []
        self._bytes = 0

    def walk(self, parent: int, path: str, depth: int) -> None:
        """Everything under a folder, by descriptors: what is swapped while somebody looks is not followed."""
        if depth > MAX_DEPTH:
            raise _ScanError(f"{path} is nested more than {MAX_DEPTH} deep")
        name = os.path.basename(path)
        with _open_descriptor(name, parent, path) as folder:
            found = os.fstat(folder)
            self.check(found, path)
            if not stat.S_ISDIR(found.st_mode):
                raise _ScanError(f"{path} is not a folder")
            for entry in sorted(_list_names(folder, path)):
                self._scan_entry(folder, f"{path}/{entry}", depth)

    def check(self, found: os.stat_result, path: str) -> None:
        if found.st_mode & stat.S_IWOTH:
            raise _ScanError(f"everybody may change {path}; take that right away with chmod o-w")

    def _scan_entry(self, folder: int, path: str, depth: int) -> None:
        name = os.path.basename(path)
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            self.walk(folder, path, depth + 1)
        elif stat.S_ISREG(mode):
            self._scan_file(folder, name, path)
        else:
            kind = "a link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
            raise _ScanError(f"{path} is {kind}; put the file itself there")

    def _scan_file(self, folder: int, name: str, path: str) -> None:
        with _open_descriptor(name, folder, path) as descriptor, open(descriptor, "rb", closefd=False) as file:
            found = os.fstat(descriptor)
            self.check(found, path)
            if not stat.S_ISREG(found.st_mode):
                raise _ScanError(f"{path} was swapped while it was looked at")
            content = file.read(MAX_TOTAL_BYTES - self._bytes + 1)
        self._bytes += len(content)
        if self._bytes > MAX_TOTAL_BYTES or len(self.files) >= MAX_FILES:
            raise _ScanError(f"{PROJECT_FOLDER} has more than {MAX_FILES:,} files or {MAX_TOTAL_BYTES:,} bytes")
        self.files.append(ProjectFile(path, len(content), sha256(content).hexdigest()))


@contextmanager
def _open_descriptor(name: str, folder: int | None, path: str = "") -> Generator[int]:
    try:
        descriptor = os.open(name, _OPEN_FLAGS, dir_fd=folder)
    except OSError as error:
        raise _ScanError(f"{path or name} cannot be read: {error.strerror or error}") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _list_names(folder: int, path: str) -> list[str]:
    names = os.listdir(folder)
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise _ScanError(f"{path} has a name that is not UTF-8") from None
    return names


def _has_project_folder(folder: int) -> bool:
    try:
        os.stat(PROJECT_FOLDER, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
