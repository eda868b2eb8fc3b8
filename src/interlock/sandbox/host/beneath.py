"""Opens a path beneath a folder, whatever links are on the way and however they change meanwhile.

There are two ways, and the same tests hold for both. The kernel's `openat2` with `RESOLVE_BENEATH` refuses to leave the
folder while it resolves. Where that is missing, or a filter forbids it, the walk opens one component after the other,
each from the descriptor of the one before and never through a link: a link is read, and its target walked in the same
way. Neither looks at a path first and opens it afterwards, so there is no moment between the two.

What leads outside is EXDEV, in both ways. So is every absolute link, even one that leads back inside: where it leads
depends on what stands above the folder, and the folder is all that we hold.
"""

import ctypes
import os
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from errno import EAGAIN, EINTR, EINVAL, ELOOP, EMLINK, ENAMETOOLONG, ENOENT, ENOTDIR, EXDEV
from functools import cache
from stat import S_ISLNK
from typing import NamedTuple, TypeAlias

from .descriptors import closing_fd

#: For looking at a file without opening it. Where that does not exist, opening must at least not wait.
PATH_ONLY: int = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
_FOLDER = PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_O_PATH: int = getattr(os, "O_PATH", 0)
_LINK_ERRNOS = frozenset({ELOOP, EMLINK, ENOTDIR})

#: As the kernel has them.
_MAX_PATH_BYTES = 4_095
_MAX_LINKS = 40
#: The walk holds a descriptor for each.
_MAX_FOLDERS = 256

_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_MAX_TRIES = 32
_DELETED = " (deleted)"


class OpenedPath(NamedTuple):
    """An open descriptor, and its real path."""

    fd: int
    #: Its real path from the folder, with no link in it; "." for the folder itself.
    relative: str


PathOpener: TypeAlias = Callable[[int, str, int, int], OpenedPath]


def open_real_path(root_fd: int, path: str, flags: int, mode: int = 0) -> OpenedPath:
    """Open `path` from the folder `root_fd`, or raise OSError: EXDEV when it leads outside."""
    opener = open_real_path_by_kernel if has_openat2() and has_fd_links() else open_real_path_by_walk
    return opener(root_fd, path, flags, mode)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def has_openat2() -> bool:
    """Return True if the kernel supports `openat2`. Tried once: an old kernel returns ENOSYS, a filter may return
    EPERM.
    """
    if sys.platform != "linux":
        return False
    with suppress(OSError), closing_fd(os.open("/", _FOLDER)) as root:
        os.close(openat2_beneath(root, ".", _FOLDER))
        return True
    return False


@cache
def has_fd_links() -> bool:
    """Return True if `/proc/self/fd` exists."""
    return os.path.isdir("/proc/self/fd")


def openat2_beneath(root_fd: int, path: str, flags: int, mode: int = 0) -> int:
    """Open a path below a folder with the system call `openat2`."""
    how = _OpenHow(flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    for _ in range(_MAX_TRIES):
        fd = _libc().syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(root_fd),
            ctypes.c_char_p(_encode_path(path)),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if fd >= 0:
            return fd
        error = ctypes.get_errno()
        if error not in (EAGAIN, EINTR):
            raise _make_os_error(error, path)
    # Something is renamed all the time, and the kernel cannot know where `..` leads. The walk can.
    return walk_beneath(root_fd, path, flags, mode)


def open_real_path_by_kernel(root_fd: int, path: str, flags: int, mode: int = 0) -> OpenedPath:
    """Open a path below a folder with `openat2`. Return it with its real path."""
    fd = openat2_beneath(root_fd, path, flags, mode)
    try:
        return OpenedPath(fd, find_real_path(root_fd, fd))
    except BaseException:
        os.close(fd)
        raise


def find_real_path(root_fd: int, fd: int) -> str:
    """Return the current path of an open file, relative to the folder. Raise EXDEV when it was moved out."""
    root, place = os.readlink(f"/proc/self/fd/{root_fd}"), os.readlink(f"/proc/self/fd/{fd}")
    if place.endswith(_DELETED) and os.fstat(fd).st_nlink == 0:
        place = place.removesuffix(_DELETED)
    if place == root:
        return "."
    if not place.startswith(root.rstrip("/") + "/"):
        raise _make_os_error(EXDEV, place)
    return place[len(root.rstrip("/")) + 1 :]


def walk_beneath(root_fd: int, path: str, flags: int, mode: int = 0) -> int:
    """Open a path below a folder, one component after the other."""
    return open_real_path_by_walk(root_fd, path, flags, mode).fd


def open_real_path_by_walk(root_fd: int, path: str, flags: int, mode: int = 0) -> OpenedPath:
    """Open a path below a folder component by component. Return it with its real path."""
    _encode_path(path)
    walk = _PathWalk(root_fd, path)
    try:
        return walk.open(flags | os.O_CLOEXEC, mode)
    finally:
        walk.close()


class _PathWalk:
    """The folders from the root to where we are, all open: going up is taking the one before, not asking for `..`."""

    def __init__(self, root_fd: int, path: str) -> None:
        self._path = path
        self._root_fd = root_fd
        self._folders: list[int] = []
        self._names: list[str] = []
        self._links = 0
        self._pending = self._split_components(path)

    def close(self) -> None:
        for folder in self._folders:
            os.close(folder)

    def open(self, flags: int, mode: int) -> OpenedPath:
        while self._pending:
            name = self._pending.popleft()
            if name == "..":
                self._go_up()
            elif name == ".":
                continue
            elif self._pending:
                self._enter(name)
            elif (fd := self._open_last(name, flags, mode)) is not None:
                return OpenedPath(fd, "/".join((*self._names, name)))
        return OpenedPath(os.open(".", flags, mode, dir_fd=self._current_fd), "/".join(self._names) or ".")

    @property
    def _current_fd(self) -> int:
        return self._folders[-1] if self._folders else self._root_fd

    def _go_up(self) -> None:
        if not self._folders:
            raise _make_os_error(EXDEV, self._path)
        os.close(self._folders.pop())
        self._names.pop()

    def _enter(self, name: str) -> None:
        if len(self._folders) >= _MAX_FOLDERS:
            raise _make_os_error(ENAMETOOLONG, self._path)
        try:
            self._folders.append(os.open(name, _FOLDER, dir_fd=self._current_fd))
            self._names.append(name)
        except OSError as error:
            self._follow_link(name, error)

    def _open_last(self, name: str, flags: int, mode: int) -> int | None:
        """Open the last component. Return None if it is a link, whose target is then walked."""
        try:
            fd = os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=self._current_fd)
        except OSError as error:
            if flags & os.O_NOFOLLOW:
                raise
            return self._follow_link(name, error)
        # Looking at a link does not fail: it gives the link.
        if flags & _O_PATH and not flags & os.O_NOFOLLOW and S_ISLNK(os.fstat(fd).st_mode):
            os.close(fd)
            return self._follow_link(name, _make_os_error(ELOOP, self._path))
        return fd

    def _follow_link(self, name: str, error: OSError) -> None:
        if error.errno not in _LINK_ERRNOS:
            raise error
        try:
            target = os.readlink(name, dir_fd=self._current_fd)
        except OSError as not_a_link:
            raise (error if not_a_link.errno == EINVAL else not_a_link) from None
        self._links += 1
        if self._links > _MAX_LINKS:
            raise _make_os_error(ELOOP, self._path)
        self._pending.extendleft(reversed(self._split_components(target)))

    def _split_components(self, path: str) -> deque[str]:
        """Split a path. A slash at the end stays as `.`: what precedes it must be a folder."""
        if path.startswith("/"):
            raise _make_os_error(EXDEV, self._path)
        return deque(name or "." for name in path.split("/"))


def _encode_path(path: str) -> bytes:
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError("a path holds no NUL")
    if not encoded or len(encoded) > _MAX_PATH_BYTES:
        raise _make_os_error(ENAMETOOLONG if encoded else ENOENT, path)
    return encoded


def _make_os_error(error: int, path: str) -> OSError:
    return OSError(error, os.strerror(error), path)
