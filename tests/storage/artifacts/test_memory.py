"""Artifacts in memory."""

import pytest

from interlock.storage.artifacts import ArtifactStore
from interlock.storage.memory_artifacts import MemoryArtifacts
from interlock.testing.conformance.artifacts import CONTENT, ArtifactDeletionConformance, ArtifactStoreConformance


@pytest.mark.requirement("R246")
class TestMemoryArtifacts(ArtifactStoreConformance, ArtifactDeletionConformance):
    @pytest.fixture
    def artifacts(self) -> MemoryArtifacts:
        return MemoryArtifacts()

    @pytest.fixture
    def deletable(self, artifacts: MemoryArtifacts) -> MemoryArtifacts:
        return artifacts

    def test_an_artifact_has_no_path(self, artifacts: ArtifactStore) -> None:
        assert artifacts.path(artifacts.keep(CONTENT)) == ""
