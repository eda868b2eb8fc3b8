"""What the log says of a call: in which order, how it started and how it ended."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from interlock import (
    CallbackInteractionProvider,
    Limits,
    MemoryLog,
    Rule,
    RulePolicy,
    SqliteLog,
    ToolContext,
    ToolRuntime,
    tool,
)
from interlock.domain.event import (
    CallObserved,
    CallProposed,
    Event,
    InvocationCompleted,
    InvocationStarted,
)
from tests.patience import HANG_SECONDS
from tests.support import call, facts

ORDER = [
    "tool.intent",
    "tool.validation",
    "tool.permission",
    "tool.invocation.started",
    "tool.invocation.completed",
    "tool.observation",
]
POLICY = RulePolicy(
    [
        Rule(id="no", verdict="deny", tools="forbidden"),
        Rule(id="later", verdict="ask", tools="asked"),
    ],
    default="allow",
)


@tool(risk="read")
async def look() -> str:
    """Read."""
    return "seen"


@tool(risk="write")
async def write(text: str = "x") -> str:
    """Write."""
    return text


@tool(risk="write")
def write_in_thread() -> str:
    """Write from a thread."""
    return "written"


@tool(risk="write")
async def fail() -> str:
    """Raise."""
    raise ValueError("broken")


@tool(risk="write", timeout_seconds=0.02)
async def hang() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return "never"


async def events_of(runtime: ToolRuntime, call_id: str) -> list[Event]:
    return [step.event for step in await runtime.replay() if step.event.correlation_id == call_id]


@pytest.mark.requirement("R254")
@pytest.mark.parametrize("name", ["look", "write", "write_in_thread"])
@pytest.mark.parametrize("alone", [True, False])
async def test_the_facts_of_a_call_come_in_the_order_of_its_stages(name: str, alone: bool) -> None:
    runtime = ToolRuntime(tools=[look, write, write_in_thread], policy=POLICY)
    others = [] if alone else [call("other", "write"), call("another", "look")]
    await runtime.execute([*others, call("1", name)])

    events = await events_of(runtime, "1")
    assert [event.type for event in events] == ORDER
    causes = [event.causation_id for event in events]
    assert causes[1:] == [event.seq for event in events[:-1]], "each fact names the one before it as its cause"


@pytest.mark.requirement("R254")
@pytest.mark.parametrize(
    ("name", "arguments", "stages"),
    [
        ("nowhere", {}, ["tool.intent", "tool.observation"]),
        ("write", {"text": 7}, ["tool.intent", "tool.validation", "tool.observation"]),
        ("forbidden", {}, ["tool.intent", "tool.validation", "tool.permission", "tool.observation"]),
    ],
)
async def test_a_call_that_is_refused_has_the_facts_up_to_its_refusal(
    name: str, arguments: dict[str, Any], stages: list[str]
) -> None:
    @tool(risk="write")
    async def forbidden() -> str:
        """Never allowed."""
        raise AssertionError

    runtime = ToolRuntime(tools=[write, forbidden], policy=POLICY)
    await runtime.execute([call("1", name, **arguments)])

    assert [event.type for event in await events_of(runtime, "1")] == stages


@pytest.mark.requirement("R254")
async def test_state_and_messages_follow_from_the_recorded_facts() -> None:
    log = MemoryLog()
    turn = [call("1", "write"), call("2", "fail"), call("3", "look"), call("4", "write", text=7)]
    runtime = ToolRuntime(run_id="run_1", tools=[look, write, fail], policy=POLICY, log=log)
    result = await runtime.execute(turn)
    entries = await log.read("run_1")

    reopened = ToolRuntime(run_id="run_1", log=log)
    replay = await reopened.replay()
    assert await reopened.state() is result.state
    assert [message.text for message in replay.messages()] == [message["content"] for message in result.messages]
    assert await log.read("run_1") == entries, "looking changes nothing"


@pytest.mark.requirement("R263")
@pytest.mark.parametrize(("name", "executor"), [("look", "async"), ("write", "async"), ("write_in_thread", "thread")])
async def test_a_start_is_recorded_with_invocation_call_and_executor(name: str, executor: str) -> None:
    runtime = ToolRuntime(tools=[look, write, write_in_thread], policy=POLICY)
    await runtime.execute([call("1", name), call("2", name)])

    recorded = await facts(runtime)
    starts = [fact for fact in recorded if isinstance(fact, InvocationStarted)]
    ends = [fact for fact in recorded if isinstance(fact, InvocationCompleted)]
    assert [(start.call_id, start.tool, start.executor) for start in starts] == [
        ("1", name, executor),
        ("2", name, executor),
    ]
    assert len({start.invocation_id for start in starts}) == 2
    assert {start.invocation_id: start.call_id for start in starts} == {end.invocation_id: end.call_id for end in ends}


@pytest.mark.requirement("R263")
async def test_the_start_of_what_changes_something_is_durable_when_its_handler_runs() -> None:
    log = MemoryLog()
    seen: list[str] = []

    @tool(risk="write")
    async def change(context: ToolContext) -> None:
        """Look into the log."""
        runtime = ToolRuntime(run_id=context.run_id, log=log)
        seen.extend(fact.call_id for fact in await facts(runtime) if isinstance(fact, InvocationStarted))

    await ToolRuntime(tools=[change], policy=POLICY, log=log).execute([call("1", "change"), call("2", "change")])
    assert seen == ["1", "1", "2"]


@pytest.mark.requirement("R264")
@pytest.mark.parametrize(
    ("name", "exit_word", "code"),
    [("write", "ok", "ok"), ("fail", "error", "tool_failed"), ("hang", "timeout", "timed_out")],
)
async def test_an_end_is_recorded_in_the_word_for_it(name: str, exit_word: str, code: str) -> None:
    runtime = ToolRuntime(tools=[write, fail, hang], policy=POLICY)
    await runtime.execute([call("1", name)])

    [end] = [fact for fact in await facts(runtime) if isinstance(fact, InvocationCompleted)]
    assert (end.exit, end.code) == (exit_word, code)
    assert end.duration_ms > 0


@pytest.mark.requirement("R264")
@pytest.mark.parametrize("whole_run", [False, True])
async def test_a_call_that_is_cancelled_while_it_runs_ends_as_cancelled(whole_run: bool) -> None:
    running = asyncio.Event()

    @tool(risk="write")
    async def wait() -> None:
        """Never end."""
        running.set()
        await asyncio.Event().wait()

    runtime = ToolRuntime(tools=[wait], policy=POLICY, limits=Limits(drain_seconds=0.1))
    async with asyncio.timeout(HANG_SECONDS):
        batch = asyncio.ensure_future(runtime.execute([call("1", "wait")]))
        await running.wait()
        if whole_run:
            batch.cancel()
        else:
            runtime.cancel_call("1")
        await asyncio.wait({batch})
        await runtime.close()

    log_facts = await facts(runtime)
    ends = [fact for fact in log_facts if isinstance(fact, InvocationCompleted)]
    assert [(end.exit, end.side_effects) for end in ends] == [("cancelled", "unknown")]
    assert any(isinstance(fact, CallObserved) for fact in log_facts) is not whole_run


@pytest.mark.requirement("R175")
async def test_an_intent_has_no_effect_until_it_was_permitted_and_started() -> None:
    effects: list[str] = []

    @tool(risk="execute")
    async def asked(what: str) -> None:
        """A person is asked first."""
        effects.append(what)

    runtime = ToolRuntime(tools=[asked], policy=POLICY, interaction=CallbackInteractionProvider(lambda question: None))
    intent = call("1", "asked", what="done")
    assert effects == []

    result = await runtime.execute([intent])
    assert [type(fact) for fact in await facts(runtime)].count(CallProposed) == 1
    assert effects == [], "a proposal, and a question that is open"

    await runtime.decide(result.questions[0].action_id, approved=True)
    assert effects == [], "permitted, and not started"

    await runtime.resume()
    assert effects == ["done"]


@pytest.mark.requirement("R254")
@pytest.mark.parametrize("in_file", [False, True])
async def test_a_stream_that_opens_with_the_run_sees_every_event_in_order(tmp_path: Path, in_file: bool) -> None:
    log = SqliteLog(tmp_path / "log") if in_file else MemoryLog()
    runtime = ToolRuntime(tools=[write, look], policy=POLICY, log=log)

    async def watch() -> list[Event]:
        return [event async for event in runtime.log_events()]

    async with asyncio.timeout(HANG_SECONDS):
        stream = asyncio.ensure_future(watch())
        await runtime.execute([call("1", "write"), call("2", "look")])
        await runtime.complete()
        seen = await stream

    replayed = [step.event for step in await runtime.replay()]
    await runtime.close()
    assert seen == replayed
    assert all(later.seq == earlier.seq + 1 for earlier, later in pairwise(seen))
