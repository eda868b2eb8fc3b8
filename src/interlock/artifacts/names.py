"""What an artifact is called and how large it may be, for every store."""

import re
from hashlib import sha256

from ..domain.errors import ArtifactError

MAX_ARTIFACT_BYTES = 100 * 2**20

_is_id = re.compile(r"sha256:[0-9a-f]{64}").fullmatch


def id_of(content: bytes) -> str:
    if len(content) > MAX_ARTIFACT_BYTES:
        raise ArtifactError(f"an artifact of {len(content):,} bytes is over the limit of {MAX_ARTIFACT_BYTES:,}")
    return "sha256:" + sha256(content).hexdigest()


def digest_in(artifact_id: str) -> str:
    """The hexadecimal digits of the id. Nothing else gets near a path."""
    if not _is_id(artifact_id):
        raise ArtifactError(f"{artifact_id[:80]!r} is not an artifact id")
    return artifact_id.removeprefix("sha256:")


def check_range(start: int, size_bytes: int | None) -> None:
    if start < 0 or (size_bytes is not None and size_bytes < 0):
        raise ArtifactError(f"no range starts at {start} with {size_bytes} bytes")
