"""Trusted projects: nothing from a project directory is loaded before a person trusted it.

Trust is in a directory by its real path, and in the files that it brings as they were: each by its digest. When one of
them changes, is added or removed, the project is not trusted until a person confirms it again. A project without files
needs no trust. The list is one file in the state folder, readable by its owner only, replaced as a whole.

    match check_trust(find_project(Path.cwd(), user_paths), user_paths):
        case TrustedProject() as project: project.content(".interlock/config.toml")
        case UntrustedProject() as project: project.reason

The files of a project are everything under its `.interlock` folder, and nothing else. Reading is harmless: files are
counted and digested, never interpreted. Links are not followed and reads do not block. A project whose files cannot be
read reliably, or that everyone may change, cannot be trusted; `refusal` says why.
"""

import os
import stat
from collections.abc import Container, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import time_ns
from typing import Literal

import msgspec

from ...domain.errors import ConfigurationError
from ...policy.files.atomic_write import lock_folder, replace_file
from ...policy.files.source import read_policy_file
from .user_paths import UserPaths, make_private_folder

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


def find_project_root(start: Path, known: Container[str] = ()) -> Path:
    """Return the project of a folder: the nearest one at or above it that looks like a project root or is `known`, else
    itself.
    """
    real = Path(os.path.realpath(start))
    for folder in (real, *real.parents):
        if str(folder) in known or any(os.path.lexists(folder / mark) for mark in _ROOT_MARKERS):
            return folder
    return real


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
        """List everything in a folder by descriptors, so that what is swapped meanwhile is not followed."""
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


_VERSION = 1
#: A project has at most a thousand files, so these are very many projects.
_MAX_BYTES = 64 << 20


class FileChange(msgspec.Struct, frozen=True):
    """A file of a project that changed."""

    path: str
    what: Literal["new", "changed", "gone"]


class TrustedProject(msgspec.Struct, frozen=True):
    """A project whose files may be loaded."""

    root: str
    #: Everything that may be loaded. Empty for a project that brings nothing.
    files: tuple[ProjectFile, ...] = ()

    def path(self, name: str) -> str:
        """Return the path of a file, or empty when the project has none of that name."""
        return os.path.join(self.root, name) if any(file.path == name for file in self.files) else ""

    def content(self, name: str) -> bytes | None:
        """Return the bytes that were trusted; None when there is no such file."""
        known = next((file for file in self.files if file.path == name), None)
        if known is None:
            return None
        content = read_policy_file(os.path.join(self.root, name))
        if sha256(content).hexdigest() != known.sha256:
            raise ConfigurationError(
                f"{name} of {self.root} was changed a moment ago. Nothing of it was used; try again."
            )
        return content


class UntrustedProject(msgspec.Struct, frozen=True, kw_only=True):
    """A project whose files may not be loaded, and why."""

    root: str
    #: `new`: not asked yet. `changed`: not what was trusted. `refused`: it cannot be trusted as it is.
    kind: Literal["new", "changed", "refused"]
    reason: str
    files: tuple[ProjectFile, ...] = ()
    changes: tuple[FileChange, ...] = ()
    #: They applied before, or that is unknown. They can only tighten, so continuing without them would loosen.
    counted_before: bool = False

    @property
    def notice(self) -> str:
        """One line for commands that continue without the files."""
        hint = "" if self.kind == "refused" else " `interlock trust` shows them."
        return f"The files that {self.root} brings were ignored: {self.reason}.{hint}"

    @property
    def refusal(self) -> str:
        """The message for commands that may not continue without the files."""
        hint = "fix that first" if self.kind == "refused" else "`interlock trust` shows them and trusts them again"
        return (
            f"{self.root} was trusted, and its files cannot be used now: {self.reason}. Its rules may be stricter than "
            f"yours, so nothing was started without them: {hint}. `interlock trust revoke` continues without them."
        )


class TrustRecord(msgspec.Struct, frozen=True):
    """What was trusted: digests by path, and the time in nanoseconds since 1970."""

    at: int
    files: Mapping[str, str]


class _TrustList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int = _VERSION
    projects: dict[str, TrustRecord] = {}


def check_trust(root: Path, user_paths: UserPaths) -> TrustedProject | UntrustedProject:
    """Return what may be loaded from a project. Never asks, and never raises for its contents."""
    found = scan_project(root)
    untrusted = partial(UntrustedProject, root=found.root, files=found.files)
    try:
        known = read_trust_records(user_paths).get(found.root)
    except ConfigurationError as error:
        if not found.files and not found.refusal:
            return TrustedProject(found.root)
        return untrusted(kind="refused", reason=str(error).rstrip("."), counted_before=True)
    if found.refusal:
        return untrusted(kind="refused", reason=found.refusal, counted_before=known is not None)
    if known is None and found.files:
        return untrusted(kind="new", reason="this project is not trusted yet")
    if known is not None and (changes := _diff_files(known.files, found.files)):
        kinds = [change.what for change in changes]
        summary = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        reason = f"they are not what was trusted ({summary})"
        return untrusted(kind="changed", reason=reason, changes=changes, counted_before=True)
    return TrustedProject(found.root, found.files)


def find_project(start: Path, user_paths: UserPaths) -> Path:
    """Return the project of a folder. A trusted one stays a project when all its files are gone."""
    try:
        return find_project_root(start, read_trust_records(user_paths))
    except ConfigurationError:
        return find_project_root(start)


def trust_project(project: UntrustedProject, user_paths: UserPaths) -> TrustedProject:
    """Trust the files as they were when `project` was scanned."""
    if project.kind == "refused":
        raise ConfigurationError(f"{project.root} cannot be trusted: {project.reason}.")
    digests = {file.path: file.sha256 for file in project.files}
    _update_trust_list(user_paths, project.root, TrustRecord(time_ns(), digests))
    return TrustedProject(project.root, project.files)


def revoke_trust(root: Path, user_paths: UserPaths) -> bool:
    """Revoke the trust in a directory, which need not exist. Return False when it was not trusted."""
    real = os.path.realpath(root)
    if real not in read_trust_records(user_paths):
        return False
    _update_trust_list(user_paths, real, None)
    return True


def read_trust_records(user_paths: UserPaths) -> Mapping[str, TrustRecord]:
    """Return the records by real path. Raise `ConfigurationError` when the list is not trustworthy."""
    return {} if user_paths.state is None else _read_trust_list(user_paths.trust_file).projects


def _update_trust_list(user_paths: UserPaths, root: str, project: TrustRecord | None) -> None:
    path = user_paths.trust_file
    make_private_folder(path.parent)
    with lock_folder(str(path)):
        projects = {name: kept for name, kept in _read_trust_list(path).projects.items() if name != root}
        if project is not None:
            projects[root] = project
        content = msgspec.json.format(msgspec.json.encode(_TrustList(projects=projects)), indent=1)
        if len(content) > _MAX_BYTES:
            raise ConfigurationError("Too many projects are trusted; revoke some first.")
        replace_file(str(path), content)


def _read_trust_list(path: Path) -> _TrustList:
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return _TrustList()
    except OSError as error:
        raise _trust_list_error(path, error.strerror or str(error)) from None
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise _trust_list_error(path, "it is not a file for you alone")
    try:
        with open(path, "rb") as file:
            listed = msgspec.json.decode(file.read(_MAX_BYTES), type=_TrustList)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _trust_list_error(path, "this is not what was written") from None
    if listed.version != _VERSION:
        raise _trust_list_error(path, f"it has version {listed.version}, not {_VERSION}")
    return listed


def _trust_list_error(path: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"the list of trusted projects, {path}, cannot be used: {reason}. Move the file away to start over."
    )


def _diff_files(known: Mapping[str, str], files: tuple[ProjectFile, ...]) -> tuple[FileChange, ...]:
    now = {file.path: file.sha256 for file in files}
    return (
        *(FileChange(path, "new") for path in now if path not in known),
        *(FileChange(path, "changed") for path in now if path in known and known[path] != now[path]),
        *(FileChange(path, "gone") for path in known if path not in now),
    )
