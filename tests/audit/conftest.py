"""Logs that can give up runs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from interlock import SqliteLog
from interlock.audit.archive import ArchivableLog
from interlock.storage.postgres.log import PostgresLog
from tests.postgres.server import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ArchivableLog]:
    if request.param == "sqlite":
        async with SqliteLog(tmp_path / "runs.db") as log:
            yield log
        return
    postgres: PostgresServer = request.getfixturevalue("postgres")
    async with PostgresLog(postgres.url, schema=postgres.empty_schema()) as log:
        yield log
