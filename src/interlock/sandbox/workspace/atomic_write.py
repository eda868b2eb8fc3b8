"""Atomic file replacement in an open folder: the old content or the new, never a part of either, also after a crash.

The new content is written to a new file in the same folder and flushed; then it takes the name over. So what
has the name is never written to: a hard link of it elsewhere keeps its content, and a link that is created there at
the last moment is itself replaced. Whatever fails before that leaves the folder as it was.
"""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from errno import EACCES, ELOOP, EMLINK, ENOENT, ENOTDIR, ENXIO
from secrets import token_hex
from stat import S_ISREG

from ..host.descriptors import closing_fd, write_all
from .refusals import make_refusal

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Each is held open until the file is in its place.
_MAX_NEW_FOLDERS = 64
#: Rights that belong to a content, and not to a name: who changes the content loses them, as with a plain write.
_LOST_WITH_CONTENT = frozenset({"security.capability", "security.ima", "security.evm"})
_KEPT_MODE = 0o777
_SECOND_NS = 1_000_000_000


@contextmanager
def create_folders(base: int, names: Sequence[str], path: str) -> Generator[int]:
    """Create the folders, each in the one before, and yield the last. New ones are removed when the block fails."""
    if len(names) > _MAX_NEW_FOLDERS:
        raise make_refusal(path, "malformed", f"it needs more than {_MAX_NEW_FOLDERS} new folders")
    with ExitStack() as opened, ExitStack() as undo:
        here = base
        for name in names:
            if _make_folder(here, name):
                undo.callback(_remove_folder, here, name)
            here = _open_folder(here, name, path)
            opened.callback(os.close, here)
        yield here
        undo.pop_all()


def replace_in_folder(
    folder: int, name: str, content: bytes, before_replace: Callable[[int | None], None], path: str
) -> tuple[os.stat_result, bool]:
    """Give the name to the new content. `before_replace` gets what has the name now, right before, and may raise to
    stop it.

    The result is the new file's status, and whether there was none before.
    """
    temporary = f".interlock-{token_hex(8)}.tmp"
    with (
        _open_present(folder, name, path) as old,
        closing_fd(os.open(temporary, _NEW, 0o666 if old is None else 0o600, dir_fd=folder)) as new,
    ):
        try:
            write_all(new, content)
            if old is not None:
                copy_owner(new, old)
                os.fchmod(new, os.fstat(old).st_mode & _KEPT_MODE)
                copy_attributes(new, old)
                _advance_mtime(new, old)
            os.fsync(new)
            with _open_present(folder, name, path) as now:
                before_replace(now)
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            _sync_folder(folder)
            return os.fstat(new), old is None
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


@contextmanager
def _open_present(folder: int, name: str, path: str) -> Generator[int | None]:
    """Open the present file for reading. Refuse links and anything but a regular file."""
    try:
        present = _open_if_exists(folder, name)
    except OSError as error:
        if error.errno in (ELOOP, EMLINK):
            raise make_refusal(path, "link") from None
        if error.errno == ENXIO:
            raise make_refusal(path, "not_a_file", "it is a socket or a device") from None
        raise
    if present is None:
        yield None
        return
    with closing_fd(present):
        if not S_ISREG(os.fstat(present).st_mode):
            raise make_refusal(path, "not_a_file")
        # Taking the name over needs no right to the file itself, but who made it read-only meant it.
        if not os.access(name, os.W_OK, dir_fd=folder, follow_symlinks=False):
            raise PermissionError(EACCES, os.strerror(EACCES), path)
        yield present


def _open_if_exists(folder: int, name: str) -> int | None:
    try:
        return os.open(name, _READ, dir_fd=folder)
    except FileNotFoundError:
        return None


def copy_owner(new: int, old: int) -> None:
    """Give a new file the owner of the old one, or at least its group, as far as permitted."""
    status, own = os.fstat(old), os.fstat(new)
    if (status.st_uid, status.st_gid) != (own.st_uid, own.st_gid):
        for owner in (status.st_uid, -1):
            with suppress(OSError):
                os.fchown(new, owner, status.st_gid)
                break


def copy_attributes(new: int, old: int, is_copied: Callable[[str], bool] = lambda name: True) -> None:
    """Give a new file the attributes of the old one that are not bound to its content, as far as permitted."""
    with suppress(OSError, AttributeError):  # not every system has them
        for name in os.listxattr(old):
            if name not in _LOST_WITH_CONTENT and is_copied(name):
                with suppress(OSError):
                    os.setxattr(new, name, os.getxattr(old, name))


def _advance_mtime(new: int, old: int) -> None:
    """Advance the time by a second: Python and others detect a change by size and second only."""
    was, now = os.fstat(old), os.fstat(new)
    if was.st_size == now.st_size and now.st_mtime_ns // _SECOND_NS <= was.st_mtime_ns // _SECOND_NS:
        later = (was.st_mtime_ns // _SECOND_NS + 1) * _SECOND_NS
        os.utime(new, ns=(now.st_atime_ns, later))


def _make_folder(parent: int, name: str) -> bool:
    try:
        os.mkdir(name, dir_fd=parent)
    except FileExistsError:
        return False
    _sync_folder(parent)
    return True


def _open_folder(parent: int, name: str, path: str) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno in (ELOOP, EMLINK, ENOTDIR, ENOENT):
            raise make_refusal(path, "link", "a folder of it was replaced meanwhile") from None
        raise


def _remove_folder(parent: int, name: str) -> None:
    with suppress(OSError):
        os.rmdir(name, dir_fd=parent)


def _sync_folder(folder: int) -> None:
    """Sync the folder on a best-effort basis: some file systems cannot."""
    with suppress(OSError):
        os.fsync(folder)
