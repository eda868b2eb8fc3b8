"""One model for all tests of a worker, and a world for each of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.coding_agents.model import Model, running_model
from tests.coding_agents.world import World


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Return the model that all agents of this worker talk to."""
    with running_model(tmp_path_factory.mktemp("model")) as model:
        yield model


@pytest.fixture
def world(tmp_path: Path, model: Model, request: pytest.FixtureRequest) -> Iterator[World]:
    """Return a fresh home and workspace. At the end its daemon is killed, and nothing but the model was called."""
    strangers = len(model.strangers)
    world = World(tmp_path, model, f"WORLD-{abs(hash(request.node.nodeid)):x}")
    yield world
    world.kill_daemon()
    assert model.strangers[strangers:] == []
