"""Reading, writing and removing single files of a folder that is held open: by name, never through a link."""

import ctypes
import hashlib
import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from errno import EEXIST, EINVAL, ENOSYS
from functools import cache
from typing import TypeAlias

from ..sandbox.host.descriptors import closing_fd, write_all
from ..sandbox.workspace.atomic_write import copy_attributes, copy_owner
from .change_set import ABSENT, FileState

#: Folders in folders that are read; each holds a descriptor.
MAX_DEPTH = 100
#: A path from the workspace on.
MAX_PATH_BYTES = 3_500
CHUNK_BYTES = 1 << 20
#: Files are flushed one by one up to this number, else together with all that waits for the file system.
MAX_SINGLE_SYNCS = 8

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHER_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_USER_PREFIX, _OVERLAY_PREFIX = "user.", "user.overlay."
_NO_REPLACE, _EXCHANGE = 1, 2

#: Reads an open file, and returns the digest of its content; empty: it was not read.
ContentReader: TypeAlias = Callable[[int, os.stat_result], str]


class UnsupportedFileError(Exception):
    """Something that is neither a file, a folder nor a link. The text says what it is."""


def read_state(folder: int, name: str, read_content: ContentReader) -> FileState:
    """Return the state of a name in an open folder. Raise `UnsupportedFileError` for pipes, sockets and devices."""
    found = lstat(folder, name)
    if found is None:
        return ABSENT
    if stat.S_ISLNK(found.st_mode):
        target = os.readlink(name, dir_fd=folder)
        digest = hashlib.sha256(os.fsencode(target)).hexdigest()
        return FileState(kind="link", digest=digest, target=target, mtime_ns=found.st_mtime_ns)
    if stat.S_ISDIR(found.st_mode):
        xattrs: dict[str, str] = {}
        with suppress(PermissionError), open_folder(folder, name) as opened:
            xattrs = read_xattrs(opened)
        mode = stat.S_IMODE(found.st_mode)
        return FileState(kind="folder", mode=mode, mtime_ns=found.st_mtime_ns, xattrs=xattrs)
    if not stat.S_ISREG(found.st_mode):
        raise UnsupportedFileError(_OTHER_KINDS.get(stat.S_IFMT(found.st_mode), "of an unknown kind"))
    try:
        opened = os.open(name, _READ, dir_fd=folder)
    except PermissionError:
        return _file_state(found, "", {})
    with closing_fd(opened):
        now = os.fstat(opened)
        if not stat.S_ISREG(now.st_mode):
            raise UnsupportedFileError("exchanged while it was read")
        return _file_state(now, read_content(opened, now), read_xattrs(opened))


def read_path(root: int, path: str, read_content: ContentReader) -> FileState:
    """Return the state of a path below an open folder; also absent where a folder of it is. Raise like `read_state`."""
    parent, _, name = path.rpartition("/")
    try:
        with open_folder(root, parent) as folder:
            return read_state(folder, name, read_content)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT


def _file_state(found: os.stat_result, digest: str, xattrs: dict[str, str]) -> FileState:
    return FileState(
        kind="file",
        mode=stat.S_IMODE(found.st_mode),
        size=found.st_size,
        digest=digest,
        mtime_ns=found.st_mtime_ns,
        xattrs=xattrs,
    )


def hash_content(file: int, status: os.stat_result) -> str:
    """Return the digest of an open file."""
    hashed = hashlib.sha256()
    for chunk in read_chunks(file):
        hashed.update(chunk)
    return hashed.hexdigest()


def read_chunks(file: int) -> Iterator[bytes]:
    """Yield the content of an open file from where it is."""
    while chunk := os.read(file, CHUNK_BYTES):
        yield chunk


def write_chunk(file: int, chunk: bytes) -> None:
    """Write a chunk to an open file; zeros become a hole. The caller sets the size at the end."""
    if len(chunk) == CHUNK_BYTES and not any(chunk[:64]) and chunk == bytes(CHUNK_BYTES):
        os.lseek(file, CHUNK_BYTES, os.SEEK_CUR)
        return
    write_all(file, chunk)


def read_xattrs(opened: int) -> dict[str, str]:
    """Return the attributes of an open file that belong to users. Those of overlays are left out."""
    if not hasattr(os, "listxattr"):
        return {}
    found: dict[str, str] = {}
    with suppress(OSError):
        for name in sorted(os.listxattr(opened)):
            if name.startswith(_USER_PREFIX) and not name.startswith(_OVERLAY_PREFIX):
                found[name] = os.getxattr(opened, name).hex()
    return found


@contextmanager
def open_folder(folder: int, path: str, path_only: bool = False) -> Generator[int]:
    """Open a folder below an open one, one name after the other and through no link. Raise `OSError`."""
    here = os.dup(folder)
    try:
        for name in filter(None, path.split("/")):
            below = os.open(name, _PATH_FOLDER if path_only else _FOLDER, dir_fd=here)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def set_metadata(opened: int, state: FileState) -> None:
    """Give an open file or folder the attributes, the mode and the time of a state."""
    present = read_xattrs(opened)
    for name in present.keys() - state.xattrs.keys():
        os.removexattr(opened, name)
    for name, value in state.xattrs.items():
        if present.get(name) != value:
            os.setxattr(opened, name, bytes.fromhex(value))
    os.fchmod(opened, state.mode)
    if state.mtime_ns:
        os.utime(opened, ns=(state.mtime_ns, state.mtime_ns))


def copy_ownership(new: int, old: int) -> None:
    """Give a new file the owner and the access lists of the one that it replaces, as far as permitted."""
    copy_owner(new, old)
    copy_attributes(new, old, lambda name: not name.startswith(_USER_PREFIX))


def remove_tree(folder: int, name: str) -> None:
    """Remove a folder with everything in it, however deep and whatever the modes. Missing: nothing is done.

    Folders in it are moved up beside it first, so that neither the stack nor the descriptors limit the depth.
    """
    waiting, moved = [name], 0
    while waiting:
        top = waiting.pop()
        try:
            with open_folder(folder, top, path_only=True) as opened:
                os.chmod(f"/proc/self/fd/{opened}", 0o700)
            with open_folder(folder, top) as opened:
                for entry in os.listdir(opened):
                    if stat.S_ISDIR(os.stat(entry, dir_fd=opened, follow_symlinks=False).st_mode):
                        moved += 1
                        with open_folder(opened, entry, path_only=True) as below:
                            os.chmod(f"/proc/self/fd/{below}", 0o700)
                        waiting.append(f"{name}.{moved}")
                        os.rename(entry, waiting[-1], src_dir_fd=opened, dst_dir_fd=folder)
                    else:
                        os.unlink(entry, dir_fd=opened)
            os.rmdir(top, dir_fd=folder)
        except FileNotFoundError:
            continue


def exchange(folder: int, one: str, other: str) -> bool:
    """Exchange two names of a folder in one step. False: the file system cannot; then nothing was done."""
    return _rename(folder, one, other, _EXCHANGE)


def rename_to_new(folder: int, old: str, new: str) -> None:
    """Rename within a folder. Raise `FileExistsError` when the new name is taken."""
    if _rename(folder, old, new, _NO_REPLACE):
        return
    if lstat(folder, new) is not None:
        raise FileExistsError(EEXIST, os.strerror(EEXIST), new)
    os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)


def _rename(folder: int, one: str, other: str, flag: int) -> bool:
    call = _renameat2()
    if call is None:
        return False
    if call(folder, os.fsencode(one), folder, os.fsencode(other), flag) == 0:
        return True
    error = ctypes.get_errno()
    if error in (EINVAL, ENOSYS):
        return False
    raise OSError(error, os.strerror(error), one)


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def lstat(folder: int, name: str) -> os.stat_result | None:
    """Return the status of a name in an open folder; None when it is missing."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def sync_filesystem(folder: int) -> None:
    """Write all that waits for the file system of a folder to its disk."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None or syncfs(folder) != 0:
        os.sync()
