"""How long calls and batches take, measured with a clock that only moves when a test moves it."""

import asyncio
import threading
from typing import Any

import pytest

from interlock import CallbackInteractionProvider, Clock, Question, Rule, RulePolicy, ToolContext, ToolRuntime, tool
from tests.patience import HANG_SECONDS
from tests.support import call

CALL = "agent.tool_call.latency_ms"
BATCH = "agent.tool_batch.latency_ms"


class Time:
    """Elapsed time in nanoseconds, moved by hand."""

    def __init__(self) -> None:
        self.elapsed = 1_000_000_000
        self.clock = Clock(elapsed=lambda: self.elapsed)

    def passes(self, milliseconds: float) -> None:
        self.elapsed += int(milliseconds * 1e6)


@pytest.fixture
def time() -> Time:
    return Time()


def samples(runtime: ToolRuntime, name: str) -> list[tuple[dict[str, Any], int, float]]:
    """Attributes, count and sum in milliseconds of each series."""
    return [(dict(row.attributes), row.count, row.sum) for row in runtime.metrics() if row.name == name]


@pytest.mark.requirement("R036", "R037")
async def test_a_call_is_timed_in_milliseconds_from_the_start_of_its_execution_to_its_end(time: Time) -> None:
    def wait_for_a_person(question: Question) -> bool:
        time.passes(60_000)
        return True

    def pre_hook(arguments: dict[str, Any]) -> dict[str, Any]:
        time.passes(1)
        return arguments

    def post_hook(result: dict[str, Any]) -> Any:
        time.passes(2)
        return result["output"]

    @tool(pre_hooks=[pre_hook], post_hooks=[post_hook])
    async def work() -> None:
        time.passes(4.5)

    policy = RulePolicy([Rule(id="r", verdict="ask", tools="work")])
    interaction = CallbackInteractionProvider(wait_for_a_person)
    async with (
        asyncio.timeout(HANG_SECONDS),
        ToolRuntime(tools=[work], policy=policy, interaction=interaction, clock=time.clock) as runtime,
    ):
        result = await runtime.execute([call("c1", "work")])

        assert [record.latency_ms for record in result.tool_executions] == [7.5]
        assert [record.latency_ms for record in await runtime.tool_executions()] == [7.5]


@pytest.mark.requirement("R036", "R037", "R038", "R061")
async def test_a_call_that_failed_or_timed_out_has_a_latency_too(time: Time) -> None:
    @tool
    async def fail() -> None:
        time.passes(3)
        raise ValueError

    @tool(timeout_seconds=0.02)
    async def hang() -> None:
        time.passes(20)
        await asyncio.Event().wait()

    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=[fail, hang], clock=time.clock) as runtime:
        failed = await runtime.execute([call("c1", "fail")])
        timed_out = await runtime.execute([call("c2", "hang")])
        measured = samples(runtime, CALL)

    assert [record.latency_ms for record in failed.tool_executions + timed_out.tool_executions] == [3, 20]
    assert measured == [
        ({"tool_name": "fail", "result": "error", "source": "execute"}, 1, 3),
        ({"tool_name": "hang", "result": "error", "source": "execute"}, 1, 20),
    ]


@pytest.mark.requirement("R038", "R061", "D13")
async def test_every_executed_call_is_a_sample_by_tool_result_and_source(time: Time) -> None:
    @tool
    async def work(milliseconds: int) -> None:
        time.passes(milliseconds)

    async with ToolRuntime(tools=[work], clock=time.clock) as runtime:
        await runtime.execute([call("c1", "work", milliseconds=2)])
        await runtime.execute([call("c2", "work", milliseconds=7)])
        again = await runtime.execute([call("c2", "work", milliseconds=7)])
        measured = samples(runtime, CALL)

    assert [record.latency_ms for record in again.tool_executions] == [7]
    assert measured == [
        ({"tool_name": "work", "result": "success", "source": "execute"}, 2, 9),
        ({"tool_name": "work", "result": "success", "source": "replay"}, 1, 7),
    ]


@pytest.mark.requirement("R039", "D13")
async def test_a_batch_is_a_sample_of_its_wall_clock_by_number_of_calls_and_failures(time: Time) -> None:
    both = asyncio.Barrier(2)

    @tool
    async def meet(milliseconds: int) -> None:
        await both.wait()
        time.passes(milliseconds)

    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=[meet], clock=time.clock) as runtime:
        await runtime.execute(
            [call("c1", "meet", milliseconds=10), call("c2", "meet", milliseconds=5), call("c3", "?")]
        )
        measured = samples(runtime, BATCH)

    assert measured == [({"call_count": 3, "failure_count": 1}, 1, 15)]


@pytest.mark.requirement("R040")
@pytest.mark.parametrize("verdict", ["deny", "ask"])
async def test_a_call_that_was_refused_has_no_latency_and_no_sample(verdict: str) -> None:
    @tool
    async def work() -> None: ...

    async with ToolRuntime(tools=[work], policy=RulePolicy([Rule(id="r", verdict=verdict, tools="work")])) as runtime:
        result = await runtime.execute([call("c1", "work")])
        measured = samples(runtime, CALL)

    assert [(record.success, record.latency_ms) for record in result.tool_executions] == [(False, None)]
    assert measured == []


@pytest.mark.requirement("R041")
async def test_the_calls_of_a_batch_run_at_the_same_time() -> None:
    everybody = asyncio.Barrier(3)

    @tool
    async def meet() -> str:
        await everybody.wait()
        return "met"

    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=[meet]) as runtime:
        result = await runtime.execute([call("c1", "meet"), call("c2", "meet"), call("c3", "meet")])

    assert [observation.ok for observation in result.observations] == [True, True, True]


@pytest.mark.requirement("R041")
async def test_sync_calls_of_a_batch_run_at_the_same_time() -> None:
    everybody = threading.Barrier(3, timeout=5)

    @tool
    def meet(ctx: ToolContext) -> str:
        everybody.wait()
        return ctx.call_id

    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=[meet]) as runtime:
        result = await runtime.execute([call("c1", "meet"), call("c2", "meet"), call("c3", "meet")])

    assert [record.output for record in result.tool_executions] == ["c1", "c2", "c3"]
