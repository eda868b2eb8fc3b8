"""Appends lines to a file and flushes them to the disk. Rotation is external: the file is opened for every batch, so a
renamed file is not written again.
"""

import asyncio
import fcntl
import os
import stat
from pathlib import Path

from .destination import FileDestination
from .interface import EventBatch, SendDelay, SendOutcome, SendSuccess

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class FileSender:
    """Appends batches to a file."""

    def __init__(self, destination: FileDestination) -> None:
        self._path = destination.path

    async def send(self, batch: EventBatch) -> SendOutcome:
        return await asyncio.to_thread(self._append, b"".join(item.line + b"\n" for item in batch.items))

    async def close(self) -> None:
        pass

    def _append(self, lines: bytes) -> SendOutcome:
        try:
            fd = os.open(self._path, _FLAGS, 0o600)
            try:
                return _append_lines(fd, self._path, lines)
            finally:
                os.close(fd)
        except OSError as error:
            return SendDelay(f"{self._path} cannot be written: {error.strerror}.")


def _append_lines(fd: int, path: str, lines: bytes) -> SendOutcome:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return SendDelay(f"{path} is not a regular file.")
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        lines = b"\n" + lines  # the end of a line that was cut, by a crash or by hand, is not the start of ours
    try:
        _write_all(fd, lines)
        os.fsync(fd)
    except OSError:
        os.ftruncate(fd, size)  # the whole batch comes again, so no half of it stays
        raise
    if size == 0:
        _sync_folder(path)
    return SendSuccess()


def _write_all(fd: int, lines: bytes) -> None:
    rest = memoryview(lines)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _sync_folder(path: str) -> None:
    """A new name is durable only with the folder that has it."""
    folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
