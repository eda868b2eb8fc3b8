"""Contents of files by their SHA-256, in a private folder. Byte for byte: nothing is redacted."""

import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from secrets import token_hex

import msgspec

from ..sandbox.host.descriptors import closing_fd
from .file_access import MAX_SINGLE_SYNCS, lstat, read_chunks, sync_filesystem, write_chunk

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_TEMPORARY = ".new-"


def _keep_all(path: str) -> bool:
    return True


class ChangeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of one change set is kept. What is not is reported with the change set."""

    max_file_bytes: int = 256 << 20
    #: Contents before and after, together.
    max_total_bytes: int = 1 << 30
    max_files: int = 50_000
    #: Whether to keep what a file of the workspace was before. What is not kept cannot be undone.
    is_kept: Callable[[str], bool] = _keep_all


class MissingContentError(Exception):
    """A content is not in the store, or is damaged."""


class ContentStore:
    """A folder of contents. Its descriptor is the caller's."""

    def __init__(self, folder: int) -> None:
        self._folder = folder

    def has(self, digest: str) -> bool:
        """Return True if the content is there."""
        return lstat(self._folder, digest) is not None

    def add(self, file: int) -> str:
        """Copy an open file, and return the digest of what was copied."""
        temporary = f"{_TEMPORARY}{token_hex(8)}"
        hashed = hashlib.sha256()
        with closing_fd(os.open(temporary, _NEW, 0o600, dir_fd=self._folder)) as new:
            try:
                for chunk in read_chunks(file):
                    hashed.update(chunk)
                    write_chunk(new, chunk)
                os.ftruncate(new, os.lseek(new, 0, os.SEEK_CUR))
                digest = hashed.hexdigest()
                os.rename(temporary, digest, src_dir_fd=self._folder, dst_dir_fd=self._folder)
                return digest
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=self._folder)
                raise

    def flush(self, digests: Collection[str]) -> None:
        """Write contents to the disk."""
        if len(digests) > MAX_SINGLE_SYNCS:
            sync_filesystem(self._folder)
            return
        for digest in digests:
            with suppress(FileNotFoundError), closing_fd(os.open(digest, _READ, dir_fd=self._folder)) as opened:
                os.fsync(opened)

    def adopt(self, folder: int, name: str, digest: str) -> None:
        """Take over a file of the same file system that has this content and that nothing else has open."""
        if not self.has(digest):
            os.chmod(name, 0o600, dir_fd=folder)
            os.rename(name, digest, src_dir_fd=folder, dst_dir_fd=self._folder)

    def read(self, digest: str) -> Iterator[bytes]:
        """Yield a content. Raise `MissingContentError` when it is gone, or after its last byte when it is damaged."""
        try:
            opened = os.open(digest, _READ, dir_fd=self._folder)
        except FileNotFoundError:
            raise MissingContentError(f"the content {digest[:12]} is not kept any more") from None
        hashed = hashlib.sha256()
        with closing_fd(opened):
            for chunk in read_chunks(opened):
                hashed.update(chunk)
                yield chunk
        if hashed.hexdigest() != digest:
            raise MissingContentError(f"the content {digest[:12]} is damaged")
