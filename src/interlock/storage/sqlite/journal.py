"""Space for the write-ahead log (WAL) of SQLite, reserved before it is needed.

A commit that makes the file longer waits for the journal of the file system, too: that takes longer than the write
itself. So zeros are written behind the end of the file, more the longer it is, and the next commits overwrite them.
SQLite ignores what follows its last frame: after a checkpoint, the rest of the file has old frames, too.
"""

import os
from contextlib import suppress

#: The first commit that has space takes longer for it: a log that is open for a few commits reserves little.
MIN_BYTES, MAX_BYTES = 32 << 10, 128 << 10


class JournalSpace:
    """The space behind the end of a WAL file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        #: The size of the file with its reserved space; -1: no more is reserved.
        self._reserved = 0

    def reserve(self) -> None:
        """Reserve space if what was reserved is used up. Call it in a transaction: only who has the write lock may
        write to the file. A failure, such as a full disk, is ignored.
        """
        if self._reserved < 0:
            return
        try:
            if self._file < 0:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            # `fstat` would have the next write change the file's time, and the commit wait for that.
            size = os.lseek(self._file, 0, os.SEEK_END)
            if size not in (0, self._reserved):
                self._reserved = self._extend(size)
        except OSError:
            self._reserved = -1

    def _extend(self, size: int) -> int:
        """Write zeros behind the end of the file. Return its size; -1 where the disk has no space for them."""
        count = min(max(size, MIN_BYTES), MAX_BYTES)
        try:
            if os.pwrite(self._file, bytes(count), size) == count:
                return size + count
        except OSError:
            pass
        with suppress(OSError):
            os.ftruncate(self._file, size)
        return -1

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
