"""`diagnose` of a tool: what it finds is part of the observation, and it never decides about the call."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from interlock import LogEntry, MemoryLog, Observation, ToolContext, ToolDefinition, ToolRuntime, tool
from interlock.domain.event import CallObserved, InvocationCompleted, InvocationStarted
from interlock.domain.outcome import SideEffect
from interlock.domain.tool import Diagnostics
from tests.support import call, facts

PATCH = SideEffect(kind="modified", target="a.py")
Find = Callable[[dict[str, Any]], Awaitable[Diagnostics | None]]


def patch_tool(find: Find, **options: Any) -> ToolDefinition:
    def patch(context: ToolContext, path: str) -> str:
        context.side_effect("modified", path)
        return "patched"

    async def diagnose(arguments: dict[str, Any], facts: dict[str, Any], context: ToolContext) -> Diagnostics | None:
        return await find(arguments)

    return tool(patch, risk="write", diagnose=diagnose, **options)


async def observe(find: Find, secrets: dict[str, str] | None = None, **options: Any) -> Observation:
    async with ToolRuntime(tools=[patch_tool(find, **options)], mode="trusted", secrets=secrets) as runtime:
        return (await runtime.execute([call("c1", "patch", path="a.py")])).observations[0]


async def one_problem(arguments: dict[str, Any]) -> Diagnostics:
    return Diagnostics(text=f"{arguments['path']}:3:5 undefined name tok-1234567890", summary="1 problem")


@pytest.mark.requirement("R236")
async def test_findings_follow_the_output_redacted() -> None:
    observation = await observe(one_problem, {"key": "tok-1234567890"})

    assert observation.ok
    assert observation.content is not None
    assert observation.content.text == "patched\n\na.py:3:5 undefined name [redacted:key]"
    assert observation.user_text.endswith("; 1 problem")


async def raise_error(arguments: dict[str, Any]) -> Diagnostics | None:
    raise OSError("no such checker")


async def find_much(arguments: dict[str, Any]) -> Diagnostics | None:
    return Diagnostics(text="x" * 1_000_000)


async def find_nothing(arguments: dict[str, Any]) -> Diagnostics | None:
    return None


@pytest.mark.parametrize(
    ("find", "text"),
    [
        (raise_error, "patched\n\nDiagnostics: failed: OSError: no such checker"),
        (find_much, f"patched\n\n{'x' * 6_000} [... 994,000 more characters]"),
        (find_nothing, "patched"),
    ],
)
async def test_diagnostics_never_fail_a_call(find: Find, text: str) -> None:
    observation = await observe(find)

    assert observation.ok
    assert observation.content is not None
    assert observation.content.text == text
    assert observation.side_effects == (PATCH,)


async def test_output_guardrails_see_findings() -> None:
    def refuse(output: str) -> str | None:
        return "no problems, please" if "undefined" in output else None

    observation = await observe(one_problem, output_guardrails=[refuse])

    assert observation.content is not None
    assert observation.content.text == "patched\n\nDiagnostics: withheld: no problems, please"


async def test_a_failed_call_is_not_diagnosed() -> None:
    found: list[object] = []

    def fail(path: str) -> str:
        raise ValueError(path)

    async def diagnose(*arguments: object) -> Diagnostics | None:
        found.append(arguments)
        return None

    async with ToolRuntime(tools=[tool(fail, risk="write", diagnose=diagnose)], mode="trusted") as runtime:
        [observation] = (await runtime.execute([call("c1", "fail", path="a.py")])).observations

    assert (observation.code, found) == ("tool_failed", [])


async def test_cancelling_the_call_ends_only_its_diagnostics() -> None:
    runtime: ToolRuntime

    async def hang(arguments: dict[str, Any]) -> Diagnostics | None:
        asyncio.get_running_loop().call_soon(runtime.cancel_call, "c1")
        await asyncio.Event().wait()
        return None

    async with ToolRuntime(tools=[patch_tool(hang)], mode="trusted") as runtime:
        [observation] = (await runtime.execute([call("c1", "patch", path="a.py")])).observations
        ends = [fact for fact in await facts(runtime) if isinstance(fact, InvocationCompleted)]

    assert (observation.ok, observation.side_effects) == (True, (PATCH,))
    assert observation.content is not None
    assert observation.content.text == "patched\n\nDiagnostics: stopped before they ended"
    assert [end.exit for end in ends] == ["ok"]


async def test_cancelling_the_batch_keeps_the_outcome_of_the_call() -> None:
    begun = asyncio.Event()

    async def hang(arguments: dict[str, Any]) -> Diagnostics | None:
        begun.set()
        await asyncio.Event().wait()
        return None

    async with ToolRuntime(tools=[patch_tool(hang)], mode="trusted") as runtime:
        running = asyncio.ensure_future(runtime.execute([call("c1", "patch", path="a.py")]))
        await begun.wait()
        running.cancel()
        await asyncio.wait([running])
        [observation] = (await runtime.resume()).observations or [
            fact.observation for fact in await facts(runtime) if isinstance(fact, CallObserved)
        ]

    assert (observation.ok, observation.side_effects) == (True, (PATCH,))


async def test_the_end_is_in_the_log_before_diagnostics() -> None:
    """As if the process died while they ran: the next one knows what the call did, and does not do it again."""
    log, copied = MemoryLog(), list[LogEntry]()

    async def copy(arguments: dict[str, Any]) -> Diagnostics | None:
        copied.extend(await log.read("run_1"))
        return None

    async with ToolRuntime(tools=[patch_tool(copy)], mode="trusted", log=log, run_id="run_1") as runtime:
        await runtime.execute([call("c1", "patch", path="a.py")])
    later = MemoryLog()
    later.append("run_1", copied)
    async with ToolRuntime(tools=[patch_tool(copy)], mode="trusted", log=later, run_id="run_1") as runtime:
        [observation] = (await runtime.resume()).observations
        starts = [fact for fact in await facts(runtime) if isinstance(fact, InvocationStarted)]

    assert (observation.ok, observation.side_effects, len(starts)) == (True, (PATCH,), 1)
    assert "had been done" in observation.summary
