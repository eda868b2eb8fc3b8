"""Logs for tests of the index."""

from collections.abc import AsyncGenerator
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from interlock import MemoryLog

if TYPE_CHECKING:
    from tests.postgres.server import PostgresServer


@pytest_asyncio.fixture(params=["file", "postgres"])
async def log(request: pytest.FixtureRequest) -> AsyncGenerator[MemoryLog]:
    """A log whose index is in a file, or in Postgres."""
    if request.param == "file":
        yield MemoryLog()
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    async with server.open_log(server.empty_schema()) as stored:
        yield import_module("tests.server.core.mirrored_log").MirroredLog(stored)
