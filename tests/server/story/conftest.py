"""One server for all stories of a worker that leave it as it was."""

from collections.abc import Generator

import pytest

from tests.server.console.browser import needed_chromium
from tests.server.story.process import Served, settled


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    needed_chromium()
    with settled(tmp_path_factory.mktemp("server")) as running:
        yield running
        running.stop()
