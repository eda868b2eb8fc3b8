"""The log in Postgres keeps every promise; and how it is opened."""

from collections.abc import AsyncIterator, Callable

import pytest

from interlock.storage.postgres.log import PostgresLog
from interlock.testing.conformance import DurableEventLogConformance, LeasingAppendConformance
from tests.postgres.server import PostgresServer


@pytest.mark.requirement("R138")
class TestPostgresLog(DurableEventLogConformance, LeasingAppendConformance):
    @pytest.fixture
    async def open_log(self, postgres: PostgresServer) -> AsyncIterator[Callable[[], PostgresLog]]:
        schema, opened = postgres.empty_schema(), list[PostgresLog]()

        def open_() -> PostgresLog:
            # A beat finds out that something was written, also by this process: none is due within a test.
            opened.append(postgres.open_log(schema, lease_seconds=600))
            return opened[-1]

        yield open_
        for log in opened:
            await log.close()
