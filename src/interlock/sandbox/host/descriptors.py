"""Descriptors of files: closed at the end of a block, and written to the end; and what identifies an open file."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeAlias

#: Device and inode.
FileIdentity: TypeAlias = tuple[int, int]


@contextmanager
def closing_fd(fd: int) -> Generator[int]:
    """Close a descriptor at the end of a `with` block."""
    try:
        yield fd
    finally:
        os.close(fd)


def write_all(fd: int, content: bytes) -> None:
    """Write all of it. Raise `OSError` when there is no room."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def get_identity(found: os.stat_result) -> FileIdentity:
    """Return the device and inode of a file."""
    return found.st_dev, found.st_ino
