"""What other processes do to a run while `ToolRuntime` works on it, and between its batches."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from interlock import (
    CallbackInteractionProvider,
    HeadlessInteractionProvider,
    Question,
    Rule,
    RulePolicy,
    RunState,
    SqliteLog,
    ToolRuntime,
    tool,
)
from interlock.runs.inbox import Inbox
from interlock.storage.event_log import EventLog, Lease
from tests.log_around import LogAround
from tests.patience import HANG_SECONDS
from tests.pipeline.batch.stage import PATIENCE, Stage, codes
from tests.support import call

POLICY = RulePolicy([Rule(id="ask", tools="ask", verdict="ask", reason="Ask.")], default="allow")


@pytest.fixture
async def logs(tmp_path: Path) -> AsyncIterator[tuple[EventLog, Inbox]]:
    """The log of the runtime, and the inbox of another process on the same file."""
    path = tmp_path / "runs.db"
    async with SqliteLog(path) as log, SqliteLog(path) as other, Inbox(other) as inbox:
        yield log, inbox


def runtime_on(log: EventLog, stage: Stage, **options: Any) -> ToolRuntime:
    tools = [
        tool(stage.act, name="ask", concurrency="safe"),
        tool(stage.play, name="play", concurrency="safe", risk="write"),
    ]
    options.setdefault("interaction", HeadlessInteractionProvider("wait"))
    return ToolRuntime(tools=tools, policy=POLICY, log=log, run_id="run_1", **options)


async def lease_is_held(log: EventLog) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while "run_1" not in await log.lease_holders():
            pass


async def test_an_answer_from_elsewhere_while_a_sibling_runs_is_applied(logs: tuple[EventLog, Inbox]) -> None:
    (log, inbox), stage = logs, Stage()
    async with runtime_on(log, stage) as runtime, asyncio.timeout(PATIENCE):
        running = asyncio.create_task(runtime.execute([call("c1", "ask", name="a"), call("c2", "play", name="b")]))
        await stage.started("b")
        while not (pending := await inbox.pending("run_1")):
            pass
        await inbox.approve(pending[0], by="ana")
        stage.let_go("b")
        result = await running

        assert codes(result) == {"c2": "ok"}
        assert codes(await runtime.resume()) == {"c1": "ok"}
        assert (await runtime.verify()).ok
        assert await log.lease_holders() == {}


async def test_a_cancellation_from_elsewhere_ends_a_running_call(logs: tuple[EventLog, Inbox]) -> None:
    (log, inbox), stage = logs, Stage()
    async with runtime_on(log, stage) as runtime, asyncio.timeout(PATIENCE):
        running = asyncio.create_task(runtime.execute([call("c1", "play", name="a")]))
        await stage.started("a")
        await lease_is_held(log)
        assert await inbox.cancel("run_1", "Enough.", by="ana") == "queued"
        result = await running

        assert (codes(result), result.state) == ({"c1": "cancelled"}, RunState.CANCELLED)
        assert await log.lease_holders() == {}


async def test_an_answer_between_two_batches_is_seen(logs: tuple[EventLog, Inbox]) -> None:
    (log, inbox), stage = logs, Stage()
    async with runtime_on(log, stage) as runtime:
        paused = await runtime.execute([call("c1", "ask", name="a")])
        assert await inbox.approve(paused.questions[0], by="ana") == "recorded"

        assert codes(await runtime.resume()) == {"c1": "ok"}


async def test_the_lease_is_released_after_a_cancelled_batch(logs: tuple[EventLog, Inbox]) -> None:
    (log, inbox), stage = logs, Stage()
    async with runtime_on(log, stage) as runtime, asyncio.timeout(PATIENCE):
        running = asyncio.create_task(runtime.execute([call("c1", "play", name="a")]))
        await stage.started("a")
        await lease_is_held(log)
        running.cancel()
        await asyncio.wait([running])

    assert await log.lease_holders() == {}
    assert await inbox.cancel("run_1") == "recorded"


async def test_the_lease_is_held_while_a_person_is_asked(logs: tuple[EventLog, Inbox]) -> None:
    (log, _), holders = logs, list[object]()

    async def think(question: Question) -> bool:
        holders.extend(await log.lease_holders())
        return True

    async with runtime_on(log, Stage(), interaction=CallbackInteractionProvider(think)) as runtime:
        assert codes(await runtime.execute([call("c1", "ask", name="a")])) == {"c1": "ok"}
    assert holders == ["run_1"]


async def test_an_earlier_answer_from_elsewhere_counts(logs: tuple[EventLog, Inbox]) -> None:
    (log, inbox), stage = logs, Stage()

    async def think(question: Question) -> bool:
        await inbox.reject(question, by="ana")
        return True

    async with runtime_on(log, stage, interaction=CallbackInteractionProvider(think)) as runtime:
        await runtime.execute([call("c1", "ask", name="a")])
        [action] = await runtime.actions()
    assert (action.status, stage.seen) == ("REJECTED", [])


async def test_a_question_beside_other_calls_acquires_the_lease(logs: tuple[EventLog, Inbox]) -> None:
    """Others may answer it before the batch is over, and must not fence its calls."""
    log, stage, acquired = LogAround(logs[0]), Stage(), list[str]()

    async def acquire(run_id: str, *, force: bool = False) -> Lease:
        acquired.append(run_id)
        return await logs[0].acquire(run_id, force=force)

    log.acquire = acquire
    stage.let_go("b")
    async with runtime_on(log, stage) as runtime:
        await runtime.execute([call("c1", "ask", name="a"), call("c2", "play", name="b")])
    assert acquired == ["run_1"]
