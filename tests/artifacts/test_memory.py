"""Artifacts in memory."""

import pytest

from interlock.storage.artifacts import ArtifactStore
from interlock.storage.memory_artifacts import MemoryArtifacts
from tests.artifacts.conformance import CONTENT, ArtifactsConformance


class TestMemoryArtifacts(ArtifactsConformance):
    @pytest.fixture
    def artifacts(self) -> ArtifactStore:
        return MemoryArtifacts()

    def test_an_artifact_has_no_path(self, artifacts: ArtifactStore) -> None:
        assert artifacts.path(artifacts.keep(CONTENT)) == ""
