"""What our stores say when they refuse. The conformance suite leaves the words to the implementation."""

from hashlib import sha256
from pathlib import Path

import pytest

from interlock.domain.errors import ArtifactError
from interlock.storage.artifacts import MAX_ARTIFACT_BYTES, ArtifactStore
from interlock.storage.file_artifacts import FileArtifacts
from interlock.storage.memory_artifacts import MemoryArtifacts
from interlock.testing.conformance.artifacts import CONTENT, INVALID_IDS, UNKNOWN_ID


@pytest.fixture(params=["memory", "files"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    return MemoryArtifacts() if request.param == "memory" else FileArtifacts(tmp_path / "store")


@pytest.mark.parametrize("artifact_id", INVALID_IDS)
def test_invalid_id(artifacts: ArtifactStore, artifact_id: str) -> None:
    for method in (artifacts.read, artifacts.size_bytes, artifacts.path):
        with pytest.raises(ArtifactError, match="is not an artifact id"):
            method(artifact_id)


@pytest.mark.parametrize("artifact_id", [UNKNOWN_ID, "sha256:" + sha256(CONTENT).hexdigest()])
def test_unknown_artifact(artifacts: ArtifactStore, artifact_id: str) -> None:
    for method in (artifacts.read, artifacts.size_bytes, artifacts.path):
        with pytest.raises(ArtifactError, match="there is no artifact"):
            method(artifact_id)


@pytest.mark.parametrize(("start", "size_bytes"), [(-1, None), (0, -1)])
def test_negative_range(artifacts: ArtifactStore, start: int, size_bytes: int | None) -> None:
    with pytest.raises(ArtifactError, match="no range"):
        artifacts.read(artifacts.keep(CONTENT), start, size_bytes)


def test_content_over_the_limit(artifacts: ArtifactStore) -> None:
    with pytest.raises(ArtifactError, match="over the limit"):
        artifacts.keep(bytes(MAX_ARTIFACT_BYTES + 1))
    with pytest.raises(ArtifactError, match="over the limit"):
        artifacts.keep_stream([bytes(MAX_ARTIFACT_BYTES // 4)] * 5)
