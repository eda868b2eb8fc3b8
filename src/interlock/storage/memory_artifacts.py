"""Artifacts for tests and for runs that need not outlive their process."""

from collections.abc import Iterable

from ..domain.errors import ArtifactError
from .artifacts import check_range, compute_artifact_id, limit_size, parse_artifact_id

_MIN_PREFIX_CHARS = 4


class MemoryArtifacts:
    """Artifact store in memory."""

    #: Storing never waits, so it needs no thread.
    immediate = True

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def keep(self, content: bytes) -> str:
        """Store content in memory. Return its id."""
        artifact_id = compute_artifact_id(content)
        self._contents[artifact_id] = content
        return artifact_id

    def keep_stream(self, chunks: Iterable[bytes]) -> str:
        """Store a stream in memory. Return its id."""
        return self.keep(b"".join(limit_size(chunks)))

    def read(self, artifact_id: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Read an artifact, or a part of it."""
        check_range(start, size_bytes)
        content = self._find(artifact_id)
        return content[start:] if size_bytes is None else content[start : start + size_bytes]

    def size_bytes(self, artifact_id: str) -> int:
        """Return the size of an artifact."""
        return len(self._find(artifact_id))

    def path(self, artifact_id: str) -> str:
        """Return an empty path: artifacts in memory have none."""
        self._find(artifact_id)
        return ""

    def find(self, prefix: str) -> list[str]:
        """Return the ids whose digest begins with these hexadecimal digits, at least four of them."""
        is_prefix = len(prefix) >= _MIN_PREFIX_CHARS
        return sorted(each for each in self._contents if is_prefix and each.startswith(f"sha256:{prefix}"))

    def delete(self, artifact_id: str) -> None:
        """Delete an artifact."""
        parse_artifact_id(artifact_id)
        self._contents.pop(artifact_id, None)

    def _find(self, artifact_id: str) -> bytes:
        parse_artifact_id(artifact_id)
        try:
            return self._contents[artifact_id]
        except KeyError:
            raise ArtifactError(f"there is no artifact {artifact_id}") from None
