"""The artifacts of one run: other runs' artifacts cannot be read by guessing an id, and secrets are redacted."""

from collections.abc import Iterable

from ..domain.errors import ArtifactError
from ..domain.outcome import ArtifactRef
from ..domain.state.ledger import Ledger
from ..domain.tool import ByteFilter
from ..redaction.interface import Redactor
from ..storage.artifacts import ArtifactStore


class LedgerArtifacts:
    """Implementation of `RunArtifacts` that checks ids against the run's ledger."""

    def __init__(self, artifacts: ArtifactStore, redactor: Redactor, ledger: Ledger) -> None:
        self._artifacts = artifacts
        self._redactor = redactor
        self._ledger = ledger

    def read(self, artifact_id: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Read an artifact of this run, or a part of it."""
        return self._artifacts.read(self._known(artifact_id), start, size_bytes)

    def size_bytes(self, artifact_id: str) -> int:
        """Return the size of an artifact of this run."""
        return self._artifacts.size_bytes(self._known(artifact_id))

    def keep(self, content: bytes, kind: str) -> ArtifactRef:
        """Redact and store content."""
        text = content.decode(errors="surrogateescape")
        redacted = self._redactor.redact(text)
        if redacted != text:
            content = redacted.encode(errors="surrogateescape")
        return self._ref(self._artifacts.keep(content), kind)

    def keep_stream(self, chunks: Iterable[bytes], kind: str) -> ArtifactRef:
        """Store content that is already redacted, in chunks."""
        return self._ref(self._artifacts.keep_stream(chunks), kind)

    def redaction_filter(self) -> ByteFilter:
        """Return a filter that redacts a stream of bytes."""
        return self._redactor.stream()

    def _ref(self, artifact_id: str, kind: str) -> ArtifactRef:
        artifacts = self._artifacts
        size_bytes, path = artifacts.size_bytes(artifact_id), artifacts.path(artifact_id)
        return ArtifactRef(id=artifact_id, kind=kind, size_bytes=size_bytes, path=path)

    def _known(self, artifact_id: str) -> str:
        if artifact_id not in self._ledger.artifact_ids:
            raise ArtifactError(f"there is no artifact {artifact_id[:80]!r} in this run")
        return artifact_id
