"""A browser for each file of tests, and one server for all stories that leave it as it was."""

from collections.abc import AsyncGenerator, Generator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.server.console.browser import browser, needed_chromium
from tests.server.story.process import Served, settled


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def program() -> AsyncGenerator[Browser]:
    async with browser() as started:
        yield started


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    needed_chromium()
    with settled(tmp_path_factory.mktemp("server")) as running:
        yield running
        running.stop()
