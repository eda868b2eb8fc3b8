"""A plugin of pytest: tests have their logs and databases in Postgres, instead of those that they make in memory and in
their folder. `make test-postgres` runs the tests of runs and of the server's core so.

Each log in memory becomes a schema. Tests with a kind of log of their own, and those about files, keep it.
"""

import sys
from collections.abc import AsyncGenerator
from itertools import count
from pathlib import Path

import pytest
import pytest_asyncio

from interlock import MemoryLog
from interlock.storage.postgres.log import PostgresLog
from tests.logs import keep_in_postgres

from .server import PostgresServer

_PACKAGE = "tests.runs."
#: It plays steps in an order of its own, which a database does not follow.
_IN_MEMORY = "tests.runs.interleaving"
#: They edit, fill or kill what has a file.
_ABOUT_FILES = ("test_damaged_runs", "test_failing_log", "test_killed", "test_story_over_http")
_LEASE_SECONDS = 4.0


class LogFactory:
    """Opens logs in Postgres, and closes them at the end of a test."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = count(1)
        self._opened: list[PostgresLog] = []

    def open(self) -> PostgresLog:
        schema = self._server.empty_schema(next(self._numbers))
        self._opened.append(PostgresLog(self._server.server_url, schema=schema, lease_seconds=_LEASE_SECONDS))
        return self._opened[-1]

    async def close(self) -> None:
        for log in self._opened:
            await log.close()


def replace_logs(server: PostgresServer, patch: pytest.MonkeyPatch) -> LogFactory:
    """Let tests of runs, and runners without a log, make logs in Postgres."""
    factory = LogFactory(server)
    others = {_IN_MEMORY, *(each.__module__ for each in MemoryLog.__subclasses__())}
    for name, module in [*sys.modules.items()]:
        is_test = name.startswith(_PACKAGE) and name not in others
        if (is_test or name == "interlock.runs.runner") and vars(module).get("MemoryLog") is MemoryLog:
            patch.setattr(module, "MemoryLog", factory.open)
    return factory


@pytest_asyncio.fixture(autouse=True)
async def logs_in_postgres(
    request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[None]:
    if request.path.stem.startswith(_ABOUT_FILES):
        yield
        return
    keep_in_postgres(tmp_path, postgres, postgres.server_url)
    factory = replace_logs(postgres, monkeypatch)
    yield
    await factory.close()
