"""File operands: the files that a call names, with their digests, so that an approval is for exactly these contents."""

import os
from collections.abc import Iterable
from hashlib import sha256
from os.path import expanduser, join
from stat import S_ISDIR, S_ISREG

from ...domain.payload import ExecutionEnvironment, FileOperand
from ..host.beneath import has_fd_links
from ..host.descriptors import closing_fd

_MAX_FILES = 64
#: Of all files of one call together: they are read while a person waits to be asked.
_MAX_BYTES = 32 << 20
_CHUNK_BYTES = 1 << 20


def bind_files(paths: Iterable[str], cwd: str) -> tuple[FileOperand, ...]:
    """Return one operand per path, sorted. What is no file, or too large, says why it could not be bound."""
    budget = _Budget(_MAX_BYTES)
    named = sorted(set(paths))
    bound = [_bind_file(path, cwd, budget) for path in named[:_MAX_FILES]]
    return (*bound, *(FileOperand(path, unbound=f"one of more than {_MAX_FILES}") for path in named[_MAX_FILES:]))


def describe_change(expected: ExecutionEnvironment) -> str:
    """Return which file differs from what was approved; empty when none does."""
    now = bind_files([file.path for file in expected.files], expected.cwd)
    changed = [was.path for was, file in zip(expected.files, now, strict=True) if was != file]
    return f"{changed[0]} changed after a person approved the call" if changed else ""


class _Budget:
    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes


def _bind_file(path: str, cwd: str, budget: _Budget) -> FileOperand:
    try:
        opened = _open_operand(join(cwd, expanduser(path)))
    except (FileNotFoundError, NotADirectoryError):
        return FileOperand(path)
    except (OSError, ValueError) as error:
        return FileOperand(path, unbound=f"it cannot be read ({type(error).__name__})")
    with closing_fd(opened):
        try:
            return _digest_operand(path, opened, budget)
        except OSError as error:
            return FileOperand(path, unbound=f"it cannot be read ({type(error).__name__})")


def _open_operand(path: str) -> int:
    """Open the file at a path. Only a plain file is opened, since opening others has effects: it wakes the writer of a
    pipe, rewinds a tape, starts a watchdog.
    """
    # Not blocking: where the kernel has no links to open files, a pipe without a writer must not block us.
    to_read = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    if not has_fd_links():
        return os.open(path, to_read)
    with closing_fd(os.open(path, os.O_PATH | os.O_CLOEXEC)) as place:
        is_plain = S_ISREG(os.fstat(place).st_mode)
        return os.open(f"/proc/self/fd/{place}", to_read) if is_plain else os.dup(place)


def _digest_operand(path: str, opened: int, budget: _Budget) -> FileOperand:
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
