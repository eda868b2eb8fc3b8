"""A browser for each file of tests, and a server of its own for each test."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.server.console.browser import browser, opened_as
from tests.server.server_process import Running, console_server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def program() -> AsyncGenerator[Browser]:
    async with browser() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def served(tmp_path: Path) -> AsyncGenerator[Running]:
    async with console_server(tmp_path / "state") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def operator(program: Browser, served: Running) -> AsyncGenerator[Page]:
    """A page on which olga is signed in."""
    async with opened_as("olga", program, served) as (page, _):
        yield page
