"""Appends to a log in Postgres with which the lease of a run begins, or ends."""

from collections.abc import AsyncIterator

import pytest

from interlock.domain.errors import LogError, LogFencedError, RunClaimedError
from interlock.storage.event_log import Lease, QueuedCommand
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


@pytest.fixture
async def theirs(postgres: PostgresServer, schema: str) -> AsyncIterator[PostgresLog]:
    async with postgres.open_log(schema) as log:
        yield log


async def test_first_append_acquires_the_lease(ours: PostgresLog, theirs: PostgresLog) -> None:
    lease = await ours.append_and_acquire("run", RUN[:2])

    with pytest.raises(RunClaimedError):
        await theirs.acquire("run")
    with pytest.raises(LogFencedError):
        await append(theirs, "run", RUN[2:3])
    await append(ours, "run", RUN[2:3], lease)
    assert (lease, await ours.read("run")) == (Lease("run", 1), RUN[:3])


async def test_row_without_events_keeps_its_tokens(postgres: PostgresServer, schema: str, ours: PostgresLog) -> None:
    await ours.release(await ours.acquire("run"))
    await ours.assign_queue("run", "host-a")

    assert await ours.append_and_acquire("run", RUN[:2]) == Lease("run", 2)
    assert postgres.query(_ROW, schema) == [(2, 2, 2, False)]


@pytest.mark.parametrize("has_events", [True, False])
async def test_run_that_is_not_new_is_not_begun(ours: PostgresLog, theirs: PostgresLog, has_events: bool) -> None:
    lease = await theirs.acquire("run")
    if has_events:
        await append(theirs, "run", RUN[:1], lease)
        await theirs.release(lease)

    with pytest.raises(LogFencedError):
        await ours.append_and_acquire("run", RUN[:2])

    assert len(await ours.read("run")) == has_events
    assert bool(await ours.lease_holder("run")) != has_events


async def test_last_append_releases_the_lease(postgres: PostgresServer, schema: str, ours: PostgresLog) -> None:
    lease = await ours.append_and_acquire("run", RUN[:2])

    assert not await ours.append_and_release("run", RUN[2:4], lease)

    assert postgres.query(_ROW, schema) == [(4, 0, 1, True)]
    with pytest.raises(LogFencedError):
        await append(ours, "run", RUN[4:5], lease)
    assert await ours.acquire("run") == Lease("run", 2)


async def test_lost_lease_is_not_released_by_an_append(ours: PostgresLog, theirs: PostgresLog) -> None:
    lost = await ours.append_and_acquire("run", RUN[:2])
    lease = await theirs.acquire("run", force=True)

    with pytest.raises(LogFencedError):
        await ours.append_and_release("run", RUN[2:4], lost)

    await append(theirs, "run", RUN[2:3], lease)
    assert await ours.read("run") == RUN[:3]


async def test_last_append_reports_queued_commands(ours: PostgresLog, theirs: PostgresLog) -> None:
    lease = await ours.append_and_acquire("run", RUN[:2])
    await theirs.enqueue("run", QueuedCommand("stop", b"1"))

    assert await ours.append_and_release("run", RUN[2:4], lease)


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


async def test_append_of_nothing_changes_no_lease(ours: PostgresLog) -> None:
    lease = await ours.append_and_acquire("run", RUN[:2])

    for nothing in (lambda: ours.append_and_acquire("new", []), lambda: ours.append_and_release("run", [], lease)):
        with pytest.raises(LogError):
            nothing()
    await append(ours, "run", RUN[2:3], lease)
