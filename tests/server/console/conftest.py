"""A server for each file of tests that can share one, and otherwise for each test."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.server.console.browser import opened_as
from tests.server.console.visits import Stage
from tests.server.server_process import Running, console_server


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def on(program: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    async with console_server(tmp_path_factory.mktemp("state")) as served:
        yield Stage(served, program)


@pytest_asyncio.fixture(loop_scope="session")
async def served(tmp_path: Path) -> AsyncGenerator[Running]:
    async with console_server(tmp_path / "state") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def operator(program: Browser, served: Running) -> AsyncGenerator[Page]:
    """A page on which olga is signed in."""
    async with opened_as("olga", program, served) as (page, _):
        yield page
