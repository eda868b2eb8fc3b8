"""The artifacts of one run: other runs' artifacts cannot be read by guessing an id, and secrets are redacted."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import ParamSpec, TypeVar

from ..domain.errors import ArtifactError
from ..domain.outcome import ArtifactRef
from ..domain.state.ledger import Ledger
from ..domain.tool import ByteFilter
from ..redaction.interface import Redactor
from ..storage.artifacts import REMEMBERED_SECONDS, ArtifactStore

_P = ParamSpec("_P")
_T = TypeVar("_T")
#: How many texts are remembered as stored.
_MAX_KNOWN = 256


async def use_store(artifacts: ArtifactStore, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function that uses the store: in a thread, unless the store never waits."""
    if getattr(artifacts, "immediate", False):
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)


class KnownArtifacts:
    """Remember the ids of texts that every run stores, such as catalogs and instructions: a known text is neither
    hashed nor written again.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._ids: dict[str, tuple[str, float]] = {}

    def find(self, name: str) -> str:
        """Return the id of a text that was stored a short time ago; empty if there is none."""
        artifact_id, stored_at = self._ids.get(name, ("", 0.0))
        return artifact_id if artifact_id and self._clock() - stored_at < REMEMBERED_SECONDS else ""

    def add(self, name: str, artifact_id: str) -> None:
        """Remember a text that was stored."""
        if len(self._ids) >= _MAX_KNOWN:
            self._ids.clear()
        self._ids[name] = artifact_id, self._clock()


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
        return self._ref(self._artifacts.keep(content), kind, len(content))

    def keep_stream(self, chunks: Iterable[bytes], kind: str) -> ArtifactRef:
        """Store content that is already redacted, in chunks."""
        size_bytes = 0

        def count() -> Iterator[bytes]:
            nonlocal size_bytes
            for chunk in chunks:
                size_bytes += len(chunk)
                yield chunk

        artifact_id = self._artifacts.keep_stream(count())
        return self._ref(artifact_id, kind, size_bytes)

    def redaction_filter(self) -> ByteFilter:
        """Return a filter that redacts a stream of bytes."""
        return self._redactor.stream()

    def _ref(self, artifact_id: str, kind: str, size_bytes: int) -> ArtifactRef:
        path = self._artifacts.path(artifact_id)
        return ArtifactRef(id=artifact_id, kind=kind, size_bytes=size_bytes, path=path)

    def _known(self, artifact_id: str) -> str:
        if artifact_id not in self._ledger.artifact_ids:
            raise ArtifactError(f"there is no artifact {artifact_id[:80]!r} in this run")
        return artifact_id
