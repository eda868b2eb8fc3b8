"""Artifacts: evidence stored by reference. The id is `sha256:<hex>` of the content, so reads can be verified."""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Protocol

from ..domain.errors import ArtifactError


class ArtifactStore(Protocol):
    """Stores content by its digest."""

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


MAX_ARTIFACT_BYTES = 100 * 2**20

_is_id = re.compile(r"sha256:[0-9a-f]{64}").fullmatch


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
