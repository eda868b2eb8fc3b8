"""Overlays: the private folders that take what a command changes, and reading them into a change set.

The kernel keeps in `upper` what differs from the workspace: new and changed files as a whole, deleted names as
whiteouts (a device 0/0, or an empty file with an attribute), and folders that hide what was below them as opaque. Only
`upper` is walked, and of the workspace only what it names: the cost is that of the change, not that of the workspace.

Everything in `upper` was written by a command. It cannot make whiteouts or opaque folders itself: the kernel escapes
or refuses its attributes of that name. It is dead when its overlay is read.
"""

import fcntl
import os
import stat
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import NamedTuple, Self

import msgspec

from ..sandbox.host.descriptors import closing_fd
from .change_set import ABSENT, Change, ChangeSet, FileState, SkippedFile
from .contents import ChangeLimits, ContentStore
from .file_access import (
    MAX_DEPTH,
    MAX_PATH_BYTES,
    UnsupportedFileError,
    hash_content,
    open_folder,
    read_path,
    read_state,
    remove_tree,
)

_OPAQUE, _WHITEOUT, _ESCAPED = "user.overlay.opaque", "user.overlay.whiteout", "user.overlay.overlay."
#: A folder whose content is that of another one. Never made with the options that are used.
_REDIRECT = "user.overlay.redirect"
_MAX_SKIPPED = 1_000
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID


class OverlayFolders:
    """The folders of one overlay. They are removed by `close`, or at the end of a `with` block."""

    def __init__(self, overlays: int, path: str, name: str, mode: int) -> None:
        self._name = name
        self.upper = os.path.join(path, name, "upper")
        self.work = os.path.join(path, name, "work")
        os.mkdir(name, 0o700, dir_fd=overlays)
        # Held until it is removed: what no process holds was left behind by one that was killed.
        self._lock = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=overlays)
        self._overlays = os.dup(overlays)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.mkdir("upper", 0o700, dir_fd=self._lock)
            os.mkdir("work", 0o700, dir_fd=self._lock)
            os.setxattr(self.upper, "user.interlock", b"1")
            os.removexattr(self.upper, "user.interlock")
            # The command sees it as that of its workspace.
            os.chmod(self.upper, mode)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the folders. May be called more than once."""
        if self._lock >= 0:
            with suppress(OSError):
                remove_tree(self._overlays, self._name)
            os.close(self._lock)
            os.close(self._overlays)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Folders(NamedTuple):
    """One folder of the overlay, and the same folder of the workspace, both open."""

    upper: int
    #: -1: there is none.
    lower: int
    path: str
    depth: int
    #: What is below it is hidden: the names that `upper` does not have are deleted.
    is_opaque: bool
    #: Mode of the folder after the change.
    mode: int

    def join(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path else name


class OverlayReader:
    """Reads one overlay. Contents of the overlay are moved to the store, those of the workspace are copied."""

    def __init__(self, contents: ContentStore, limits: ChangeLimits) -> None:
        self._contents = contents
        self._is_kept = limits.is_kept
        self._limits = limits
        self._bytes_left = limits.max_total_bytes
        self._files_left = limits.max_files
        self._changes: list[Change] = []
        self._skipped: list[SkippedFile] = []
        self._skipped_count = 0
        #: Of files with more than one name, which share them: reading one name may change it.
        self._modes: dict[int, int] = {}

    def read(self, upper: int, mode: int, workspace: int) -> ChangeSet:
        """Return what the overlay changes in the workspace, both given as open folders.

        Args:
            mode: What the command made of the mode of the workspace itself.
        """
        was = stat.S_IMODE(os.fstat(workspace).st_mode)
        if mode != was:
            self._skip(".", f"the mode of the workspace itself is not changed (it is {was:o}, and would be {mode:o})")
        self._read_folder(_Folders(upper, workspace, "", 0, is_opaque=False, mode=was))
        if self._skipped_count > len(self._skipped):
            more = self._skipped_count - len(self._skipped)
            self._skipped.append(SkippedFile(path=".", reason=f"{more:,} more files were skipped"))
        return ChangeSet(
            changes=tuple(sorted(self._changes, key=lambda change: change.path)),
            skipped=tuple(sorted(self._skipped, key=lambda skipped: skipped.path)),
        )

    def read_path(self, workspace: int, path: str) -> FileState | None:
        """Return the state of a path of the workspace, and keep its content. None: it is of no known kind."""
        try:
            return read_path(workspace, path, self._keep_before)
        except UnsupportedFileError:
            return None

    def _skip(self, path: str, reason: str) -> None:
        self._skipped_count += 1
        if len(self._skipped) < _MAX_SKIPPED:
            self._skipped.append(SkippedFile(path=path, reason=reason))

    def _record(self, path: str, before: FileState, after: FileState) -> None:
        if not before.matches(after):
            self._changes.append(Change(path=path, before=before, after=after))

    def _read_folder(self, folders: _Folders) -> None:
        names = sorted(os.listdir(folders.upper))
        for name in names:
            path = folders.join(name)
            if len(os.fsencode(path)) > MAX_PATH_BYTES:
                self._skip(path[:200], "its path is too long")
                continue
            found = os.stat(name, dir_fd=folders.upper, follow_symlinks=False)
            try:
                if self._is_whiteout(folders.upper, name, found):
                    self._read_removed(folders.lower, name, path, folders.depth)
                elif stat.S_ISDIR(found.st_mode):
                    self._read_subfolder(folders, name, path, found)
                else:
                    self._read_file(folders, name, path, found)
            except UnsupportedFileError as error:
                self._skip(path, f"it is or was {error}")
            except OSError as error:
                self._skip(path, f"it could not be read ({error.strerror})")
        if folders.is_opaque and folders.lower >= 0:
            known = frozenset(names)
            for name in sorted(os.listdir(folders.lower)):
                if name not in known:
                    self._read_removed(folders.lower, name, folders.join(name), folders.depth)

    def _is_whiteout(self, folder: int, name: str, found: os.stat_result) -> bool:
        if stat.S_ISCHR(found.st_mode):
            return found.st_rdev == 0
        if not stat.S_ISREG(found.st_mode) or found.st_size:
            return False
        self._modes.setdefault(found.st_ino, stat.S_IMODE(found.st_mode))
        with _open_readable(folder, name, found) as opened:
            return _WHITEOUT in os.listxattr(opened)

    def _read_file(self, folders: _Folders, name: str, path: str, found: os.stat_result) -> None:
        if stat.S_ISREG(found.st_mode):
            if problem := self._find_limit(found.st_size):
                self._skip(path, problem)
                return
            # Counted before the content it replaces, of which a command knows only the size.
            self._bytes_left -= found.st_size
            self._files_left -= 1
            mode = self._modes.setdefault(found.st_ino, stat.S_IMODE(found.st_mode))
            with _open_readable(folders.upper, name, found) as opened:
                self._report_attributes(opened, path)
                after = _with_mode(read_state(folders.upper, name, hash_content), mode)
        else:
            after = read_state(folders.upper, name, hash_content)
        before = self._read_before(folders.lower, name, path)
        if after.kind == "file":
            after = self._drop_special_bits(path, before, after, 0)
            self._contents.adopt(folders.upper, name, after.digest)
        if before.kind == "folder" and not self._read_inner(folders.lower, name, path, folders.depth):
            self._skip(path, "a folder that could not be read as a whole would be replaced")
            return
        self._record(path, before, after)

    def _read_subfolder(self, folders: _Folders, name: str, path: str, found: os.stat_result) -> None:
        if folders.depth >= MAX_DEPTH:
            self._skip(path, f"it is deeper than {MAX_DEPTH} folders")
            return
        _loosen(folders.upper, name)
        with ExitStack() as stack:
            upper = stack.enter_context(open_folder(folders.upper, name))
            attributes = os.listxattr(upper)
            if _REDIRECT in attributes:
                raise OSError(0, "it was redirected")
            is_opaque = folders.is_opaque or (_OPAQUE in attributes and os.getxattr(upper, _OPAQUE) == b"y")
            self._report_attributes(upper, path)
            after = _with_mode(read_state(folders.upper, name, hash_content), stat.S_IMODE(found.st_mode))
            before = self._read_before(folders.lower, name, path)
            lower = -1
            if before.kind == "folder":
                lower = stack.enter_context(open_folder(folders.lower, name))
            after = self._drop_special_bits(path, before, after, folders.mode & stat.S_ISGID)
            self._record(path, before, after)
            self._read_folder(_Folders(upper, lower, path, folders.depth + 1, is_opaque=is_opaque, mode=after.mode))

    def _read_before(self, lower: int, name: str, path: str) -> FileState:
        if lower < 0:
            return ABSENT
        return read_state(lower, name, self._keep_before if self._is_kept(path) else _keep_nothing)

    def _keep_before(self, opened: int, found: os.stat_result) -> str:
        """Copy the content of an open file of the workspace; empty when it is too large."""
        if self._find_limit(found.st_size):
            return ""
        self._bytes_left -= found.st_size
        self._files_left -= 1
        return self._contents.add(opened)

    def _read_removed(self, lower: int, name: str, path: str, depth: int) -> bool:
        """Record the removal of a name with all that is in it. False: something in it is of no known kind."""
        try:
            before = self._read_before(lower, name, path)
            if before.kind == "folder" and not self._read_inner(lower, name, path, depth):
                self._skip(path, "it holds something that could not be read, so it is not removed")
                return False
        except (OSError, UnsupportedFileError) as error:
            self._skip(path, f"it is not removed: it could not be read ({error})")
            return False
        self._record(path, before, ABSENT)
        return True

    def _read_inner(self, lower: int, name: str, path: str, depth: int) -> bool:
        if depth >= MAX_DEPTH:
            return False
        with open_folder(lower, name) as folder:
            kept = [
                one
                for one in sorted(os.listdir(folder))
                if not self._read_removed(folder, one, f"{path}/{one}", depth + 1)
            ]
        return not kept

    def _find_limit(self, size: int) -> str:
        if size > self._limits.max_file_bytes:
            return f"it is larger than {self._limits.max_file_bytes:,} bytes"
        if size > self._bytes_left:
            return f"all changed files together are larger than {self._limits.max_total_bytes:,} bytes"
        return f"more than {self._limits.max_files:,} files were changed" if self._files_left <= 0 else ""

    def _report_attributes(self, opened: int, path: str) -> None:
        for name in os.listxattr(opened):
            if name.startswith(_ESCAPED):
                self._skip(path, f"its attribute user.overlay.{name.removeprefix(_ESCAPED)} is not kept")

    def _drop_special_bits(self, path: str, before: FileState, after: FileState, inherited: int) -> FileState:
        """Drop set-user-id and set-group-id where the same content or folder did not have them before."""
        is_same = before.kind == after.kind and before.digest == after.digest
        allowed = (before.mode if is_same else 0) | inherited
        gained = after.mode & _SPECIAL_BITS & ~allowed
        if gained:
            self._skip(path, f"it does not get the mode bits {gained:o} (set-user-id, set-group-id)")
        return _with_mode(after, after.mode & ~gained)


def _keep_nothing(opened: int, found: os.stat_result) -> str:
    return ""


def _with_mode(state: FileState, mode: int) -> FileState:
    return msgspec.structs.replace(state, mode=mode)


def _open_readable(folder: int, name: str, found: os.stat_result) -> AbstractContextManager[int]:
    """Open a file of an overlay, whatever mode the command gave it."""
    if not found.st_mode & stat.S_IRUSR:
        _loosen(folder, name)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return closing_fd(os.open(name, flags, dir_fd=folder))


def _loosen(folder: int, name: str) -> None:
    """Let us read a file or folder of an overlay. It is ours, and deleted afterwards."""
    with closing_fd(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)) as opened:
        os.chmod(f"/proc/self/fd/{opened}", 0o700)
