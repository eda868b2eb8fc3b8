"""One browser and one identity provider for all tests of a worker, which leave them as they were.

Each test has its own context in the browser: no cookies, no storage.
"""

from collections.abc import AsyncGenerator, Generator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.node.oidc_server import OidcServer, running_oidc_server
from tests.server.console.browser import browser


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def program() -> AsyncGenerator[Browser]:
    async with browser() as started:
        yield started


@pytest.fixture(scope="session")
def provider() -> Generator[OidcServer]:
    with running_oidc_server() as server:
        yield server
