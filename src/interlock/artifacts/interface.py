"""Full evidence kept by reference. The id is `sha256:<hex>` of the content, so what is read is what was kept."""

from collections.abc import Iterable
from typing import Protocol


class Artifacts(Protocol):
    def keep(self, content: bytes) -> str:
        """Store the content durably and return its id. Keeping the same content twice stores it once."""
        ...

    def keep_stream(self, chunks: Iterable[bytes]) -> str:
        """The same for content that comes bit by bit and need not fit in memory: all of it is kept, or nothing."""
        ...

    def read(self, artifact_id: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Bytes from `start`. `ArtifactError` when it is unknown, or its content is not what its id says."""
        ...

    def size_bytes(self, artifact_id: str) -> int:
        """`ArtifactError` when it is unknown."""
        ...

    def path(self, artifact_id: str) -> str:
        """Where a person finds it, relative to the store; empty when it is not a file."""
        ...
