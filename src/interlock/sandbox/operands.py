"""The files that a call names, held fast by their digests, so that an approval is for these contents and no others."""

import os
from collections.abc import Iterable
from hashlib import sha256
from os.path import expanduser, join
from stat import S_ISDIR, S_ISREG

from ..domain.payload import FileOperand

_MAX_FILE_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20


def bind_files(paths: Iterable[str], cwd: str) -> tuple[FileOperand, ...]:
    """One operand per path, sorted. What is no file, or too large to read, says why it could not be bound."""
    return tuple(_bind(path, cwd) for path in sorted(set(paths)))


def _bind(path: str, cwd: str) -> FileOperand:
    try:
        # Not blocking: a pipe that nobody writes to must not hold us.
        opened = os.open(join(cwd, expanduser(path)), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return FileOperand(path)
    except (OSError, ValueError) as error:
        return FileOperand(path, unbound=f"it cannot be read ({type(error).__name__})")
    try:
        return _digest(path, opened)
    except OSError as error:
        return FileOperand(path, unbound=f"it cannot be read ({type(error).__name__})")
    finally:
        os.close(opened)


def _digest(path: str, opened: int) -> FileOperand:
    status = os.fstat(opened)
    if S_ISDIR(status.st_mode):
        return FileOperand(path, unbound="a folder")
    if not S_ISREG(status.st_mode):
        return FileOperand(path, unbound="not a plain file")
    if status.st_size > _MAX_FILE_BYTES:
        return FileOperand(path, unbound=f"over {_MAX_FILE_BYTES >> 20} MiB")
    digest, left = sha256(), _MAX_FILE_BYTES
    while chunk := os.read(opened, min(_CHUNK_BYTES, left + 1)):
        left -= len(chunk)
        if left < 0:
            return FileOperand(path, unbound=f"over {_MAX_FILE_BYTES >> 20} MiB")
        digest.update(chunk)
    return FileOperand(path, digest.hexdigest())
