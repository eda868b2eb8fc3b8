"""A world for each test, with a model of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.coding_agents.model import running_model
from tests.coding_agents.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Return a fresh home and workspace. At the end its processes are killed, and nothing but the model was called."""
    with running_model() as model:
        world = World(tmp_path, model)
        yield world
        world.kill_all()
    assert model.strangers == []
