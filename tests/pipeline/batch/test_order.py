"""In which order the calls of a turn run, what runs beside what, and in which order their outcomes come back."""

import asyncio
from itertools import permutations
from typing import Any

import pytest

from interlock import RulePolicy, ToolContext, ToolRuntime, tool
from interlock.domain.event import InvocationStarted
from tests.patience import eventually
from tests.pipeline.batch.stage import PATIENCE, Stage, codes, others_ran
from tests.support import call, facts

ALLOW = RulePolicy(default="allow")


def edited(arguments: dict[str, Any]) -> str:
    return f"file:{arguments['path']}"


@pytest.mark.requirement("R098", "R106")
@pytest.mark.parametrize("order", list(permutations("abc")), ids="".join)
async def test_outcomes_are_in_model_order_in_whatever_order_the_handlers_end(order: tuple[str, ...]) -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.play, name="play")])

    running = asyncio.create_task(runtime.execute([call(f"c{name}", "play", name=name) for name in "abc"]))
    await stage.started(*"abc")
    for name in order:
        stage.let_go(name)
        await stage.ended(name)
    result = await running

    assert [line for line in stage.seen if line.endswith("ends")] == [f"{name} ends" for name in order]
    assert [observation.call_id for observation in result.observations] == ["ca", "cb", "cc"]
    assert [message["tool_call_id"] for message in result.messages] == ["ca", "cb", "cc"]
    assert [record.output for record in result.tool_executions] == ["a done", "b done", "c done"]


@pytest.mark.requirement("R097", "R121")
@pytest.mark.parametrize("cap", [1, 2, 7])
async def test_no_more_handlers_than_the_cap_run_at_once_however_many_calls_come(cap: int) -> None:
    stage, names = Stage(), [f"{n}" for n in range(9)]
    runtime = ToolRuntime(tools=[tool(stage.play, name="play")], max_concurrency=cap)

    running = asyncio.create_task(runtime.execute([call(f"c{name}", "play", name=name) for name in names]))
    for number, name in enumerate(names):
        running_now = min(cap, len(names) - number)
        await eventually(lambda most=running_now: len(stage.running) == most)
        await others_ran()
        stage.let_go(name)
        await stage.ended(name)
    result = await running

    assert stage.most_running == cap
    assert stage.starts() == names
    assert [observation.call_id for observation in result.observations] == [f"c{name}" for name in names]


@pytest.mark.requirement("R121", "R223")
async def test_with_a_cap_of_one_calls_run_one_by_one_in_model_order() -> None:
    stage = Stage()
    stage.let_go(*"abc")
    runtime = ToolRuntime(tools=[tool(stage.play, name="play")], max_concurrency=1)

    await runtime.execute([call(f"c{name}", "play", name=name) for name in "cab"])

    assert stage.seen == ["c starts", "c ends", "a starts", "a ends", "b starts", "b ends"]


@pytest.mark.requirement("R220", "R223")
async def test_three_reads_that_are_proposed_together_run_together() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.play, name="read", risk="read")])

    running = asyncio.create_task(runtime.execute([call(f"c{name}", "read", name=name) for name in "abc"]))
    await stage.started(*"abc")

    assert stage.running == {"a", "b", "c"}
    stage.let_go(*"abc")
    await running


@pytest.mark.requirement("R221")
async def test_a_test_command_that_is_proposed_with_an_edit_runs_after_it() -> None:
    stage = Stage()
    tools = [
        tool(stage.play, name="edit", risk="write", write_keys=edited),
        tool(stage.play, name="run_tests", risk="execute"),
    ]
    runtime = ToolRuntime(tools=tools, policy=ALLOW)

    running = asyncio.create_task(
        runtime.execute([call("c1", "edit", name="edit", path="a.py"), call("c2", "run_tests", name="tests")])
    )
    await stage.started("edit")
    await others_ran()
    assert stage.running == {"edit"}
    stage.let_go("edit", "tests")
    await running

    assert stage.seen == ["edit starts", "edit ends", "tests starts", "tests ends"]


@pytest.mark.requirement("R217", "R222")
async def test_two_edits_of_one_file_take_turns_and_an_edit_of_another_file_does_not_wait() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.play, name="edit", risk="write", write_keys=edited)], policy=ALLOW)

    running = asyncio.create_task(
        runtime.execute(
            [
                call("c1", "edit", name="first", path="a.py"),
                call("c2", "edit", name="second", path="a.py"),
                call("c3", "edit", name="other", path="b.py"),
            ]
        )
    )
    await stage.started("first", "other")
    await others_ran()
    assert stage.running == {"first", "other"}
    stage.let_go("first", "second", "other")
    await running

    assert stage.seen.index("first ends") < stage.seen.index("second starts")


@pytest.mark.requirement("R217")
async def test_readers_of_one_key_run_together_and_a_writer_waits_for_both() -> None:
    stage = Stage()
    tools = [tool(stage.play, name="read", read_keys=edited), tool(stage.play, name="write", write_keys=edited)]
    runtime = ToolRuntime(tools=tools)

    running = asyncio.create_task(
        runtime.execute(
            [
                call("c1", "read", name="a", path="p"),
                call("c2", "read", name="b", path="p"),
                call("c3", "write", name="c", path="p"),
                call("c4", "read", name="d", path="p"),
            ]
        )
    )
    await stage.started("a", "b")
    await others_ran()
    assert stage.running == {"a", "b"}
    stage.let_go("a")
    await others_ran()
    assert stage.running == {"b"}
    stage.let_go("b", "c", "d")
    await running

    assert stage.starts() == ["a", "b", "c", "d"]
    assert stage.seen.index("c ends") < stage.seen.index("d starts")


@pytest.mark.requirement("R223")
@pytest.mark.parametrize("risk", ["write", "execute", "delegate"])
async def test_what_may_write_or_execute_runs_one_by_one_unless_it_says_otherwise(risk: str) -> None:
    stage = Stage()
    stage.let_go(*"abc")
    runtime = ToolRuntime(tools=[tool(stage.play, name="do", risk=risk)], policy=ALLOW)

    await runtime.execute([call(f"c{name}", "do", name=name) for name in "abc"])

    assert stage.most_running == 1
    assert stage.starts() == ["a", "b", "c"]


async def test_a_call_whose_keys_cannot_be_computed_runs_alone() -> None:
    stage = Stage()
    stage.let_go(*"ab")

    def broken(_: dict[str, Any]) -> str:
        raise KeyError("path")

    runtime = ToolRuntime(tools=[tool(stage.play, name="play", write_keys=broken)])

    result = await runtime.execute([call("ca", "play", name="a"), call("cb", "play", name="b")])

    assert codes(result) == {"ca": "ok", "cb": "ok"}
    assert stage.most_running == 1


@pytest.mark.requirement("R227")
async def test_the_log_shows_that_a_call_started_after_the_end_of_the_one_it_waited_for() -> None:
    stage = Stage()
    stage.let_go("first", "second")
    runtime = ToolRuntime(tools=[tool(stage.play, name="edit", write_keys=edited)])

    await runtime.execute(
        [call("c1", "edit", name="first", path="a.py"), call("c2", "edit", name="second", path="a.py")]
    )

    events = [(step.event.type, step.event.correlation_id) for step in await runtime.replay()]
    order = [
        ("tool.permission", "c2"),
        ("tool.invocation.started", "c1"),
        ("tool.invocation.completed", "c1"),
        ("tool.invocation.started", "c2"),
    ]
    assert [event for event in events if event in order] == order


@pytest.mark.requirement("R218", "R224", "R228")
async def test_an_execution_has_an_id_a_tool_a_timeout_a_way_to_cancel_and_a_way_to_report_progress() -> None:
    said: list[tuple[str, str]] = []
    ready, never = asyncio.Event(), asyncio.Event()

    async def work(context: ToolContext) -> None:
        context.progress(f"{context.tool_name} is half way")
        ready.set()
        await never.wait()

    definition = tool(work, concurrency="exclusive")
    runtime = ToolRuntime(tools=[definition], on_progress=lambda call_id, message: said.append((call_id, message)))
    running = asyncio.create_task(runtime.execute([call("c1", "work")]))
    async with asyncio.timeout(PATIENCE):
        await ready.wait()
        assert said == [("c1", "work is half way")]
        runtime.cancel_call("c1")
        result = await running

    assert codes(result) == {"c1": "cancelled"}
    [started] = [fact for fact in await facts(runtime) if isinstance(fact, InvocationStarted)]
    assert (started.tool, started.call_id, started.timeout_seconds) == ("work", "c1", 60.0)
    assert started.invocation_id.startswith("inv_")
    assert definition.concurrency == "exclusive"


@pytest.mark.requirement("R227")
async def test_the_log_says_behind_which_calls_a_call_waited_and_when_only_for_a_free_turn() -> None:
    stage = Stage()
    tools = [tool(stage.play, name="play"), tool(stage.play, name="alone", concurrency="exclusive")]
    capped, lined = ToolRuntime(tools=tools, max_concurrency=1), ToolRuntime(tools=tools)

    first = capped.execute([call("ca", "play", name="a"), call("cb", "play", name="b")])
    second = lined.execute([call(f"c{name}", "play", name=name) for name in "de"] + [call("cf", "alone", name="f")])
    running = asyncio.gather(first, second)
    await stage.started("a", "d", "e")
    stage.let_go(*"abdef")
    await running

    assert await waits(capped) == {"ca": (), "cb": ("cap",)}
    assert await waits(lined) == {"cd": (), "ce": (), "cf": ("cd", "ce")}


async def waits(runtime: ToolRuntime) -> dict[str, tuple[str, ...]]:
    return {fact.call_id: fact.waited_for for fact in await facts(runtime) if isinstance(fact, InvocationStarted)}
