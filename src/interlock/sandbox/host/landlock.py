"""Landlock by system call: a ruleset that says what may be opened, for a process to restrict itself with.

A ruleset is a file descriptor. It is built here, where a mistake is an exception and nothing has started yet; the
process that is to be restricted inherits it, and restricts itself (see `supervisor.py`). What no rule allows is denied.
A rule is bound to a folder or file itself, not to its name, and holds for everything below. Rules only ever add: below
an allowed folder nothing can be taken away again (see `commands/landlock.py`).
"""

import ctypes
import os
import platform
import stat
from contextlib import suppress
from functools import cache
from typing import Self

# The same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE = 444, 445
_VERSION_FLAG = 1
_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = (1 << bit for bit in range(4))
REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(13, 16))
#: The first version has the rights 0 to 12; what later versions added.
_FIRST_ABI_RIGHTS = (1 << 13) - 1
_ADDED_RIGHTS = {2: REFER, 3: TRUNCATE, 5: IOCTL_DEV}
#: Rights that a file can have; the others are about entries of a folder.
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

READ_RIGHTS = EXECUTE | READ_FILE | READ_DIR
#: All there are: the ruleset takes those that this kernel has.
WRITE_RIGHTS = _FIRST_ABI_RIGHTS | REFER | TRUNCATE | IOCTL_DEV
#: Binding and connecting TCP sockets, since version 4.
_NETWORK = 3
#: Abstract Unix sockets and signals of processes that are not restricted by the same ruleset, since version 6.
_SCOPE = 3
#: Older ones let any file be emptied that the user could write.
MIN_ABI = 3
MIN_SCOPED_ABI = 6


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scope", ctypes.c_uint64))


class _PathBeneathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("fd", ctypes.c_int32))


@cache
def get_abi() -> int:
    """Return the version of Landlock that this kernel has; 0: none, or it is switched off."""
    if platform.system() != "Linux":
        return 0  # the number is another call there
    with suppress(OSError):
        return _syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    return 0


class Ruleset:
    """A Landlock ruleset. Raises `OSError` when the kernel refuses."""

    def __init__(self, *, network: bool) -> None:
        version = get_abi()
        self._handled = _FIRST_ABI_RIGHTS
        for since, right in _ADDED_RIGHTS.items():
            self._handled |= right if version >= since else 0
        attributes = _RulesetAttributes(self._handled, 0 if network else _NETWORK, _SCOPE)
        # Older kernels know only the first fields.
        size = 8 if version < 4 else 16 if version < MIN_SCOPED_ABI else 24  # noqa: PLR2004 - as in the kernel's table
        self.fd = _syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))

    def allow(self, fd: int, rights: int) -> None:
        """Allow access to the open folder or file and everything below it."""
        rights &= self._handled if stat.S_ISDIR(os.fstat(fd).st_mode) else self._handled & _FILE_RIGHTS
        if rights:
            beneath = _PathBeneathRule(rights, fd)
            _syscall(_ADD_RULE, ctypes.c_int(self.fd), ctypes.c_int(_PATH_BENEATH), ctypes.byref(beneath), _NO_FLAGS)

    def close(self) -> None:
        """Close the descriptor of the ruleset."""
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_NO_FLAGS = ctypes.c_uint32(0)


def _syscall(number: int, *arguments: object) -> int:
    result: int = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), "Landlock")
    return result
