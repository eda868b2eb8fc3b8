"""How a failure or a timeout is told: in the default words, in the tool's own words, or by raising."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from interlock import (
    BatchResult,
    ToolContext,
    ToolError,
    ToolExecutionError,
    ToolRuntime,
    ToolTimeoutError,
    tool,
)
from tests.patience import HANG_SECONDS
from tests.support import call


async def fail() -> None:
    raise ZeroDivisionError("division by zero")


async def hang() -> None:
    await asyncio.Event().wait()


async def run(handler: Callable[[], Awaitable[None]], **options: Any) -> BatchResult:
    timeout = {"timeout_seconds": 0.02} if handler is hang else {}
    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=[tool(handler, **timeout, **options)]) as runtime:
        return await runtime.execute([call("c1", handler.__name__)])


def own_words(ctx: ToolContext, error: BaseException) -> str:
    return f"{ctx.tool_name} ({ctx.call_id}) says sorry: {type(error).__name__}"


def broken_words(ctx: ToolContext, error: BaseException) -> str:
    raise RuntimeError("no words")


@pytest.mark.requirement("R122", "R073")
@pytest.mark.parametrize(
    ("handler", "code", "words"),
    [
        (fail, "tool_failed", "fail failed: ZeroDivisionError: division by zero"),
        (hang, "timed_out", "hang did not finish in 0.02 s (in its handler)."),
    ],
)
async def test_by_default_the_model_reads_what_happened(handler: Any, code: str, words: str) -> None:
    result = await run(handler)

    assert (result.observations[0].ok, result.observations[0].code) == (False, code)
    assert words in result.messages[0]["content"]
    assert result.tool_executions[0].error == result.observations[0].summary


@pytest.mark.requirement("R122")
@pytest.mark.parametrize(
    ("handler", "option", "words"),
    [
        (fail, "failure_error_function", "fail (c1) says sorry: ZeroDivisionError"),
        (hang, "timeout_error_function", "hang (c1) says sorry: TimeoutError"),
    ],
)
async def test_a_tool_may_have_words_of_its_own(handler: Any, option: str, words: str) -> None:
    result = await run(handler, **{option: own_words})

    assert result.tool_executions[0].error == words
    assert words in result.messages[0]["content"]


@pytest.mark.requirement("R122")
@pytest.mark.parametrize(("handler", "option"), [(fail, "timeout_error_function"), (hang, "failure_error_function")])
async def test_the_words_for_failures_and_for_timeouts_are_not_mixed_up(handler: Any, option: str) -> None:
    result = await run(handler, **{option: own_words})

    assert "sorry" not in result.messages[0]["content"]


@pytest.mark.requirement("R122")
@pytest.mark.parametrize(("handler", "option"), [(fail, "failure_error_function"), (hang, "timeout_error_function")])
async def test_words_that_cannot_be_found_do_not_hide_the_failure(handler: Any, option: str) -> None:
    result = await run(handler, **{option: broken_words})

    assert result.observations[0].ok is False
    assert handler.__name__ in result.messages[0]["content"]
    assert "no words" in result.messages[0]["content"]


@pytest.mark.requirement("R110", "R122")
async def test_without_conversion_an_ordinary_exception_reaches_the_caller() -> None:
    with pytest.raises(ToolExecutionError, match="division by zero") as raised:
        await run(fail, failure_error_function=None)

    assert isinstance(raised.value.__cause__, ZeroDivisionError)


@pytest.mark.requirement("R122")
async def test_without_conversion_of_failures_a_timeout_is_still_a_result() -> None:
    result = await run(hang, failure_error_function=None)

    assert result.observations[0].code == "timed_out"


@pytest.mark.requirement("R122")
async def test_a_timeout_is_raised_where_its_conversion_is_switched_off() -> None:
    with pytest.raises(ToolTimeoutError, match="did not finish"):
        await run(hang, timeout_behavior="raise_exception")


@pytest.mark.requirement("R122")
async def test_without_conversion_of_timeouts_a_failure_is_still_a_result() -> None:
    result = await run(fail, timeout_behavior="raise_exception")

    assert result.observations[0].code == "tool_failed"


@pytest.mark.requirement("R110")
async def test_what_was_raised_is_recorded_all_the_same() -> None:
    async with ToolRuntime(tools=[tool(fail, failure_error_function=None)]) as runtime:
        with pytest.raises(ToolError):
            await runtime.execute([call("c1", "fail")])
        records = await runtime.tool_executions()

    assert [(record.success, record.tool_call_id) for record in records] == [(False, "c1")]


@pytest.mark.requirement("R073")
@pytest.mark.parametrize("option", ["default_timeout", "timeout_seconds"])
async def test_a_tool_that_exceeds_its_own_timeout_gives_a_timeout_error_in_the_result(option: str) -> None:
    timeout: dict[str, Any] = {option: 0.02}
    slow = tool(hang, name="slow", **timeout)

    @tool
    async def quick() -> str:
        return "done"

    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=[slow, quick]) as runtime:
        result = await runtime.execute([call("c1", "slow"), call("c2", "quick")])

    assert [observation.code for observation in result.observations] == ["timed_out", "ok"]
    assert "slow did not finish in 0.02 s" in (result.tool_executions[0].error or "")


@pytest.mark.requirement("D06")
async def test_a_thread_that_timed_out_has_unknown_effects_and_is_not_run_again() -> None:
    released, runs = threading.Event(), list[str]()

    @tool(timeout_seconds=1)  # enough for the thread to begin on a busy machine
    def block(ctx: ToolContext) -> None:
        runs.append(ctx.call_id)
        released.wait(HANG_SECONDS)

    try:
        async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=[block]) as runtime:
            first = await runtime.execute([call("c1", "block")])
            again = await runtime.execute([call("c1", "block")])
    finally:
        released.set()

    assert (first.observations[0].code, first.observations[0].side_effects) == ("timed_out", "unknown")
    assert again.observations == first.observations
    assert runs == ["c1"]
