"""One server for each test."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest_asyncio

from tests.server.server_process import Running, running_server


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Running]:
    async with running_server(tmp_path) as running:
        yield running
