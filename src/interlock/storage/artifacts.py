"""Artifacts: evidence stored by reference. The id is `sha256:<hex>` of the content, so reads can be verified."""

import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from threading import Lock
from time import monotonic
from typing import Protocol, runtime_checkable

from ..domain.errors import ArtifactError

#: How long a store or a process takes a digest as stored without asking again. What was removed meanwhile, such as by
#: hand, is stored again after that.
REMEMBERED_SECONDS = 600.0


class ArtifactStore(Protocol):
    """Stores content by its digest.

    Its methods may wait for a disk or a network: they are called in threads, several at once, and an event that refers
    to an artifact is recorded after `keep` returned. A store that never waits says so with `immediate = True`, and is
    called in the event loop.
    """

    def keep(self, content: bytes) -> str:
        """Store the content durably and return its id. Storing the same content twice stores it once."""
        ...

    def keep_stream(self, chunks: Iterable[bytes]) -> str:
        """Store content that arrives in chunks and need not fit in memory, completely or not at all; return its id."""
        ...

    def read(self, artifact_id: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Return bytes from `start`. Raise `ArtifactError` when it is unknown, or its content does not match its id."""
        ...

    def size_bytes(self, artifact_id: str) -> int:
        """Return its size. Raise `ArtifactError` when it is unknown."""
        ...

    def path(self, artifact_id: str) -> str:
        """Return where a person finds it, relative to the store; empty when it is not a file."""
        ...


@runtime_checkable
class DeletableArtifacts(ArtifactStore, Protocol):
    """A store that can delete. May need more rights than using it."""

    def find(self, prefix: str) -> list[str]:
        """Return the ids whose digest begins with these hexadecimal digits, at least four of them."""
        ...

    def delete(self, artifact_id: str) -> None:
        """Delete an artifact. Do nothing when it is unknown."""
        ...


MAX_ARTIFACT_BYTES = 100 * 2**20

_is_id = re.compile(r"sha256:[0-9a-f]{64}").fullmatch


class RememberedDigests:
    """The digests that a store need not ask for again, for some time. Used by several threads.

    Args:
        seconds: How long each is remembered.
        most: How many are remembered; the oldest are forgotten.
    """

    def __init__(
        self, seconds: float = REMEMBERED_SECONDS, most: int = 4_096, clock: Callable[[], float] = monotonic
    ) -> None:
        self._seconds, self._most, self._clock = seconds, most, clock
        self._added_at: dict[bytes, float] = {}
        self._lock = Lock()

    def __contains__(self, digest: bytes) -> bool:
        added_at = self._added_at.get(digest)
        return added_at is not None and self._clock() - added_at < self._seconds

    def add(self, digest: bytes) -> None:
        """Remember a digest from now on."""
        with self._lock:
            self._added_at.pop(digest, None)
            self._added_at[digest] = self._clock()
            if len(self._added_at) > self._most:
                del self._added_at[next(iter(self._added_at))]

    def discard(self, digest: bytes) -> None:
        """Forget a digest."""
        with self._lock:
            self._added_at.pop(digest, None)


def compute_artifact_id(content: bytes) -> str:
    """Return the id of content. Raise `ArtifactError` if it is too large."""
    if len(content) > MAX_ARTIFACT_BYTES:
        raise ArtifactError(f"an artifact of {len(content):,} bytes is over the limit of {MAX_ARTIFACT_BYTES:,}")
    return format_artifact_id(sha256(content).hexdigest())


def format_artifact_id(digest: str) -> str:
    """Format a digest as an artifact id."""
    return f"sha256:{digest}"


def limit_size(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks. Raise when they exceed the limit of one artifact."""
    size_bytes = 0
    for chunk in chunks:
        size_bytes += len(chunk)
        if size_bytes > MAX_ARTIFACT_BYTES:
            raise ArtifactError(f"an artifact of more than {MAX_ARTIFACT_BYTES:,} bytes is over the limit")
        yield chunk


def parse_artifact_id(artifact_id: str) -> str:
    """Return the hexadecimal digits of the id. Nothing else is used in a path."""
    if not _is_id(artifact_id):
        raise ArtifactError(f"{artifact_id[:80]!r} is not an artifact id")
    return artifact_id.removeprefix("sha256:")


def check_range(start: int, size_bytes: int | None) -> None:
    """Raise `ArtifactError` if a range is negative."""
    if start < 0 or (size_bytes is not None and size_bytes < 0):
        raise ArtifactError(f"no range starts at {start} with {size_bytes} bytes")
