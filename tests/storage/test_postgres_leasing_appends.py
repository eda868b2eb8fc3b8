"""Appends to a log in Postgres with which the lease of a run begins, or ends."""

from collections.abc import AsyncIterator

import pytest

from interlock.domain.errors import LogFencedError
from interlock.storage.event_log import Lease
from interlock.storage.postgres.log import PostgresLog
from tests.postgres.server import PostgresServer

from .runs import append, chained
from .test_postgres_faults import AnswerLost

RUN = chained("run", 8)
_ROW = "SELECT next_seq, token, last_token, holder IS NULL FROM runs WHERE run_id = 'run'"


@pytest.fixture
def schema(postgres: PostgresServer) -> str:
    return postgres.empty_schema()


@pytest.fixture
async def ours(postgres: PostgresServer, schema: str) -> AsyncIterator[PostgresLog]:
    async with postgres.open_log(schema) as log:
        yield log


async def test_row_without_events_keeps_its_tokens(postgres: PostgresServer, schema: str, ours: PostgresLog) -> None:
    await ours.release(await ours.acquire("run"))
    await ours.assign_queue("run", "host-a")

    assert await ours.append_and_acquire("run", RUN[:2]) == Lease("run", 2)
    assert postgres.query(_ROW, schema) == [(2, 2, 2, False)]


async def test_last_append_releases_the_lease(postgres: PostgresServer, schema: str, ours: PostgresLog) -> None:
    lease = await ours.append_and_acquire("run", RUN[:2])

    assert not await ours.append_and_release("run", RUN[2:4], lease)

    assert postgres.query(_ROW, schema) == [(4, 0, 1, True)]
    with pytest.raises(LogFencedError):
        await append(ours, "run", RUN[4:5], lease)
    assert await ours.acquire("run") == Lease("run", 2)


@pytest.mark.parametrize("query", ["append_many", "find_released"])
async def test_lost_answer_releases_once(ours: PostgresLog, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    lease = await ours.append_and_acquire("run", RUN[:2])
    lost = AnswerLost(monkeypatch, query)

    assert not await ours.append_and_release("run", RUN[2:4], lease)

    assert not lost.statements
    assert (await ours.read("run"), await ours.lease_holder("run")) == (RUN[:4], "")


async def test_lost_answer_to_the_first_append_keeps_the_lease(
    ours: PostgresLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = AnswerLost(monkeypatch, "append_listed")

    lease = await ours.append_and_acquire("run", RUN[:2])

    assert not lost.statements
    await append(ours, "run", RUN[2:3], lease)
    assert await ours.read("run") == RUN[:3]
