"""Cancelling one call is an outcome of that call; cancelling the run around it is not."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from interlock import (
    CallbackInteractionProvider,
    FailSafeConfig,
    Limits,
    LogWriteError,
    MemoryLog,
    Question,
    RunEndedError,
    RunState,
    ToolContext,
    ToolRuntime,
    tool,
)
from interlock.app import App
from interlock.domain.event import InvocationCompleted, LogEntry
from interlock.domain.observation import Observation
from interlock.domain.tool import CallContext
from interlock.storage.event_log import Lease
from tests.patience import eventually
from tests.pipeline.batch.stage import PATIENCE, Stage, codes, others_ran, walk
from tests.support import call, facts

QUICK = Limits(drain_seconds=0.02)


@pytest.fixture
async def unnoticed() -> AsyncIterator[list[dict[str, Any]]]:
    """What the event loop had to report because nobody else noticed it. The test must end with none."""
    reports: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context))
    yield reports
    await others_ran()
    gc.collect()
    await others_ran()
    assert reports == []


async def cancelled(running: "asyncio.Task[Any]") -> None:
    running.cancel()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([running])
    assert running.cancelled()


@pytest.mark.requirement("R099", "R100", "R121", "R225")
async def test_a_cancelled_call_is_shown_as_cancelled_and_its_siblings_go_on() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.play, name="play")])

    running = asyncio.create_task(runtime.execute([call(f"c{name}", "play", name=name) for name in "abc"]))
    await stage.started(*"abc")
    runtime.cancel_call("cb")
    await eventually(lambda: stage.running == {"a", "c"})
    stage.let_go("a", "c")
    result = await running

    assert codes(result) == {"ca": "ok", "cb": "cancelled", "cc": "ok"}
    assert result.observations[1].side_effects == "unknown"
    assert "cancelled" in result.messages[1]["content"]
    assert result.state is RunState.RUNNING


@pytest.mark.requirement("R100")
async def test_a_cancelled_call_follows_the_policy_for_tool_failures() -> None:
    stage = Stage()
    runtime = ToolRuntime(
        tools=[tool(stage.play, name="play")], fail_safe=FailSafeConfig(tool_failure_policy="degrade")
    )

    running = asyncio.create_task(runtime.execute([call("c1", "play", name="a")]))
    await stage.started("a")
    runtime.cancel_call("c1")
    async with asyncio.timeout(PATIENCE):
        result = await running

    assert result.state is RunState.DEGRADED


@pytest.mark.requirement("R100")
async def test_a_call_that_is_cancelled_before_its_turn_never_starts() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.play, name="play")], max_concurrency=1)

    running = asyncio.create_task(runtime.execute([call("c1", "play", name="a"), call("c2", "play", name="b")]))
    await stage.started("a")
    runtime.cancel_call("c2")
    stage.let_go("a")
    result = await running

    assert codes(result) == {"c1": "ok", "c2": "cancelled_before_start"}
    assert stage.starts() == ["a"]


@pytest.mark.requirement("R225")
async def test_a_call_that_is_cancelled_while_a_guardrail_looks_at_it_never_starts() -> None:
    stage, guarding, go_on = Stage(), asyncio.Event(), asyncio.Event()

    async def slow_guardrail(_: Any) -> None:
        guarding.set()
        await go_on.wait()

    runtime = ToolRuntime(tools=[tool(stage.act, name="act", input_guardrails=[slow_guardrail])])
    running = asyncio.create_task(runtime.execute([call("c1", "act", name="a")]))
    async with asyncio.timeout(PATIENCE):
        await guarding.wait()
        runtime.cancel_call("c1")
        go_on.set()
        result = await running

    assert codes(result) == {"c1": "cancelled_before_start"}
    assert stage.seen == []


@pytest.mark.requirement("R225")
async def test_a_call_that_is_cancelled_while_a_person_is_asked_ends_without_the_answer() -> None:
    stage, asked, never = Stage(), asyncio.Event(), asyncio.Event()

    async def slow_person(_: Question) -> bool:
        asked.set()
        await never.wait()
        return True

    interaction = CallbackInteractionProvider(slow_person, approval_timeout_s=None)
    runtime = ToolRuntime(tools=[tool(stage.act, name="act", risk="write")], interaction=interaction)
    running = asyncio.create_task(runtime.execute([call("c1", "act", name="a")]))
    async with asyncio.timeout(PATIENCE):
        await asked.wait()
        runtime.cancel_call("c1")
        result = await running

    assert codes(result) == {"c1": "cancelled_before_start"}
    assert stage.seen == []


@pytest.mark.requirement("R101", "R104", "R121", "R123")
@pytest.mark.usefixtures("unnoticed")
async def test_cancelling_the_run_reaches_its_calls_at_once_and_shows_the_model_nothing() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.play, name="play")], max_concurrency=2)

    running = asyncio.create_task(runtime.execute([call(f"c{name}", "play", name=name) for name in "abc"]))
    await stage.started("a", "b")
    await cancelled(running)
    await eventually(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    assert stage.seen == ["a starts", "b starts", "a is cancelled", "b is cancelled"]
    recorded = await facts(runtime)
    ends = [(fact.call_id, fact.exit) for fact in recorded if isinstance(fact, InvocationCompleted)]
    assert ends == [("ca", "cancelled"), ("cb", "cancelled")]
    assert await runtime.tool_executions() == []
    assert (await runtime.verify()).ok


@pytest.mark.usefixtures("unnoticed")
async def test_a_call_that_ends_in_the_very_moment_of_the_cancellation_is_no_fault() -> None:
    started, ready = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> None:
        started.set()
        await ready.wait()

    async with ToolRuntime(tools=[wait]) as runtime:
        running = asyncio.ensure_future(runtime.execute([call("c1", "wait")]))
        await started.wait()
        ready.set()
        await cancelled(running)


@pytest.mark.requirement("R101", "R123")
async def test_a_runtime_whose_batch_was_cancelled_is_usable_afterwards() -> None:
    stage = Stage()
    runtime = ToolRuntime(
        tools=[tool(stage.play, name="play", concurrency="exclusive")], max_concurrency=1, limits=QUICK
    )
    running = asyncio.create_task(runtime.execute([call("c1", "play", name="a"), call("c2", "play", name="b")]))
    await stage.started("a")
    await cancelled(running)

    stage.let_go("c")
    async with asyncio.timeout(PATIENCE):
        result = await runtime.execute([call("c3", "play", name="c")])

    assert codes(result) == {"c3": "ok"}
    assert stage.starts() == ["a", "c"]


@pytest.mark.requirement("R101", "R104", "R123")
@pytest.mark.usefixtures("unnoticed")
async def test_a_handler_that_ignores_the_cancellation_delays_neither_it_nor_the_next_batch() -> None:
    stage = Stage()
    tools = [tool(stage.ignore, name="stubborn", concurrency="exclusive"), tool(stage.act, name="act")]
    runtime = ToolRuntime(tools=tools, max_concurrency=1, limits=QUICK)

    running = asyncio.create_task(runtime.execute([call("c1", "stubborn", name="s")]))
    await stage.started("s")
    await cancelled(running)
    try:
        async with asyncio.timeout(PATIENCE):
            assert codes(await runtime.execute([call("c2", "act", name="a")])) == {"c2": "ok"}
        assert (await walk(runtime, "c1"))[-1] == "tool.invocation.completed"
    finally:
        stage.let_go("s")
        await eventually(lambda: stage.seen[-1] == "s ends late")

    assert "tool.observation" not in await walk(runtime, "c1")


@pytest.mark.requirement("R104", "R105", "R123")
@pytest.mark.usefixtures("unnoticed")
async def test_an_exception_that_comes_after_the_cancellation_is_noticed() -> None:
    stage = Stage()

    async def fail_late(name: str) -> None:
        try:
            await stage.play(name)
        finally:
            raise OSError(f"{name} could not clean up")

    runtime = ToolRuntime(tools=[tool(fail_late)])
    running = asyncio.create_task(
        runtime.execute([call("c1", "fail_late", name="a"), call("c2", "fail_late", name="b")])
    )
    await stage.started("a", "b")
    await cancelled(running)
    await eventually(lambda: stage.running == set())
    await others_ran()

    assert await runtime.tool_executions() == []


@pytest.mark.requirement("R101", "R104")
@pytest.mark.usefixtures("unnoticed")
async def test_a_thread_that_runs_on_after_the_cancellation_is_told_and_its_late_failure_is_noticed() -> None:
    started, go_on, finished, told = threading.Event(), threading.Event(), threading.Event(), list[bool]()

    def work(context: ToolContext) -> None:
        started.set()
        go_on.wait(PATIENCE)
        told.append(context.cancelled)
        finished.set()
        raise OSError("too late")

    async with ToolRuntime(tools=[work], limits=QUICK) as runtime:
        running = asyncio.create_task(runtime.execute([call("c1", "work")]))
        assert await asyncio.to_thread(started.wait, PATIENCE)
        await cancelled(running)
        go_on.set()
        assert await asyncio.to_thread(finished.wait, PATIENCE)
        assert (await walk(runtime, "c1"))[-1] == "tool.invocation.completed"
        assert await runtime.tool_executions() == []
    assert told == [True]


@pytest.mark.requirement("R101", "R111", "R123")
@pytest.mark.usefixtures("unnoticed")
async def test_a_run_that_is_cancelled_while_an_output_guardrail_looks_has_a_recorded_end_for_the_call() -> None:
    stage, guarding, never = Stage(), asyncio.Event(), asyncio.Event()

    async def slow_guardrail(_: Any) -> None:
        guarding.set()
        await never.wait()

    runtime = ToolRuntime(tools=[tool(stage.act, name="act", output_guardrails=[slow_guardrail])])
    running = asyncio.create_task(runtime.execute([call("c1", "act", name="a")]))
    async with asyncio.timeout(PATIENCE):
        await guarding.wait()
    await cancelled(running)
    await others_ran()

    assert await runtime.tool_executions() == []
    assert (await walk(runtime, "c1"))[-1] == "tool.invocation.completed"


class HeldLog(MemoryLog):
    """A log that takes its time, or fails, from a certain kind of event on."""

    def __init__(self, mark: bytes, *, fail: bool = False) -> None:
        super().__init__()
        self.mark = mark
        self.fail = fail
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    def append(  # pyright: ignore[reportIncompatibleMethodOverride] - the protocol allows both
        self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None
    ) -> "asyncio.Future[None] | None":
        if not any(self.mark in entry.body for entry in entries):
            return super().append(run_id, entries, lease)
        if self.fail:
            raise LogWriteError("the disk is full")
        self.mark = b"nothing any more"
        super().append(run_id, entries, lease)
        self.reached.set()
        return asyncio.ensure_future(self._hold())

    async def _hold(self) -> None:
        await self.go_on.wait()


@pytest.mark.requirement("R101", "R123")
@pytest.mark.usefixtures("unnoticed")
async def test_a_run_that_is_cancelled_while_a_start_is_written_does_not_start_and_records_that_end() -> None:
    stage, log = Stage(), HeldLog(b'"tool.invocation.started"')
    runtime = ToolRuntime(tools=[tool(stage.act, name="act")], log=log)

    running = asyncio.create_task(runtime.execute([call("c1", "act", name="a")]))
    async with asyncio.timeout(PATIENCE):
        await log.reached.wait()
    await cancelled(running)
    log.go_on.set()
    await others_ran()

    assert stage.seen == []
    assert (await walk(runtime, "c1"))[-1] == "tool.invocation.completed"


@pytest.mark.requirement("R123")
@pytest.mark.usefixtures("unnoticed")
async def test_a_log_that_fails_at_the_start_of_one_call_ends_the_batch_and_starts_none() -> None:
    stage, log = Stage(), HeldLog(b'"tool.invocation.started"', fail=True)
    runtime = ToolRuntime(tools=[tool(stage.act, name="act")], log=log)

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(LogWriteError, match="the disk is full"):
            await runtime.execute([call(f"c{n}", "act", name=f"{n}") for n in (1, 2, 3)])

    assert stage.seen == []


@pytest.mark.requirement("R225", "R226")
@pytest.mark.parametrize("policy", ["continue", "degrade", "fail"])
async def test_ending_the_run_cancels_what_runs_and_starts_nothing_more(policy: Any) -> None:
    stage = Stage()
    runtime = ToolRuntime(
        tools=[tool(stage.play, name="play", concurrency="exclusive")],
        fail_safe=FailSafeConfig(tool_failure_policy=policy),
    )

    running = asyncio.create_task(runtime.execute([call("c1", "play", name="a"), call("c2", "play", name="b")]))
    await stage.started("a")
    stage.let_go("b")
    async with asyncio.timeout(PATIENCE):
        await runtime.cancel("Enough.")
        result = await running

    assert stage.seen == ["a starts", "a is cancelled"]
    assert result.state is RunState.CANCELLED
    assert (await runtime.verify()).ok
    with pytest.raises(RunEndedError):
        await runtime.execute([call("c3", "play", name="b")])


@pytest.mark.requirement("R226")
async def test_a_handler_that_hangs_times_out_and_its_siblings_have_their_results() -> None:
    stage = Stage()
    tools = [tool(stage.play, name="hang", timeout_seconds=0.02), tool(stage.act, name="act")]
    runtime = ToolRuntime(tools=tools)

    async with asyncio.timeout(PATIENCE):
        result = await runtime.execute([call("c1", "hang", name="h"), call("c2", "act", name="a")])

    assert codes(result) == {"c1": "timed_out", "c2": "ok"}


@pytest.mark.requirement("R226", "R123")
async def test_a_handler_that_hangs_and_ignores_its_timeout_is_left_behind_and_its_place_is_free() -> None:
    stage = Stage()
    tools = [
        tool(stage.ignore, name="stubborn", concurrency="exclusive", timeout_seconds=0.02),
        tool(stage.act, name="act", concurrency="exclusive"),
    ]
    runtime = ToolRuntime(tools=tools, limits=QUICK, max_concurrency=1)

    try:
        async with asyncio.timeout(PATIENCE):
            result = await runtime.execute([call("c1", "stubborn", name="s"), call("c2", "act", name="a")])
        assert codes(result) == {"c1": "timed_out", "c2": "ok"}
    finally:
        stage.let_go("s")
        await others_ran()

    assert codes(await runtime.execute([call("c1", "stubborn", name="s")])) == {"c1": "timed_out"}


async def test_cancelling_one_batch_leaves_the_other_batches_of_the_run() -> None:
    stage = Stage()
    app = App(tools=[tool(stage.play, name="play")])
    run = await app.open(CallContext(run_id="run_1"))

    one = asyncio.create_task(app.execute(run, [call("c1", "play", name="a")]))
    other = asyncio.create_task(app.execute(run, [call("c2", "play", name="b"), call("c3", "play", name="c")]))
    await stage.started(*"abc")
    run.cancellation.cancel_call("c3")
    await cancelled(one)
    stage.let_go("b")
    async with asyncio.timeout(PATIENCE):
        outcome = await other

    assert [seen.code for seen in outcome.outcomes if isinstance(seen, Observation)] == ["ok", "cancelled"]
    await app.close()


async def test_a_failure_ends_only_the_calls_of_its_own_batch() -> None:
    stage = Stage()
    app = App(tools=[tool(stage.play, name="play"), tool(stage.fail, name="fail", raise_on_error=True)])
    run = await app.open(CallContext(run_id="run_1"))

    one = asyncio.create_task(app.execute(run, [call("c1", "fail", name="a")]))
    other = asyncio.create_task(app.execute(run, [call("c2", "play", name="b")]))
    await stage.started(*"ab")
    stage.let_go("a")
    assert (await one).error is not None
    stage.let_go("b")
    async with asyncio.timeout(PATIENCE):
        outcome = await other

    assert [seen.code for seen in outcome.outcomes if isinstance(seen, Observation)] == ["ok"]
    await app.close()
