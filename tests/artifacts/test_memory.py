"""Artifacts in memory."""

import pytest

from interlock.artifacts.interface import Artifacts
from interlock.artifacts.memory import MemoryArtifacts
from tests.artifacts.conformance import CONTENT, ArtifactsConformance


class TestMemoryArtifacts(ArtifactsConformance):
    @pytest.fixture
    def artifacts(self) -> Artifacts:
        return MemoryArtifacts()

    def test_an_artifact_has_no_path(self, artifacts: Artifacts) -> None:
        assert artifacts.path(artifacts.keep(CONTENT)) == ""
