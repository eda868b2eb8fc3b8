"""What goes wrong in a call is a result that the model can go on from; raising must be asked for."""

import asyncio
from typing import Any, Literal

import pytest

from interlock import (
    AgentExecutionError,
    BatchResult,
    FailSafeConfig,
    RunState,
    SandboxDeniedError,
    ToolContext,
    ToolError,
    ToolExecutionError,
    ToolRuntime,
    ToolTimeoutError,
    ToolValidationError,
    UnknownToolError,
    tool,
    tool_result,
)
from tests.each import each
from tests.patience import HANG_SECONDS
from tests.support import call, facts, handle_events


class _Quit(BaseException):
    """Not an ordinary exception: some frameworks end a program with one of their own."""


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even the text fails")


async def run(definition: Any, seconds: float = 5, **arguments: object) -> BatchResult:
    """One call of one tool."""
    async with asyncio.timeout(seconds), ToolRuntime(tools=[definition]) as runtime:
        return await runtime.execute([call("c1", definition.name, **arguments)])


@pytest.mark.requirement("R070", "R074")
@each("is_async", [True, False])
@each(
    "error",
    [
        ValueError("bad luck"),
        KeyError("missing"),
        TimeoutError("the server is slow"),
        asyncio.CancelledError("from inside"),
        StopIteration(),
        RecursionError(),
        SystemExit(3),
        ExceptionGroup("several", [ValueError("one"), ValueError("two")]),
        _Mute(),
        _Quit("enough"),
    ],
)
async def test_whatever_a_handler_raises_becomes_an_unsuccessful_result_with_a_message(
    error: BaseException, is_async: bool
) -> None:
    async def work() -> None:
        raise error

    def work_in_thread() -> None:
        raise error

    result = await run(tool(work if is_async else work_in_thread), seconds=1)

    [observation] = result.observations
    got = tool_result(observation)
    assert (got.success, got.output) == (False, None)
    assert got.error_message
    assert observation.failure is not None
    assert observation.failure.phase == "execute"
    assert observation.code != "timed_out"
    assert result.state is RunState.RUNNING


@pytest.mark.requirement("R070", "R074")
async def test_the_message_of_an_exception_reaches_the_model() -> None:
    @tool
    async def work() -> None:
        raise ValueError("the disk is full")

    result = await run(work)

    assert result.observations[0].code == "tool_failed"
    assert "ValueError: the disk is full" in result.messages[0]["content"]


@pytest.mark.requirement("R051", "R052", "R072")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "input.count is required"),
        ({"count": "three"}, "input.count: Input should be a valid integer (got 'three')"),
        ({"count": 3, "cuont": 4}, "input.cuont is not a known field (did you mean count?)"),
    ],
)
async def test_arguments_that_do_not_fit_are_a_validation_error_whose_message_reaches_the_model(
    arguments: dict[str, Any], said: str
) -> None:
    ran: list[int] = []

    @tool
    async def order(count: int) -> None:
        ran.append(count)

    result = await run(order, **arguments)

    [observation] = result.observations
    assert (observation.ok, observation.code, ran) == (False, "schema_invalid", [])
    assert said in observation.summary
    assert said.partition(" (got")[0] in result.messages[0]["content"]
    assert "Nothing was executed." in observation.summary


@pytest.mark.requirement("R072")
async def test_a_model_that_corrects_its_arguments_gets_on() -> None:
    @tool
    async def order(count: int) -> str:
        return f"ordered {count}"

    async with ToolRuntime(tools=[order]) as runtime:
        first = await runtime.execute([call("c1", "order", count="three")])
        second = await runtime.execute([call("c2", "order", count=3)])

    assert (first.observations[0].ok, second.tool_executions[0].output) == (False, "ordered 3")


def _declared(**options: Any) -> list[Any]:
    async def fail(number: int = 0) -> None:
        raise ValueError("bad luck")

    async def hang() -> None:
        await asyncio.Event().wait()

    async def work() -> None: ...

    def bad_hook(arguments: object) -> None: ...

    return [
        tool(fail, **options),
        tool(hang, timeout_seconds=0.02, **options),
        tool(work, pre_hooks=[bad_hook], **options),
    ]


FAILURES: list[tuple[str, dict[str, Any], type[ToolError]]] = [
    ("fail", {}, ToolExecutionError),
    ("fail", {"number": "x"}, ToolValidationError),
    ("hang", {}, ToolTimeoutError),
    ("work", {}, ToolExecutionError),
]


@pytest.mark.requirement("R070")
@pytest.mark.parametrize(("name", "arguments", "error"), FAILURES)
async def test_failures_are_not_raised_unless_the_tool_says_so(
    name: str, arguments: dict[str, Any], error: type[ToolError]
) -> None:
    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=_declared()) as runtime:
        result = await runtime.execute([call("c1", name, **arguments)])

    assert [observation.ok for observation in result.observations] == [False]


@pytest.mark.requirement("R071", "R072", "R073", "R074")
@pytest.mark.parametrize(("name", "arguments", "error"), FAILURES)
async def test_a_tool_that_raises_on_error_raises_the_same_failures_and_they_are_recorded(
    name: str, arguments: dict[str, Any], error: type[ToolError]
) -> None:
    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=_declared(raise_on_error=True)) as runtime:
        with pytest.raises(ToolError) as raised:
            await runtime.execute([call("c1", name, **arguments)])
        [record] = await runtime.tool_executions()

    assert type(raised.value) is error
    assert raised.value.observation.call_id == "c1"
    assert (record.success, record.error) == (False, str(raised.value))


@pytest.mark.requirement("D09")
@pytest.mark.parametrize(
    ("name", "code"), [("serach", "unknown_tool"), ("hidden", "tool_not_visible"), ("retired", "tool_not_visible")]
)
async def test_an_unknown_or_disabled_tool_is_an_observation_that_names_the_tools_there_are(
    name: str, code: str
) -> None:
    @tool
    async def search() -> None: ...

    @tool(visible=lambda situation: False)
    async def hidden() -> None: ...

    @tool(visible=lambda situation: "Use search instead.")
    async def retired() -> None: ...

    async with ToolRuntime(tools=[search, hidden, retired]) as runtime:
        result = await runtime.execute([call("c1", name), call("c2", "search")])

    [refused, searched] = result.observations
    assert (refused.ok, refused.code, searched.ok) == (False, code, True)
    assert refused.failure is not None
    assert refused.failure.details["available_tools"] == ["read_artifact", "search"]
    assert "Available tools: read_artifact, search." in result.messages[0]["content"]
    assert result.state is RunState.RUNNING


@pytest.mark.requirement("D09")
async def test_an_unknown_tool_is_raised_only_where_that_was_asked_for() -> None:
    async with ToolRuntime(missing_tool="raise") as runtime:
        with pytest.raises(UnknownToolError, match="There is no tool 'serach'"):
            await runtime.execute([call("c1", "serach")])


async def _raise() -> None:
    raise ValueError("bad luck")


async def _hang() -> None:
    await asyncio.Event().wait()


async def _blocked() -> None:
    raise SandboxDeniedError("no network here")


def _returns_none(arguments: object) -> None: ...


TOOL_FAILURES: dict[str, dict[str, Any]] = {
    "raised": {"handler": _raise},
    "timed out": {"handler": _hang, "timeout_seconds": 0.02},
    "blocked by the sandbox": {"handler": _blocked},
    "pre-hook failed": {"handler": _raise, "pre_hooks": [_returns_none]},
}


@pytest.mark.requirement("R078")
@each("kind", TOOL_FAILURES)
@each("policy", [None, "continue", "degrade", "fail"])
async def test_after_a_tool_failure_the_policy_decides_and_it_is_to_continue(
    policy: Literal["continue", "degrade", "fail"] | None, kind: str
) -> None:
    options = dict(TOOL_FAILURES[kind])
    work = tool(options.pop("handler"), name="work", **options)
    fail_safe = FailSafeConfig() if policy is None else FailSafeConfig(tool_failure_policy=policy)
    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=[work], fail_safe=fail_safe) as runtime:
        try:
            result = await runtime.execute([call("c1", "work")])
        except AgentExecutionError as raised:
            assert policy == "fail"
            observations, message = raised.observations, str(raised)
        else:
            observations, message = result.observations, result.message
        state = await runtime.state()

    ends = {"degrade": RunState.DEGRADED, "fail": RunState.FAILED}
    assert state is ends.get(policy or "", RunState.RUNNING)
    assert [observation.ok for observation in observations] == [False]
    assert ("work" in message) is (policy in ends)


@pytest.mark.requirement("R078")
@pytest.mark.parametrize("policy", ["degrade", "fail"])
async def test_a_tool_failure_that_ends_the_run_skips_what_has_not_started(policy: Literal["degrade", "fail"]) -> None:
    ran: list[str] = []

    @tool(concurrency="exclusive")
    async def fail() -> None:
        raise ValueError("bad luck")

    @tool(concurrency="exclusive")
    async def after(ctx: ToolContext) -> None:
        ran.append(ctx.call_id)

    fail_safe = FailSafeConfig(tool_failure_policy=policy)
    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=[fail, after], fail_safe=fail_safe) as runtime:
        try:
            observations = (await runtime.execute([call("c1", "fail"), call("c2", "after")])).observations
        except AgentExecutionError as raised:
            observations = raised.observations

    assert [observation.code for observation in observations] == ["tool_failed", "skipped"]
    assert ran == []


@pytest.mark.requirement("R078")
async def test_arguments_that_do_not_fit_are_no_failure_of_the_tool() -> None:
    @tool
    async def order(count: int) -> None: ...

    fail_safe = FailSafeConfig(tool_failure_policy="fail")
    async with ToolRuntime(tools=[order], fail_safe=fail_safe) as runtime:
        result = await runtime.execute([call("c1", "order"), call("c2", "nothing")])

    assert result.state is RunState.RUNNING


@pytest.mark.requirement("R052")
async def test_a_failure_before_the_gate_is_recorded_and_published_without_a_decision() -> None:
    @tool
    async def order(count: int) -> None: ...

    async with ToolRuntime(tools=[order]) as runtime:
        await runtime.execute([call("c1", "order")])
        published = [event.type for event in await handle_events(runtime)]
        recorded = [type(fact).__name__ for fact in await facts(runtime)]

    assert published == ["tool_batch_started", "tool_completed"]
    assert recorded[-3:] == ["CallProposed", "CallValidated", "CallObserved"]
