"""What an artifact is called and how large it may be, for every store."""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256

from ..domain.errors import ArtifactError

MAX_ARTIFACT_BYTES = 100 * 2**20

_is_id = re.compile(r"sha256:[0-9a-f]{64}").fullmatch


def id_of(content: bytes) -> str:
    if len(content) > MAX_ARTIFACT_BYTES:
        raise ArtifactError(f"an artifact of {len(content):,} bytes is over the limit of {MAX_ARTIFACT_BYTES:,}")
    return id_with(sha256(content).hexdigest())


def id_with(digest: str) -> str:
    return f"sha256:{digest}"


def within_limit(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks, until they are too much for one artifact."""
    size_bytes = 0
    for chunk in chunks:
        size_bytes += len(chunk)
        if size_bytes > MAX_ARTIFACT_BYTES:
            raise ArtifactError(f"an artifact of more than {MAX_ARTIFACT_BYTES:,} bytes is over the limit")
        yield chunk


def digest_in(artifact_id: str) -> str:
    """The hexadecimal digits of the id. Nothing else gets near a path."""
    if not _is_id(artifact_id):
        raise ArtifactError(f"{artifact_id[:80]!r} is not an artifact id")
    return artifact_id.removeprefix("sha256:")


def check_range(start: int, size_bytes: int | None) -> None:
    if start < 0 or (size_bytes is not None and size_bytes < 0):
        raise ArtifactError(f"no range starts at {start} with {size_bytes} bytes")
