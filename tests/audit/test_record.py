"""The factual chain: every intent, validation, decision, start, end and observation, in this order."""

import asyncio
from typing import Any

import pytest

from interlock import (
    CallbackInteractionProvider,
    Event,
    MemoryArtifacts,
    Question,
    Rule,
    RulePolicy,
    RunState,
    ToolContext,
    ToolIntent,
    ToolRuntime,
    read_export,
    tool,
    verify,
)
from interlock.app import App
from interlock.domain import event as facts_of
from interlock.domain.event import (
    CallObserved,
    CallProposed,
    CallValidated,
    InvocationCompleted,
    InvocationStarted,
    PolicyEvaluated,
)
from interlock.domain.ids import new_run_id
from interlock.domain.tool import CallContext
from interlock.history.fold import fold_entries
from tests.patience import HANG_SECONDS
from tests.support import call, facts

CHAIN = [
    "tool.intent",
    "tool.validation",
    "tool.permission",
    "tool.invocation.started",
    "tool.invocation.completed",
    "tool.observation",
]


async def events(runtime: ToolRuntime) -> list[Event]:
    return [step.event for step in await runtime.replay()]


@tool
async def greet(name: str) -> str:
    return f"hello {name}"


@tool
async def broken() -> None:
    raise OSError("disk gone")


@pytest.mark.requirement("R254", "R263")
async def test_the_facts_of_a_call_are_in_order_and_name_what_caused_them() -> None:
    runtime = ToolRuntime(tools=[greet])
    await runtime.execute([call("c1", "greet", name="Ada")])

    of_call = [event for event in await events(runtime) if event.correlation_id == "c1"]
    assert [event.type for event in of_call] == CHAIN
    assert [event.seq for event in of_call] == sorted(event.seq for event in of_call)
    proposed, validated, judged, _started, ended, observed = of_call
    assert (validated.causation_id, judged.causation_id) == (proposed.seq, validated.seq)
    assert observed.causation_id == ended.seq


@pytest.mark.requirement("R260")
@pytest.mark.parametrize(
    ("name", "arguments", "kept"),
    [
        ("greet", {"name": "Ada"}, {"name": "Ada"}),
        ("greet", '{"name": "Ada"}', {"name": "Ada"}),
        ("greet", {"name": 5}, {"name": 5}),
        ("nobody", {"any": ["thing"]}, {"any": ["thing"]}),
        ("greet", '{"name": "Ada"', '{"name": "Ada"'),
        ("greet", "[1, 2]", "[1, 2]"),
        ("greet", {"name": {1, 2}}, "{'name': {1, 2}}"),
    ],
    ids=["valid", "text", "invalid", "unknown", "malformed", "no object", "no json"],
)
async def test_every_intent_is_recorded_with_its_raw_input_refused_ones_too(
    name: str, arguments: Any, kept: Any
) -> None:
    runtime = ToolRuntime(tools=[greet])
    await runtime.execute([ToolIntent(call_id="c1", tool_name=name, arguments=arguments)])

    [proposed] = [fact for fact in await facts(runtime) if isinstance(fact, CallProposed)]
    assert (proposed.call_id, proposed.tool, proposed.raw_input) == ("c1", name, kept)
    assert proposed.digest


@pytest.mark.requirement("R260")
@pytest.mark.parametrize("name", ["greet", "nobody"])
async def test_large_raw_input_is_kept_as_an_artifact(name: str) -> None:
    artifacts = MemoryArtifacts()
    runtime = ToolRuntime(tools=[greet], artifacts=artifacts)
    text = f'{{"name": "{"x" * 10_000}"}}'
    await runtime.execute([ToolIntent(call_id="c1", tool_name=name, arguments=text)])

    [proposed] = [fact for fact in await facts(runtime) if isinstance(fact, CallProposed)]
    assert (proposed.raw_bytes, proposed.raw_input) == (len(text), None)
    assert artifacts.read(proposed.raw_artifact_id).decode() == text


@pytest.mark.requirement("R260")
@pytest.mark.parametrize("text", [f'["{"x" * 10_000}"]', f'{{"name": "{"x" * 10_000_000}"}}'], ids=["list", "huge"])
async def test_large_raw_input_that_was_refused_has_its_beginning_and_size_on_record(text: str) -> None:
    runtime = ToolRuntime(tools=[greet])
    await runtime.execute([ToolIntent(call_id="c1", tool_name="greet", arguments=text)])

    [proposed] = [fact for fact in await facts(runtime) if isinstance(fact, CallProposed)]
    assert proposed.raw_bytes == len(text)
    assert proposed.raw_input == text[: len(proposed.raw_input)]
    assert 2_000 <= len(proposed.raw_input) <= 10_000


@pytest.mark.requirement("R261", "R262", "R263", "R264", "R265")
async def test_every_step_of_every_call_is_on_record() -> None:
    calls = {
        "fine": call("fine", "greet", name="Ada"),
        "failed": call("failed", "broken"),
        "invalid": call("invalid", "greet"),
        "unknown": call("unknown", "nobody"),
    }
    runtime = ToolRuntime(tools=[greet, broken])
    await runtime.execute(calls.values())

    recorded = await facts(runtime)
    assert {fact.call_id: fact.ok for fact in recorded if isinstance(fact, CallValidated)} == {
        "fine": True,
        "failed": True,
        "invalid": False,
    }
    assert {fact.call_id: fact.decision.verdict for fact in recorded if isinstance(fact, PolicyEvaluated)} == {
        "fine": "allow",
        "failed": "allow",
    }
    started = {fact.call_id: fact for fact in recorded if isinstance(fact, InvocationStarted)}
    ended = {fact.call_id: fact for fact in recorded if isinstance(fact, InvocationCompleted)}
    assert {call_id: (fact.exit, fact.code) for call_id, fact in ended.items()} == {
        "fine": ("ok", "ok"),
        "failed": ("error", "tool_failed"),
    }
    assert {started[call_id].invocation_id for call_id in started} == {ended[c].invocation_id for c in ended}
    observed = {fact.observation.call_id: fact for fact in recorded if isinstance(fact, CallObserved)}
    assert set(observed) == set(calls)
    assert len({fact.observation_id for fact in observed.values()}) == 4
    assert {call_id: fact.invocation_id for call_id, fact in observed.items() if fact.invocation_id} == {
        call_id: fact.invocation_id for call_id, fact in started.items()
    }


@pytest.mark.requirement("R264")
async def test_a_timeout_and_a_cancellation_are_recorded_as_such() -> None:
    running = asyncio.Event()

    @tool(timeout_seconds=0.02)
    async def slow() -> None:
        await asyncio.Event().wait()

    @tool
    async def waits() -> None:
        running.set()
        await asyncio.Event().wait()

    runtime = ToolRuntime(tools=[slow, waits])
    async with asyncio.timeout(HANG_SECONDS):
        batch = asyncio.create_task(runtime.execute([call("c1", "slow"), call("c2", "waits")]))
        await running.wait()
        runtime.cancel_call("c2")
        await batch

    exits = {fact.call_id: fact.exit for fact in await facts(runtime) if isinstance(fact, InvocationCompleted)}
    assert exits == {"c1": "timeout", "c2": "cancelled"}


@pytest.mark.requirement("R266")
async def test_the_log_tells_the_whole_story_of_a_call() -> None:
    @tool(risk="write", max_output_chars=300, version="3")
    async def edit(path: str, ctx: ToolContext) -> str:
        ctx.side_effect("modified", path)
        return "diff line\n" * 500

    def confirm(question: Question) -> Any:
        return question.arguments == {"path": "src/sum.ts"}

    rule = Rule(id="edits", verdict="ask", tools="edit", reason="Edits are confirmed.")
    runtime = ToolRuntime(
        tools=[edit],
        policy=RulePolicy([rule]),
        interaction=CallbackInteractionProvider(confirm),
        agent="fixer",
    )
    wish: dict[str, Any] = {
        "id": "c1",
        "tool_name": "edit",
        "arguments": {"path": "src/sum.ts"},
        "reason": "It is off by one.",
    }
    result = await runtime.execute([wish])

    found = {facts_of.event_type(fact): fact for fact in await facts(runtime)}
    story: dict[str, Any] = found
    assert story["run.started"].agent == "fixer"
    assert story["tool.batch.started"].menu_digest == story["model.menu"].digest
    assert (story["tool.intent"].raw_input, story["tool.intent"].reason) == (wish["arguments"], wish["reason"])
    assert story["tool.permission"].decision.rule_ids == ("edits",)
    assert story["approval.requested"].question.arguments == wish["arguments"]
    assert story["approval.granted"].answer.by == "callback"
    started = story["tool.invocation.started"]
    assert (started.executor, started.tool_version, started.sandbox) == ("async", "3", "none")
    assert started.action_id == story["approval.requested"].question.action_id
    assert story["tool.invocation.completed"].side_effects[0].target == "src/sum.ts"
    seen = story["tool.observation"].observation
    assert seen.truncated
    assert seen == result.observations[0]


@pytest.mark.requirement("R266")
async def test_the_log_has_the_arguments_that_really_ran_when_a_hook_changed_them() -> None:
    ran: list[str] = []

    def rename(_: dict[str, Any]) -> dict[str, Any]:
        return {"name": "Grace"}

    @tool(pre_hooks=[rename])
    async def greet_hooked(name: str) -> None:
        ran.append(name)

    runtime = ToolRuntime(tools=[greet_hooked])
    await runtime.execute([call("c1", "greet_hooked", name="Ada")])

    assert ran == ["Grace"]
    assert b"Grace" in await runtime.export()


@pytest.mark.requirement("R274")
async def test_an_exception_is_an_observation_an_event_and_state_and_nothing_is_raised() -> None:
    app = App(tools=[broken])
    run = await app.open(CallContext(run_id=new_run_id()))
    outcome = await app.execute(run, [call("c1", "broken")])

    [observation] = outcome.outcomes
    assert getattr(observation, "code", "") == "tool_failed"
    entries = await app.entries(run)
    observed = [fact for event in await app.events(run) if isinstance(fact := event.fact, CallObserved)]
    assert [fact.observation for fact in observed] == [observation]
    assert (run.ledger.calls["c1"].state, run.ledger.calls["c1"].ok) == ("observed", False)
    assert fold_entries(run.ledger.run_id, entries) == run.ledger


@pytest.mark.requirement("R253", "R256")
async def test_messages_and_state_follow_from_the_events_alone() -> None:
    app = App(tools=[greet, broken], interaction=CallbackInteractionProvider(lambda _: None))
    run = await app.open(CallContext(run_id=new_run_id()))
    await app.execute(run, [call("c1", "greet", name="a"), call("c2", "broken"), call("c3", "greet")])
    await app.execute(run, [call("c1", "greet", name="a"), call("c4", "nobody")])

    assert fold_entries(run.ledger.run_id, await app.entries(run)) == run.ledger


@pytest.mark.requirement("R253", "R255", "R256")
async def test_a_waiting_run_and_its_answer_are_rebuilt_from_the_log() -> None:
    @tool(risk="write")
    async def edit() -> str:
        return "edited"

    app = App(tools=[edit], interaction=CallbackInteractionProvider(lambda _: None))
    run = await app.open(CallContext(run_id=new_run_id()))
    await app.execute(run, [call("c1", "edit")])
    assert run.ledger.state is RunState.PAUSED_APPROVAL
    assert fold_entries(run.ledger.run_id, await app.entries(run)) == run.ledger


@pytest.mark.requirement("R253", "R255")
async def test_what_the_model_is_sent_is_what_the_log_says_it_saw() -> None:
    runtime = ToolRuntime(tools=[greet, broken])
    result = await runtime.execute([call("c1", "broken"), call("c2", "greet", name="Ada"), call("c3", "greet")])

    sent = [(message["tool_call_id"], message["content"]) for message in result.messages]
    assert [tuple(message) for message in (await runtime.replay()).messages()] == sent


@pytest.mark.requirement("R276")
async def test_the_smallest_set_of_parts_works() -> None:
    order: list[str] = []
    asked: list[str] = []

    @tool(risk="read")
    async def read(path: str) -> str:
        order.append(path)
        return path

    @tool(risk="execute")
    async def bash(command: str) -> str:
        order.append(command)
        return command

    runtime = ToolRuntime(
        tools=[read, bash],
        max_concurrency=1,
        interaction=CallbackInteractionProvider(lambda q: asked.append(q.tool_name) or True),
    )
    await runtime.execute([call("c1", "read", path="a"), call("c2", "bash", command="b"), call("c3", "read", path="c")])

    lines = (await runtime.export()).splitlines()
    audit = verify(read_export(lines), runtime.run_id)
    assert (audit.ok, audit.count) == (True, len(lines))
    assert (order, asked) == (["a", "b", "c"], ["bash"])


@pytest.mark.requirement("R277")
async def test_there_is_no_door_around_the_pipeline() -> None:
    ran: list[str] = []

    @tool
    async def work() -> str:
        ran.append("work")
        return "raw words"

    runtime = ToolRuntime(tools=[work], policy=RulePolicy(default="deny"))
    runtime.registry.to_openai_function_tools()
    result = await runtime.execute([call("c1", "work")])

    assert ran == []
    assert not callable(work)
    assert result.observations[0].failure is not None
    assert result.observations[0].failure.phase == "permit"
    assert {facts_of.event_type(fact) for fact in await facts(runtime)} >= {
        "tool.intent",
        "tool.validation",
        "tool.permission",
        "tool.observation",
    }
