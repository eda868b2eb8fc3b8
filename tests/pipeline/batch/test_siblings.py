"""What the failure of one call does to the other calls of its turn: usually nothing, at most what was configured."""

import asyncio
import os
import threading
from typing import Any

import pytest

from interlock import (
    AgentExecutionError,
    CallbackInteractionProvider,
    FailSafeConfig,
    Limits,
    Question,
    Rule,
    RulePolicy,
    RunEndedError,
    RunState,
    ToolContext,
    ToolDefinition,
    ToolExecutionError,
    ToolRuntime,
    ToolValidationError,
    tool,
)
from tests.patience import eventually
from tests.pipeline.batch.stage import PATIENCE, Stage, codes, others_ran, walk
from tests.support import call

QUICK = Limits(drain_seconds=0.02, check_seconds=0.5)


class NotAnException(BaseException):
    """What a library raises that wants to get past every `except Exception`."""


def breaking(error: BaseException) -> ToolDefinition:
    async def broken() -> None:
        raise error

    return tool(broken, name="broken")


@pytest.mark.requirement("P08", "R099", "R121")
@pytest.mark.parametrize(
    "error",
    [RuntimeError("boom"), StopIteration(), SystemExit(3), asyncio.CancelledError(), NotAnException("odd"),
     ExceptionGroup("many", [ValueError(1), KeyError("x")]), BaseExceptionGroup("odd", [NotAnException()])],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
async def test_an_unexpected_error_in_one_call_leaves_its_siblings_and_the_run_alone(error: BaseException) -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.play, name="play"), breaking(error)])

    running = asyncio.create_task(
        runtime.execute([call("c1", "play", name="a"), call("c2", "broken"), call("c3", "play", name="b")])
    )
    await stage.started("a", "b")
    await others_ran()
    stage.let_go("a", "b")
    async with asyncio.timeout(PATIENCE):
        result = await running

    assert codes(result) | {"c2": ""} == {"c1": "ok", "c2": "", "c3": "ok"}
    assert codes(result)["c2"] in ("tool_failed", "cancelled")
    assert result.state is RunState.RUNNING
    assert codes(await runtime.execute([call("c4", "play", name="a")])) == {"c4": "ok"}
    assert (await runtime.verify()).ok


@pytest.mark.requirement("R099")
async def test_what_a_sibling_had_done_before_the_failure_is_kept_when_the_failure_raises() -> None:
    stage = Stage()
    tools = [tool(stage.act, name="act"), tool(stage.fail, name="fail", raise_on_error=True)]
    runtime = ToolRuntime(tools=tools)

    running = asyncio.create_task(runtime.execute([call("c1", "act", name="a"), call("c2", "fail", name="b")]))
    await stage.started("b")
    stage.let_go("b")
    with pytest.raises(ToolExecutionError, match="b went wrong"):
        await running

    again = await runtime.execute([call("c1", "act", name="a")])
    assert [record.output for record in again.tool_executions] == ["a done"]
    assert stage.starts() == ["a", "b"]


def fails(stage: Stage) -> list[ToolDefinition]:
    return [tool(stage.fail, name="bad"), tool(stage.play, name="play")]


@pytest.mark.requirement("R099")
async def test_policy_continue_goes_on_after_a_failure_and_after_a_denial() -> None:
    stage = Stage()
    stage.let_go("b", "p")
    policy = RulePolicy([Rule(id="no", verdict="deny", tools="denied")])
    runtime = ToolRuntime(tools=[*fails(stage), tool(stage.act, name="denied")], policy=policy, max_concurrency=1)

    result = await runtime.execute(
        [call("c1", "denied", name="d"), call("c2", "bad", name="b"), call("c3", "play", name="p")]
    )

    assert codes(result) == {"c1": "policy_denied", "c2": "tool_failed", "c3": "ok"}
    assert result.state is RunState.RUNNING
    assert not result.degraded


async def test_policy_degrade_lets_what_runs_finish_skips_the_rest_and_ends_the_run_with_a_message() -> None:
    stage = Stage()
    fail_safe = FailSafeConfig(tool_failure_policy="degrade")
    runtime = ToolRuntime(tools=fails(stage), fail_safe=fail_safe, max_concurrency=2)

    running = asyncio.create_task(
        runtime.execute([call("c1", "play", name="p"), call("c2", "bad", name="b"), call("c3", "play", name="late")])
    )
    await stage.started("p", "b")
    stage.let_go("b")
    await others_ran()
    stage.let_go("p")
    async with asyncio.timeout(PATIENCE):
        result = await running

    assert codes(result) == {"c1": "ok", "c2": "tool_failed", "c3": "skipped"}
    assert (result.state, result.degraded) == (RunState.DEGRADED, True)
    assert "b went wrong" in result.message
    assert "late" not in stage.starts()
    with pytest.raises(RunEndedError):
        await runtime.execute([call("c4", "play", name="p")])


async def test_policy_fail_cancels_what_runs_skips_the_rest_and_raises_with_every_outcome() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=fails(stage), fail_safe=FailSafeConfig(tool_failure_policy="fail"), max_concurrency=2)

    running = asyncio.create_task(
        runtime.execute([call("c1", "play", name="p"), call("c2", "bad", name="b"), call("c3", "play", name="late")])
    )
    await stage.started("p", "b")
    stage.let_go("b")
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(AgentExecutionError, match="b went wrong") as raised:
            await running

    outcomes = [(observation.call_id, observation.code) for observation in raised.value.observations]
    assert outcomes == [("c1", "cancelled"), ("c2", "tool_failed"), ("c3", "skipped")]
    assert stage.seen == ["p starts", "b starts", "b fails", "p is cancelled"]
    assert await runtime.state() is RunState.FAILED


@pytest.mark.parametrize("policy", ["degrade", "fail"])
@pytest.mark.parametrize("refusal", ["policy", "person"])
async def test_a_denial_that_ends_the_run_skips_the_calls_that_have_not_started(policy: Any, refusal: str) -> None:
    stage = Stage()
    rules = RulePolicy([Rule(id="r", verdict="deny" if refusal == "policy" else "ask", tools="denied")])
    runtime = ToolRuntime(
        tools=[tool(stage.act, name="act", concurrency="exclusive"), tool(stage.act, name="denied")],
        policy=rules,
        interaction=CallbackInteractionProvider(_refuse),
        fail_safe=FailSafeConfig(approval_denial_policy=policy),
        max_concurrency=1,
    )
    calls = [call("c1", "denied", name="d"), call("c2", "act", name="a"), call("c3", "act", name="b")]

    if policy == "fail":
        with pytest.raises(AgentExecutionError) as raised:
            await runtime.execute(calls)
        observations = raised.value.observations
    else:
        observations = (await runtime.execute(calls)).observations

    refused = "policy_denied" if refusal == "policy" else "user_denied"
    assert observations[0].code == refused
    if refusal == "policy":
        assert [observation.code for observation in observations[1:]] == ["skipped", "skipped"]
        assert stage.seen == []
    assert await runtime.state() is (RunState.FAILED if policy == "fail" else RunState.DEGRADED)


async def _refuse(_: Question) -> bool:
    return False


@pytest.mark.requirement("R102", "R121")
async def test_when_one_call_raises_what_runs_is_cancelled_and_what_waits_is_skipped() -> None:
    stage = Stage()
    tools = [tool(stage.play, name="play"), tool(stage.fail, name="bad", raise_on_error=True)]
    runtime = ToolRuntime(tools=tools, max_concurrency=2)

    running = asyncio.create_task(
        runtime.execute([call("c1", "play", name="p"), call("c2", "bad", name="b"), call("c3", "play", name="late")])
    )
    await stage.started("p", "b")
    stage.let_go("b")
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ToolExecutionError) as raised:
            await running

    assert raised.value.observation.call_id == "c2"
    assert stage.seen == ["p starts", "b starts", "b fails", "p is cancelled"]
    executions = {record.tool_call_id: record.error for record in await runtime.tool_executions()}
    assert set(executions) == {"c1", "c2", "c3"}
    assert "tool.invocation.started" not in await walk(runtime, "c3")
    assert await runtime.state() is RunState.RUNNING


@pytest.mark.requirement("R105")
@pytest.mark.parametrize("order", [("c1", "c2"), ("c2", "c1")])
async def test_of_several_failures_the_first_in_model_order_is_raised(order: tuple[str, str]) -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.act, name="act", raise_on_error=True)])

    with pytest.raises(ToolValidationError) as raised:
        await runtime.execute([call(call_id, "act", wrong=call_id) for call_id in order])

    assert raised.value.observation.call_id == order[0]
    assert {record.tool_call_id for record in await runtime.tool_executions()} == {"c1", "c2"}


@pytest.mark.requirement("R105")
@pytest.mark.parametrize("failing", [0, 1, 2])
async def test_the_failure_is_raised_and_not_the_cancellations_that_it_caused(failing: int) -> None:
    stage = Stage()
    tools = [
        tool(stage.play, name="play", raise_on_error=True),
        tool(stage.fail, name="bad", raise_on_error=True),
    ]
    runtime = ToolRuntime(tools=tools)
    calls = [call(f"c{n}", "bad" if n == failing else "play", name=f"{n}") for n in range(3)]

    running = asyncio.create_task(runtime.execute(calls))
    await stage.started("0", "1", "2")
    stage.let_go(f"{failing}")
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ToolExecutionError) as raised:
            await running

    assert raised.value.observation.code == "tool_failed"
    assert raised.value.observation.call_id == f"c{failing}"


@pytest.mark.requirement("R102", "R123")
async def test_a_cancelled_sibling_that_does_not_end_is_left_behind_after_a_bounded_time() -> None:
    stage = Stage()
    tools = [tool(stage.ignore, name="stubborn"), tool(stage.fail, name="bad", raise_on_error=True)]
    runtime = ToolRuntime(tools=tools, limits=QUICK)

    running = asyncio.create_task(runtime.execute([call("c1", "stubborn", name="s"), call("c2", "bad", name="b")]))
    await stage.started("s", "b")
    stage.let_go("b")
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ToolExecutionError) as raised:
            await running
    assert raised.value.observation.call_id == "c2"
    recorded = await walk(runtime, "c1")
    assert recorded[-2:] == ["tool.invocation.completed", "tool.observation"]

    stage.let_go("s")
    await eventually(lambda: stage.seen[-1] == "s ends late")
    await others_ran()
    assert await walk(runtime, "c1") == recorded
    again = await runtime.execute([call("c1", "stubborn", name="s")])
    assert codes(again) == {"c1": "cancelled"}
    assert again.observations[0].side_effects == "unknown"


@pytest.mark.requirement("R103")
@pytest.mark.parametrize("place", ["post_hooks", "output_guardrails"])
async def test_what_follows_the_handler_of_a_sibling_is_waited_for_only_so_long(place: str) -> None:
    stage, reached, never = Stage(), asyncio.Event(), asyncio.Event()

    async def hang(value: Any) -> Any:
        reached.set()
        await never.wait()
        return value

    options: dict[str, Any] = {place: [hang]}
    tools = [tool(stage.act, name="act", **options), tool(stage.fail, name="bad", raise_on_error=True)]
    runtime = ToolRuntime(tools=tools, limits=QUICK)

    running = asyncio.create_task(runtime.execute([call("c1", "act", name="a"), call("c2", "bad", name="b")]))
    async with asyncio.timeout(PATIENCE):
        await reached.wait()
        stage.let_go("b")
        with pytest.raises(ToolExecutionError) as raised:
            await running

    assert raised.value.observation.call_id == "c2"
    assert (await walk(runtime, "c1"))[-2:] == ["tool.invocation.completed", "tool.observation"]
    records = {record.tool_call_id: record.success for record in await runtime.tool_executions()}
    assert records == {"c1": False, "c2": False}


@pytest.mark.requirement("R102", "R123")
async def test_when_one_call_raises_nobody_waits_for_the_answer_to_a_siblings_question() -> None:
    stage, asked, never = Stage(), asyncio.Event(), asyncio.Event()

    async def slow_person(_: Question) -> bool:
        asked.set()
        await never.wait()
        return True

    tools = [
        tool(stage.act, name="act", risk="write", concurrency="safe"),
        tool(stage.fail, name="bad", raise_on_error=True),
    ]
    interaction = CallbackInteractionProvider(slow_person, approval_timeout_s=None)
    runtime = ToolRuntime(tools=tools, interaction=interaction, limits=QUICK)

    running = asyncio.create_task(runtime.execute([call("c1", "bad", name="b"), call("c2", "act", name="a")]))
    async with asyncio.timeout(PATIENCE):
        await asked.wait()
        stage.let_go("b")
        with pytest.raises(ToolExecutionError):
            await running

    assert stage.starts() == ["b"]


@pytest.mark.requirement("R094", "R123")
@pytest.mark.parametrize("policy", ["degrade", "fail"])
async def test_a_call_that_is_still_being_guarded_when_the_run_ends_does_not_start(policy: Any) -> None:
    stage, guarding, go_on = Stage(), asyncio.Event(), asyncio.Event()

    async def slow_guardrail(_: Any) -> None:
        guarding.set()
        await go_on.wait()

    tools = [tool(stage.act, name="act", input_guardrails=[slow_guardrail]), tool(stage.fail, name="bad")]
    runtime = ToolRuntime(tools=tools, fail_safe=FailSafeConfig(tool_failure_policy=policy))

    running = asyncio.create_task(runtime.execute([call("c1", "act", name="a"), call("c2", "bad", name="b")]))
    async with asyncio.timeout(PATIENCE):
        await guarding.wait()
        await stage.started("b")
        stage.let_go("b")
        await others_ran()
        go_on.set()
        await asyncio.wait([running])

    assert running.exception() is None or isinstance(running.exception(), AgentExecutionError)
    assert stage.starts() == ["b"]


@pytest.mark.requirement("R123")
async def test_a_run_that_ended_early_leaves_no_call_without_an_outcome() -> None:
    stage = Stage()

    async def nobody(_: Question) -> None:
        return None

    runtime = ToolRuntime(
        tools=[tool(stage.act, name="ask_first", risk="write", concurrency="safe"), tool(stage.fail, name="bad")],
        interaction=CallbackInteractionProvider(nobody),
        fail_safe=FailSafeConfig(tool_failure_policy="degrade"),
    )

    running = asyncio.create_task(runtime.execute([call("c1", "ask_first", name="a"), call("c2", "bad", name="b")]))
    await stage.started("b")
    await others_ran()
    stage.let_go("b")
    async with asyncio.timeout(PATIENCE):
        result = await running

    assert result.state is RunState.DEGRADED
    assert result.waiting == ()
    assert codes(result) == {"c1": "skipped", "c2": "tool_failed"}


@pytest.mark.requirement("R103")
async def test_a_post_hook_of_a_sibling_may_finish() -> None:
    """The handler has ended when another call fails: its hook has the drain time, and its outcome stays."""
    in_hook, failed = asyncio.Event(), asyncio.Event()

    async def note(result: dict[str, Any]) -> Any:
        in_hook.set()
        await failed.wait()
        await others_ran(3)
        return result["output"]

    async def save() -> str:
        return "saved"

    async def fail() -> None:
        await in_hook.wait()
        asyncio.get_running_loop().call_soon(failed.set)
        raise ValueError("broken")

    tools = [tool(save, concurrency="safe", post_hooks=(note,)), tool(fail, raise_on_error=True)]
    runtime = ToolRuntime(tools=tools, policy=RulePolicy(default="allow"))

    with pytest.raises(ToolExecutionError, match="broken"):
        await runtime.execute([call("c1", "fail"), call("c2", "save")])

    records = {record.tool_name: record for record in await runtime.tool_executions()}
    assert (records["save"].success, records["save"].output) == (True, "saved")


@pytest.mark.requirement("R105")
@pytest.mark.parametrize("first", ["a", "b"])
async def test_of_failing_threads_the_first_in_model_order_raises(first: str) -> None:
    """Whichever fails first in time: the other one fails after it was asked to end."""
    begun = threading.Barrier(2)

    def fail(name: str, context: ToolContext) -> None:
        begun.wait(PATIENCE)
        while name != first and not context.cancelled:
            os.sched_yield()
        raise ValueError(f"{name} went wrong")

    runtime = ToolRuntime(tools=[tool(fail, name="fail", raise_on_error=True)])

    with pytest.raises(ToolExecutionError, match="a went wrong"):
        await runtime.execute([call("c1", "fail", name="a"), call("c2", "fail", name="b")])

    errors = {record.tool_call_id: record.error for record in await runtime.tool_executions()}
    assert ["went wrong" in str(errors[call_id]) for call_id in ("c1", "c2")] == [True, True]


@pytest.mark.requirement("R105")
@pytest.mark.parametrize("first", ["a", "b"])
async def test_a_failed_run_names_the_first_failure_in_model_order(first: str) -> None:
    begun = threading.Barrier(2)

    def fail(name: str, context: ToolContext) -> None:
        begun.wait(PATIENCE)
        while name != first and not context.cancelled:
            os.sched_yield()
        raise ValueError(f"{name} went wrong")

    runtime = ToolRuntime(tools=[tool(fail, name="fail")], fail_safe=FailSafeConfig(tool_failure_policy="fail"))

    with pytest.raises(AgentExecutionError, match="a went wrong"):
        await runtime.execute([call("c1", "fail", name="a"), call("c2", "fail", name="b")])
