"""Artifacts as files, named after their content: `ab/cd/abcd...`.

A file is written beside its place (above it while its digest is still unknown), flushed, renamed into it, and its
folder flushed, so an artifact is stored completely and durably, or not at all. Links are never followed below the
store's folder. What is read is checked: a whole read against the digest, a range by checking the whole file once and
then that nothing about the file has changed since.
"""

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import glob
from hashlib import file_digest, sha256
from pathlib import Path
from secrets import token_hex
from stat import S_ISREG

from ..domain.errors import ArtifactError
from .artifacts import check_range, compute_artifact_id, format_artifact_id, limit_size, parse_artifact_id

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIGEST_CHARS = 64
_is_prefix = re.compile(rf"[0-9a-f]{{4,{_DIGEST_CHARS}}}").fullmatch
#: How many files are remembered as checked.
_MAX_CHECKED = 1_024


class FileArtifacts:
    """Store artifacts as files of a folder, named by the digest of their content."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder).absolute()
        #: By digest, what the file looked like when its content was last checked.
        self._checked: dict[str, tuple[int, ...]] = {}
        #: By digest, what the file looked like when this process made it durable.
        self._durable: dict[str, tuple[int, ...]] = {}
        with _storage_errors(str(self._folder)):
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            parent = os.open(self._folder.parent, _FOLDER)
            try:
                _make_folder(parent, self._folder.name)
            finally:
                os.close(parent)

    @property
    def own_paths(self) -> tuple[str, ...]:
        """The paths of its files, which no tool may access."""
        return (str(self._folder),)

    def keep(self, content: bytes) -> str:
        """Store content durably. Return its id."""
        artifact_id = compute_artifact_id(content)
        digest = parse_artifact_id(artifact_id)
        with _storage_errors(artifact_id), self._open_folder(digest, create=True) as folder:
            known = self._durable.get(digest)
            if known is not None and known == _identity_in(folder, digest):
                return artifact_id
            if not _has_artifact(folder, digest):
                with _temporary_file(folder, (content,)) as temporary:
                    os.replace(temporary, digest, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
            if len(self._durable) >= _MAX_CHECKED:
                self._durable.clear()
            self._durable[digest] = _identity_in(folder, digest)
        return artifact_id

    def keep_stream(self, chunks: Iterable[bytes]) -> str:
        """Store a stream durably. Return its id."""
        hashed = sha256()
        with (
            _storage_errors("an artifact"),
            self._open_store() as store,
            _temporary_file(store, _tee(limit_size(chunks), hashed.update)) as temporary,
            self._open_folder(digest := hashed.hexdigest(), create=True) as folder,
        ):
            if not _has_artifact(folder, digest):
                os.replace(temporary, digest, src_dir_fd=store, dst_dir_fd=folder)
            os.fsync(folder)
        return format_artifact_id(digest)

    def read(self, artifact_id: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Read an artifact, or a part, after verifying its digest."""
        check_range(start, size_bytes)
        digest = parse_artifact_id(artifact_id)
        with self._open(artifact_id) as file:
            if start == 0 and size_bytes is None:
                return _read_verified(file, digest)
            self._check(file, digest)
            size = os.fstat(file).st_size
            end = size if size_bytes is None else min(size, start + size_bytes)
            return _read_range(file, start, end)

    def find(self, prefix: str) -> list[str]:
        """Return the ids that begin with these hexadecimal digits, at least four of them."""
        if not _is_prefix(prefix):
            return []
        names = glob(f"{prefix[:2]}/{prefix[2:4]}/{prefix}*", root_dir=self._folder)
        return sorted(format_artifact_id(name[6:]) for name in names if len(name[6:]) == _DIGEST_CHARS)

    def size_bytes(self, artifact_id: str) -> int:
        """Return the size of an artifact."""
        with self._open(artifact_id) as file:
            return os.fstat(file).st_size

    def path(self, artifact_id: str) -> str:
        """Return the path of an artifact below the folder of the store."""
        with self._open(artifact_id):
            return "/".join(_path_parts(parse_artifact_id(artifact_id)))

    def delete(self, artifact_id: str) -> None:
        """Delete an artifact durably."""
        digest = parse_artifact_id(artifact_id)
        with (
            _storage_errors(artifact_id),
            suppress(FileNotFoundError),
            self._open_folder(digest, create=False) as folder,
        ):
            os.unlink(digest, dir_fd=folder)
            os.fsync(folder)

    def _check(self, file: int, digest: str) -> None:
        """Compare the content with the digest, unless this file was compared before."""
        seen = _file_identity(file)
        if self._checked.get(digest) == seen:
            return
        with open(file, "rb", closefd=False) as reader:
            actual = file_digest(reader, sha256).hexdigest()
        if actual != digest or _file_identity(file) != seen:
            raise _corrupt_error(digest)
        if len(self._checked) >= _MAX_CHECKED:
            self._checked.clear()
        self._checked[digest] = seen

    @contextmanager
    def _open(self, artifact_id: str) -> Generator[int]:
        digest = parse_artifact_id(artifact_id)
        with _storage_errors(artifact_id):
            try:
                with self._open_folder(digest, create=False) as folder:
                    file = os.open(digest, _READ, dir_fd=folder)
            except FileNotFoundError:
                raise ArtifactError(f"there is no artifact {artifact_id}") from None
            try:
                if not S_ISREG(os.fstat(file).st_mode):
                    raise _corrupt_error(digest)
                yield file
            finally:
                os.close(file)

    @contextmanager
    def _open_store(self) -> Generator[int]:
        store = os.open(self._folder, _FOLDER)
        try:
            yield store
        finally:
            os.close(store)

    @contextmanager
    def _open_folder(self, digest: str, *, create: bool) -> Generator[int]:
        folder = os.open(self._folder, _FOLDER)
        try:
            for part in _path_parts(digest)[:-1]:
                if create:
                    _make_folder(folder, part)
                inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)


@contextmanager
def _storage_errors(what: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise ArtifactError(f"{what}: {error.strerror or error}") from error


def _path_parts(digest: str) -> tuple[str, str, str]:
    return digest[:2], digest[2:4], digest


def _make_folder(parent: int, name: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
        os.fsync(parent)


def _has_artifact(folder: int, digest: str) -> bool:
    """Return True if the artifact is stored completely. A damaged file counts as missing and is replaced."""
    try:
        file = os.open(digest, _READ, dir_fd=folder)
    except OSError:
        return False
    with open(file, "rb") as reader:
        return S_ISREG(os.fstat(file).st_mode) and file_digest(reader, sha256).hexdigest() == digest


@contextmanager
def _temporary_file(folder: int, chunks: Iterable[bytes]) -> Generator[str]:
    """Create a file with the content, flushed. It is removed unless the caller renames it."""
    temporary = f".{token_hex(16)}.tmp"
    try:
        file = os.open(temporary, _WRITE, 0o600, dir_fd=folder)
        with open(file, "wb") as writer:
            writer.writelines(chunks)
            writer.flush()
            os.fsync(file)
        yield temporary
    finally:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)


def _tee(chunks: Iterable[bytes], callback: Callable[[bytes], object]) -> Iterator[bytes]:
    for chunk in chunks:
        callback(chunk)
        yield chunk


def _read_verified(file: int, digest: str) -> bytes:
    content = _read_range(file, 0, os.fstat(file).st_size)
    if sha256(content).hexdigest() != digest:
        raise _corrupt_error(digest)
    return content


def _read_range(file: int, start: int, end: int) -> bytes:
    """Return exactly these bytes: a file that ends earlier was truncated while it was read."""
    pieces: list[bytes] = []
    while start < end:
        piece = os.pread(file, end - start, start)
        if not piece:
            raise ArtifactError("the file was cut while it was read")
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def _file_identity(file: int) -> tuple[int, ...]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _identity_in(folder: int, digest: str) -> tuple[int, ...]:
    """Return what the file looks like; empty when there is none. A changed file looks different."""
    try:
        file = os.open(digest, _READ, dir_fd=folder)
    except OSError:
        return ()
    try:
        return _file_identity(file)
    finally:
        os.close(file)


def _corrupt_error(digest: str) -> ArtifactError:
    return ArtifactError(f"artifact sha256:{digest} is not what was kept")
