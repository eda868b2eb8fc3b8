"""Batches of one run that come at the same time, the loop they share, and what is left when they are done."""

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock import HeadlessInteractionProvider, LogWriteError, RunState, SqliteLog, ToolContext, ToolRuntime, tool
from tests.pipeline.batch.stage import PATIENCE, Stage, codes, others_ran, walk
from tests.support import call


async def test_two_batches_of_one_run_are_served_one_after_the_other() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.play, name="play")])

    first = asyncio.create_task(runtime.execute([call("c1", "play", name="a")]))
    await stage.started("a")
    second = asyncio.create_task(runtime.execute([call("c2", "play", name="b")]))
    third = asyncio.create_task(runtime.execute([call("c3", "play", name="c")]))
    await others_ran()
    assert stage.starts() == ["a"]
    stage.let_go("a", "b", "c")
    async with asyncio.timeout(PATIENCE):
        results = [await first, await second, await third]

    assert [codes(result) for result in results] == [{"c1": "ok"}, {"c2": "ok"}, {"c3": "ok"}]
    assert stage.seen == ["a starts", "a ends", "b starts", "b ends", "c starts", "c ends"]
    assert (await runtime.verify()).ok


@pytest.mark.requirement("R101")
async def test_a_batch_that_is_cancelled_before_its_turn_leaves_no_trace_and_the_next_one_is_served() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.play, name="play")])
    first = asyncio.create_task(runtime.execute([call("c1", "play", name="a")]))
    await stage.started("a")
    second = asyncio.create_task(runtime.execute([call("c2", "play", name="b")]))
    third = asyncio.create_task(runtime.execute([call("c3", "play", name="c")]))
    await others_ran()

    second.cancel()
    stage.let_go("a", "b", "c")
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([first, second, third])

    assert second.cancelled()
    assert stage.starts() == ["a", "c"]
    assert await walk(runtime, "c2") == []


async def test_the_same_call_in_two_batches_at_once_runs_once() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.act, name="act")])
    calls = [call("c1", "act", name="a")]

    first, second = await asyncio.gather(runtime.execute(calls), runtime.execute(calls))

    assert stage.starts() == ["a"]
    assert first.observations == second.observations


async def test_a_reader_that_opens_the_run_at_the_same_time_shares_it(tmp_path: Path) -> None:
    stage = Stage()
    async with ToolRuntime(tools=[tool(stage.act, name="act")], log=SqliteLog(tmp_path / "runs.db")) as runtime:
        await asyncio.gather(
            runtime.execute([call("c1", "act", name="a")]),
            runtime.state(),
            runtime.execute([call("c2", "act", name="b")]),
            runtime.state(),
        )
        assert codes(await runtime.execute([call("c3", "act", name="c")])) == {"c3": "ok"}
        assert (await runtime.verify()).ok

    assert stage.starts() == ["a", "b", "c"]


@pytest.mark.requirement("R107")
async def test_sync_handlers_of_one_batch_run_in_threads_at_once_and_the_loop_goes_on() -> None:
    together = threading.Barrier(4)

    def work() -> str:
        together.wait(PATIENCE)
        return threading.current_thread().name

    async with ToolRuntime(tools=[work]) as runtime:
        running = asyncio.create_task(runtime.execute([call(f"c{n}", "work") for n in range(3)]))
        await others_ran()
        assert await asyncio.to_thread(together.wait, PATIENCE) >= 0
        result = await running

    assert [observation.ok for observation in result.observations] == [True, True, True]
    names = {record.output for record in result.tool_executions}
    assert len(names) == 3
    assert threading.current_thread().name not in names


@pytest.mark.requirement("R108")
async def test_async_handlers_run_in_the_loop_under_a_timeout() -> None:
    seen: list[Any] = []

    async def work() -> None:
        seen.append((asyncio.get_running_loop(), threading.get_ident()))
        await asyncio.Event().wait()

    runtime = ToolRuntime(tools=[tool(work, timeout_seconds=0.02)])
    async with asyncio.timeout(PATIENCE):
        result = await runtime.execute([call("c1", "work")])

    assert seen == [(asyncio.get_running_loop(), threading.get_ident())]
    assert codes(result) == {"c1": "timed_out"}


def in_words(text: str) -> Callable[[ToolContext, BaseException], str]:
    return lambda context, error: text


@pytest.mark.requirement("R109")
@pytest.mark.parametrize(
    ("options", "timed_out", "failed"),
    [
        ({}, "did not finish in 0.02 s", "ValueError: bad went wrong"),
        ({"timeout_error_function": in_words("try less")}, "try less", "ValueError: bad went wrong"),
        ({"failure_error_function": in_words("oh no")}, "did not finish in 0.02 s", "oh no"),
    ],
    ids=["default", "words for timeouts", "words for failures"],
)  # fmt: skip
async def test_timeouts_and_exceptions_are_put_into_words_apart(
    options: dict[str, Any], timed_out: str, failed: str
) -> None:
    stage = Stage()
    stage.let_go("bad")
    tools = [
        tool(stage.play, name="hang", timeout_seconds=0.02, **options),
        tool(stage.fail, name="fail", timeout_seconds=PATIENCE, **options),
    ]

    async with asyncio.timeout(PATIENCE):
        result = await ToolRuntime(tools=tools).execute([call("c1", "hang", name="h"), call("c2", "fail", name="bad")])

    assert codes(result) == {"c1": "timed_out", "c2": "tool_failed"}
    assert timed_out in result.observations[0].summary
    assert failed in result.observations[1].summary


@pytest.mark.requirement("R113", "R123")
async def test_a_runtime_that_is_closed_has_released_its_threads_left_no_task_and_not_closed_a_log_it_was_given(
    tmp_path: Path,
) -> None:
    of_thread, ended = threading.local(), threading.Event()

    def in_thread() -> str:
        of_thread.value = Kept()
        weakref.finalize(of_thread.value, ended.set)
        return "done"

    log = SqliteLog(tmp_path / "runs.db")
    async with ToolRuntime(tools=[in_thread], log=log) as runtime:
        assert codes(await runtime.execute([call("c1", "in_thread")])) == {"c1": "ok"}

    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await asyncio.to_thread(ended.wait, PATIENCE)
    assert await log.run_ids() == [runtime.run_id]
    await log.close()
    with pytest.raises(LogWriteError):
        await runtime.execute([call("c2", "in_thread")])


class Kept:
    """Something that lives as long as its thread."""


@pytest.mark.requirement("R113")
async def test_runtimes_with_logs_of_their_own_share_nothing() -> None:
    stage = Stage()
    runtimes = [
        ToolRuntime(tools=[tool(stage.act, name="act", risk="write")], interaction=HeadlessInteractionProvider(word))
        for word in ("wait", "approve")
    ]

    waiting, done = [await runtime.execute([call("c1", "act", name=f"{n}")]) for n, runtime in enumerate(runtimes)]

    assert (waiting.state, done.state) == (RunState.PAUSED_APPROVAL, RunState.RUNNING)
    assert stage.starts() == ["1"]
    assert runtimes[0].run_id != runtimes[1].run_id


@pytest.mark.requirement("R106")
@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are no eager tasks before Python 3.12")
async def test_eager_tasks_change_nothing() -> None:
    stage = Stage()
    asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory", None))
    runtime = ToolRuntime(tools=[tool(stage.act, name="act"), tool(stage.fail, name="fail")], max_concurrency=2)
    stage.let_go("b")

    async with asyncio.timeout(PATIENCE):
        result = await runtime.execute(
            [call("c1", "act", name="a"), call("c2", "fail", name="b"), call("c3", "act", name="c")]
        )

    assert codes(result) == {"c1": "ok", "c2": "tool_failed", "c3": "ok"}
    assert stage.starts() == ["a", "b", "c"]


async def test_a_deadline_does_not_keep_a_run_in_memory() -> None:
    stage = Stage()
    stage.let_go("a")
    runtime = ToolRuntime(tools=[tool(stage.play, name="play", timeout_seconds=600)])
    await runtime.execute([call("c1", "play", name="a")])

    gone = weakref.ref(runtime.registry)
    del runtime
    gc.collect()

    assert gone() is None
