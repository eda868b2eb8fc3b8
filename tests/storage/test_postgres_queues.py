"""Which runs of a log in Postgres workers are told to look at, and when."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from interlock.domain.call import Question
from interlock.domain.event import (
    ApprovalRequested,
    Event,
    Fact,
    RunCancelled,
    RunCompleted,
    RunPaused,
    RunStarted,
    UserMessageReceived,
    encode_event,
)
from interlock.storage.event_log import QueuedCommand
from interlock.storage.postgres.log import PostgresLog
from tests.each import each
from tests.postgres.server import PostgresServer

from .runs import append, chain

STARTED = RunStarted(schema=1, agent="clerk")
ANSWERED = UserMessageReceived(text="yes")
PAUSED = RunPaused(kind="approval", waiting=("a1",))
QUESTION = Question(
    action_id="a1",
    run_id="run",
    call_id="c1",
    tool_name="pay",
    kind="approval",
    prompt="Pay?",
    arguments={},
    payload_hash="",
    expires_at=1_000_000_000,
)
ASKED = ApprovalRequested(call_id="c1", question=QUESTION)
LONG_AGO = 3600.0


@pytest.fixture
def schema(postgres: PostgresServer) -> str:
    return postgres.new_schema()


@pytest.fixture
async def log(postgres: PostgresServer, schema: str) -> AsyncIterator[PostgresLog]:
    async with postgres.open_log(schema, lease_seconds=1) as log:
        yield log


class Jobs:
    """The jobs of a schema, as workers take them."""

    def __init__(self, server: PostgresServer, schema: str) -> None:
        self._parameters: dict[str, Any] = {"autocommit": True, "options": f"-c search_path={schema}"}
        self._url = server.url

    def take(self) -> list[tuple[str, str]]:
        """Take all: queue and run."""
        with psycopg.connect(self._url, **self._parameters) as connection:
            return connection.execute("DELETE FROM procrastinate_jobs RETURNING queue_name, args->>'run_id'").fetchall()

    def age(self) -> None:
        """Let everything have happened a minute ago."""
        with psycopg.connect(self._url, **self._parameters) as connection:
            connection.execute("UPDATE runs SET touched_at = touched_at - interval '1 minute'")
            connection.execute("UPDATE commands SET queued_at = queued_at - interval '1 minute'")


@pytest.fixture
def jobs(postgres: PostgresServer, schema: str) -> Jobs:
    return Jobs(postgres, schema)


async def record(log: PostgresLog, run_id: str, *facts: Fact, lease: Any = None) -> None:
    """Append events to a run, with its lease if there is one."""
    known = [entry.body for entry in await log.read(run_id)]
    events = [encode_event(Event(seq, run_id, 1, run_id, None, fact)) for seq, fact in enumerate(facts, len(known))]
    await append(log, run_id, chain(run_id, [*known, *events])[len(known) :], lease)


async def start(log: PostgresLog, run_id: str, *facts: Fact, queue: str = "default") -> None:
    await log.assign_queue(run_id, queue)
    await record(log, run_id, STARTED)
    if facts:
        await record(log, run_id, *facts)


async def test_started_run_is_queued_with_its_first_events(log: PostgresLog, jobs: Jobs) -> None:
    await start(log, "run", queue="host-a")
    await record(log, "own", STARTED)

    assert jobs.take() == [("host-a", "run")]


async def test_answer_queues_one_job_when_the_run_is_free(log: PostgresLog, jobs: Jobs) -> None:
    await start(log, "run", PAUSED)
    jobs.take()

    lease = await log.acquire("run")
    await record(log, "run", ANSWERED, lease=lease)
    assert not jobs.take(), "no worker could have it"
    await log.release(lease)
    await log.queues.wake(["run"])

    assert jobs.take() == [("default", "run")]


@each("fact", [PAUSED, RunCompleted()])
async def test_nothing_is_queued_for_a_run_that_cannot_continue(log: PostgresLog, jobs: Jobs, fact: Fact) -> None:
    run_id = type(fact).__name__
    await start(log, run_id)
    jobs.take()

    lease = await log.acquire(run_id)
    await record(log, run_id, ANSWERED, fact, lease=lease)
    await log.release(lease)

    assert not jobs.take()


async def test_answered_child_wakes_the_outermost_run(log: PostgresLog, jobs: Jobs) -> None:
    await start(log, "run", PAUSED)
    await record(log, "inner", RunStarted(schema=1, parent_run_id="run"))
    await record(log, "innermost", RunStarted(schema=1, parent_run_id="inner"), PAUSED)
    assert await log.queues.look("run")
    assert await log.queues.settle("run")
    jobs.take()

    lease = await log.acquire("innermost")
    await record(log, "innermost", ANSWERED, lease=lease)
    await log.release(lease)

    assert jobs.take() == [("default", "run")]
    assert await log.queues.look("run")


async def _wait_for_child(log: PostgresLog, jobs: Jobs, *above: str) -> None:
    """Let the last of these runs, each the parent of the next, wait for the run `child`."""
    await start(log, above[0])
    for parent, child in pairwise((*above, "child")):
        await record(log, child, RunStarted(schema=1, parent_run_id=parent), PAUSED)
    assert await log.queues.look(above[0])
    await record(log, above[0], PAUSED)
    jobs.take()


async def test_parent_of_a_child_that_a_dead_process_ended_is_woken(
    log: PostgresLog, jobs: Jobs, postgres: PostgresServer, schema: str
) -> None:
    await _wait_for_child(log, jobs, "run", "inner")
    assert await log.queues.settle("run")
    other = postgres.open_log(schema)
    await record(other, "child", RunCancelled(), lease=await other.acquire("child"))
    await other.close()

    assert await log.queues.reconcile(LONG_AGO) == ["inner"]
    assert jobs.take() == [("default", "run")]
    assert await log.queues.look("run")
    assert await log.queues.settle("run")
    assert await log.queues.reconcile(LONG_AGO) == [], "once"


async def test_run_whose_child_ended_meanwhile_is_not_settled(log: PostgresLog, jobs: Jobs) -> None:
    """The child ends between the last look of its parent at it, and the pause of the parent."""
    await start(log, "run")
    await record(log, "child", RunStarted(schema=1, parent_run_id="run"), PAUSED)
    assert await log.queues.look("run")
    lease = await log.acquire("run")
    await record(log, "child", RunCancelled())
    await record(log, "run", PAUSED, lease=lease)
    await log.release(lease)

    assert not await log.queues.settle("run")
    assert await log.queues.look("run")
    assert await log.queues.settle("run")


async def test_parent_written_with_the_end_of_its_child_is_not_settled(log: PostgresLog, jobs: Jobs) -> None:
    """Both appends wait for the writer, so one statement may have both."""
    await _wait_for_child(log, jobs, "run")
    await asyncio.gather(*(record(log, run_id, fact) for run_id, fact in [("run", PAUSED), ("child", RunCancelled())]))

    assert not await log.queues.settle("run")


async def test_run_that_was_woken_meanwhile_is_not_settled(log: PostgresLog, jobs: Jobs) -> None:
    await start(log, "run")
    assert await log.queues.look("run")
    await log.queues.wake(["run"])
    assert not await log.queues.settle("run")

    assert await log.queues.look("run")
    assert await log.queues.settle("run")
    assert not await log.queues.look("run")


async def test_run_with_more_events_is_not_settled(log: PostgresLog, jobs: Jobs) -> None:
    """One worker found that the run waits. Before it says so, the run is answered, and a second one looks."""
    await start(log, "run", PAUSED)
    await record(log, "run", ANSWERED)
    assert await log.queues.look("run"), "the second one"
    assert not await log.queues.settle("run", seq=2)
    jobs.take()
    jobs.age()

    assert await log.queues.reconcile(LONG_AGO) == ["run"]
    assert await log.queues.look("run")
    assert await log.queues.settle("run", seq=3)


async def test_held_run_is_left_to_its_process(log: PostgresLog) -> None:
    await start(log, "run")
    lease = await log.acquire("run")

    assert not await log.queues.look("run")
    await log.release(lease)
    assert await log.queues.look("run")


async def _lose_job(log: PostgresLog, jobs: Jobs, run_id: str) -> None:
    await start(log, run_id)
    jobs.age()


async def _leave_command(log: PostgresLog, jobs: Jobs, run_id: str) -> None:
    await start(log, run_id, PAUSED)
    await log.enqueue(run_id, QueuedCommand("a1", b"{}"))
    jobs.age()


async def _expire(log: PostgresLog, jobs: Jobs, run_id: str) -> None:
    await start(log, run_id, ASKED, PAUSED)


async def _postpone(log: PostgresLog, jobs: Jobs, run_id: str) -> None:
    await start(log, run_id)
    assert await log.queues.look(run_id)
    await log.queues.postpone(run_id, 0)


async def _wait(log: PostgresLog, jobs: Jobs, run_id: str) -> None:
    await start(log, run_id, PAUSED)
    jobs.age()


async def _hold(log: PostgresLog, jobs: Jobs, run_id: str) -> None:
    await start(log, run_id)
    await log.acquire(run_id)
    jobs.age()


async def _end(log: PostgresLog, jobs: Jobs, run_id: str) -> None:
    await start(log, run_id, ASKED, RunCompleted())
    jobs.age()


async def _settle_for_later(log: PostgresLog, jobs: Jobs, run_id: str) -> None:
    await start(log, run_id, ASKED)
    assert await log.queues.look(run_id)
    assert await log.queues.settle(run_id, 4_000_000_000 * 10**9)
    jobs.age()


@each(
    "prepare, woken",
    [
        (_lose_job, True),
        (_leave_command, True),
        (_expire, True),
        (_postpone, True),
        (_wait, False),
        (_hold, False),
        (_end, False),
        (_settle_for_later, False),
    ],
)
async def test_reconciling_finds_what_no_process_has(log: PostgresLog, jobs: Jobs, prepare: Any, woken: bool) -> None:
    run_id = prepare.__name__
    await prepare(log, jobs, run_id)
    jobs.take()

    assert (run_id in await log.queues.reconcile(LONG_AGO)) is woken
    assert (("default", run_id) in jobs.take()) is woken


async def test_run_of_a_dead_process_is_woken(log: PostgresLog, postgres: PostgresServer, schema: str) -> None:
    await start(log, "run")
    other = postgres.open_log(schema)
    await other.acquire("run")
    Jobs(postgres, schema).take()
    assert not await log.queues.reconcile(LONG_AGO)

    await other.close()
    assert await log.queues.reconcile(LONG_AGO) == ["run"]
    assert await log.queues.reconcile(LONG_AGO) == [], "it is queued"
