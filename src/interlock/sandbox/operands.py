"""The files that a call names, held fast by their digests, so that an approval is for these contents and no others."""

import os
from collections.abc import Iterable
from hashlib import sha256
from os.path import expanduser, join
from stat import S_ISDIR, S_ISREG

from ..domain.payload import FileOperand

_MAX_FILES = 64
#: Of all files of one call together: they are read while a person waits to be asked.
_MAX_BYTES = 32 << 20
_CHUNK_BYTES = 1 << 20


def bind_files(paths: Iterable[str], cwd: str) -> tuple[FileOperand, ...]:
    """One operand per path, sorted. What is no file, or too large to read, says why it could not be bound."""
    budget = _Budget(_MAX_BYTES)
    named = sorted(set(paths))
    bound = [_bind(path, cwd, budget) for path in named[:_MAX_FILES]]
    return (*bound, *(FileOperand(path, unbound=f"one of more than {_MAX_FILES}") for path in named[_MAX_FILES:]))


class _Budget:
    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes


def _bind(path: str, cwd: str, budget: _Budget) -> FileOperand:
    try:
        # Not blocking: a pipe that nobody writes to must not hold us.
        opened = os.open(join(cwd, expanduser(path)), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return FileOperand(path)
    except (OSError, ValueError) as error:
        return FileOperand(path, unbound=f"it cannot be read ({type(error).__name__})")
    try:
        return _digest(path, opened, budget)
    except OSError as error:
        return FileOperand(path, unbound=f"it cannot be read ({type(error).__name__})")
    finally:
        os.close(opened)


def _digest(path: str, opened: int, budget: _Budget) -> FileOperand:
    status = os.fstat(opened)
    if S_ISDIR(status.st_mode):
        return FileOperand(path, unbound="a folder")
    if not S_ISREG(status.st_mode):
        return FileOperand(path, unbound="not a plain file")
    if status.st_size > budget.left_bytes:
        return FileOperand(path, unbound=f"with the files before it over {_MAX_BYTES >> 20} MiB")
    digest = sha256()
    while chunk := os.read(opened, min(_CHUNK_BYTES, budget.left_bytes + 1)):
        budget.left_bytes -= len(chunk)
        if budget.left_bytes < 0:
            budget.left_bytes = 0
            return FileOperand(path, unbound=f"with the files before it over {_MAX_BYTES >> 20} MiB")
        digest.update(chunk)
    return FileOperand(path, digest.hexdigest())
