"""The scene that every test here begins with."""

from pathlib import Path

import pytest

from .scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return Scene(folder)
