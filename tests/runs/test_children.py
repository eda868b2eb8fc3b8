"""An agent that is asked by another one: its own loop, its own approvals, a run that goes on where it stopped."""

import asyncio
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from interlock import (
    Answer,
    CallbackInteractionProvider,
    MemoryArtifacts,
    MemoryLog,
    Question,
    Rule,
    RulePolicy,
    ToolContext,
    ToolDefinition,
    tool,
)
from interlock.agent.agent import Agent
from interlock.agent.next_step import Budgets
from interlock.domain.errors import ConfigurationError, RunClaimedError
from interlock.domain.event import (
    CallObserved,
    InvocationStarted,
    InvocationSuspended,
    RunCancelled,
    RunStarted,
    decode_event,
)
from interlock.domain.ids import child_run_id, is_valid_name
from interlock.domain.messages import Usage
from interlock.models.scripted import ScriptedFault, ScriptedTurn
from interlock.runs import children
from interlock.runs.inbox import Inbox
from interlock.runs.runner import Runner
from interlock.testing.log_entries import append_entries
from tests.logs import open_log

from .support import agent_of, asked_in, asked_of, calls, facts_of, run_of, start
from .test_stopping import Long

#: A delegation needs no approval here; a change does.
POLICY = RulePolicy([Rule(id="ask-change", verdict="ask", tools="change")], default="allow")


class World:
    def __init__(self) -> None:
        self.changes: list[str] = []
        self.change: ToolDefinition = tool(risk="write", name="change")(self._change)

    def _change(self, what: str) -> str:
        """A person is asked."""
        self.changes.append(what)
        return f"changed {what}"


def asking(what: str, *, call_id: str = "in") -> tuple[ScriptedTurn, str]:
    return calls((call_id, "change", {"what": what})), f"{what} is done."


def boss_of(helper: Agent, *turns: ScriptedTurn | str, tools: tuple[Any, ...] = ()) -> Agent:
    said = turns or (calls(("out", "ask_helper", {"task": "Help."})), "All done.")
    return agent_of(*said, tools=[helper.as_tool(), *tools], name="boss", policy=POLICY)


def pair(world: World) -> Agent:
    """A boss whose helper wants to change something."""
    return boss_of(agent_of(*asking("x"), tools=[world.change], name="helper"))


async def test_the_answer_of_the_agent_inside_is_the_outcome_of_the_call() -> None:
    log = MemoryLog()
    helper = agent_of("Forty-two.", name="helper")
    boss = boss_of(helper)

    result = await run_of(boss, log=log)

    assert (result.status, result.text) == ("COMPLETED", "All done.")
    content = result.observations[0].content
    assert content is not None
    assert content.text == "Forty-two."
    assert asked_of(helper)[0].messages[0].text == "Help."
    inside = child_run_id(result.run_id, "out")
    (begun,) = await facts_of(RunStarted, log, inside)
    assert (begun.agent, begun.parent_run_id, begun.parent_call_id) == ("helper", result.run_id, "out")


@pytest.mark.requirement("R114")
async def test_two_calls_of_one_agent_are_two_runs() -> None:
    log, helper = MemoryLog(), agent_of("Done.", name="helper")
    both = calls(("one", "ask_helper", {"task": "First."}), ("two", "ask_helper", {"task": "Second."}))

    result = await run_of(boss_of(helper, both, "All done."), log=log)

    inside = {child_run_id(result.run_id, call_id) for call_id in ("one", "two")}
    assert inside < set(await log.run_ids())
    assert sorted(request.messages[0].text for request in asked_of(helper)) == ["First.", "Second."]


async def test_a_typed_answer_of_the_agent_inside_is_data_for_the_one_around_it() -> None:
    helper = agent_of("[1, 2]", name="helper", output_type=list[int])

    result = await run_of(boss_of(helper))

    content = result.observations[0].content
    assert content is not None
    assert (content.format, content.text) == ("json", "[1,2]")


@pytest.mark.requirement("R114")
async def test_what_the_agent_inside_wants_to_do_is_asked_for_in_the_result_of_the_run_around_it() -> None:
    world = World()
    runner, handle = await start(pair(world))

    waiting = await handle.result()

    (question,) = waiting.questions
    assert waiting.status == "PAUSED_APPROVAL"
    assert (question.tool_name, question.run_id) == ("change", child_run_id(handle.run_id, "out"))
    await handle.resume()
    assert (await handle.result()).questions == (question,), "it is not asked again"

    await handle.decide(question.action_id, approved=True, by="ann")
    await handle.resume()
    result = await handle.result()

    assert (result.status, result.text, world.changes) == ("COMPLETED", "All done.", ["x"])
    await runner.close()


@pytest.mark.usefixtures("log_backend")
@pytest.mark.requirement("R114", "P06")
async def test_another_process_goes_on_with_both_and_repeats_nothing(tmp_path: Path) -> None:
    world, artifacts = World(), MemoryArtifacts()
    async with open_log(tmp_path / "log") as log:
        async with Runner(pair(world), log=log, artifacts=artifacts) as runner:
            waiting = await runner.run("Do it.")
        (question,) = waiting.questions
        desk = Inbox(log, artifacts)
        assert await desk.deliver(question.run_id, question.action_id, Answer(approved=True)) == "recorded"
        await desk.close()

        async with Runner(pair(world), log=log, artifacts=artifacts) as runner:
            (handle,) = await runner.recover()
            result = await handle.result()

        assert (result.status, result.text, world.changes) == ("COMPLETED", "All done.", ["x"])
        assert len(await facts_of(InvocationStarted, log, question.run_id)) == 1
        assert await facts_of(RunStarted, log, question.run_id)


async def test_a_no_for_the_agent_inside_is_an_observation_there_and_both_go_on() -> None:
    world = World()
    runner, handle = await start(pair(world))
    waiting = await handle.result()

    await handle.decide(waiting.questions[0].action_id, approved=False, reason="Not today.")
    await handle.resume()
    result = await handle.result()

    assert (result.status, result.text, world.changes) == ("COMPLETED", "All done.", [])
    await runner.close()


@pytest.mark.requirement("R114")
async def test_a_yes_for_the_run_around_it_covers_nothing_inside() -> None:
    world, asked = World(), list[tuple[str, str]]()

    async def yes_for_the_run(question: Question) -> Answer:
        asked.append((question.agent, question.call_id))
        return Answer(approved=True, scope="run")

    helper = agent_of(*asking("x"), tools=[world.change], name="helper")
    same = {"what": "x"}
    boss = boss_of(
        helper,
        calls(("a", "change", same)),
        calls(("b", "change", same)),
        calls(("out", "ask_helper", {"task": "Help."})),
        "All done.",
        tools=(world.change,),
    )

    await run_of(boss, interaction=CallbackInteractionProvider(yes_for_the_run))

    assert asked == [("boss", "a"), ("helper", "in")], "once for the run, and once more for the run inside it"
    assert world.changes == ["x", "x", "x"]


async def test_two_agents_inside_wait_side_by_side_and_one_answer_moves_one_of_them() -> None:
    world = World()

    def answer(request: Any) -> ScriptedTurn:
        return calls(("in", "change", {"what": request.messages[0].text}))

    helper = agent_of(answer, "Done.", tools=[world.change], name="helper")
    both = calls(("one", "ask_helper", {"task": "1"}), ("two", "ask_helper", {"task": "2"}))
    runner, handle = await start(boss_of(helper, both, "All done."))
    waiting = await handle.result()
    first, second = waiting.questions

    await handle.decide(second.action_id, approved=True)
    await handle.resume()
    assert (await handle.result()).questions == (first,)
    assert world.changes == ["2"]
    await handle.decide(first.action_id, approved=True)
    await handle.resume()

    assert (await handle.result()).text == "All done."
    assert world.changes == ["2", "1"]
    await runner.close()


async def test_a_failed_agent_inside_is_an_observation() -> None:
    helper = agent_of(ScriptedTurn(fault=ScriptedFault(message="The server is gone.")), name="helper")

    result = await run_of(boss_of(helper))

    (seen,) = result.observations
    assert (result.status, seen.ok) == ("COMPLETED", False)
    assert "helper did not finish: The model gave no answer: The server is gone." in seen.summary


async def test_cancelling_reaches_the_agent_inside() -> None:
    long, log = Long(), MemoryLog()
    helper = agent_of(calls(("in", "long", {})), tools=[long.tool], name="helper")
    runner, handle = await start(boss_of(helper), log)
    await long.running.wait()

    await handle.cancel("Enough.")

    assert (await handle.result()).cancelled
    assert long.cancelled
    assert await facts_of(RunCancelled, log, child_run_id(handle.run_id, "out"))
    await runner.close()


async def test_an_agent_that_waits_inside_a_cancelled_run_is_cancelled_with_it() -> None:
    world, log = World(), MemoryLog()
    runner, handle = await start(pair(world), log)
    (question,) = (await handle.result()).questions

    await handle.cancel("Never mind.")

    (cancelled,) = await facts_of(RunCancelled, log, question.run_id)
    assert cancelled.message == "The run around it is over."
    assert (await handle.result()).questions == ()
    await runner.close()


@pytest.mark.usefixtures("log_backend")
async def test_a_question_inside_can_be_answered_while_the_agent_inside_is_busy(tmp_path: Path) -> None:
    world, long = World(), Long("network")  # its start is written down at once, and with it the question
    both = calls(("busy", "long", {}), ("in", "change", {"what": "x"}))
    helper = agent_of(both, "Done.", tools=[world.change, long.tool], name="helper")
    async with open_log(tmp_path / "log") as log:
        runner, handle = await start(boss_of(helper), log)
        await long.running.wait()
        inside = child_run_id(handle.run_id, "out")
        asked = await asked_in(inside, runner.inbox)

        assert await runner.inbox.deliver(inside, asked.action_id, Answer(approved=True)) == "recorded"
        long.release.set()
        result = await handle.result()

        assert (result.status, world.changes) == ("COMPLETED", ["x"])
        await runner.close()


@pytest.mark.usefixtures("log_backend")
async def test_agents_can_ask_agents_that_ask_agents(tmp_path: Path) -> None:
    world = World()

    def boss() -> Agent:
        deep = agent_of(*asking("x"), tools=[world.change], name="deep")
        middle = agent_of(
            calls(("mid", "ask_deep", {"task": "Deeper."})), "Middle.", tools=[deep.as_tool()], name="helper"
        )
        return boss_of(middle)

    async with open_log(tmp_path / "log") as log:
        async with Runner(boss(), log=log) as runner:
            waiting = await runner.run("Do it.")
            (question,) = waiting.questions
            assert question.run_id == child_run_id(child_run_id(waiting.run_id, "out"), "mid")
            assert not world.changes
        async with Runner(boss(), log=log) as runner:
            handle = await runner.open(waiting.run_id)
            await handle.result()
            await handle.decide(question.action_id, approved=True)
            await handle.resume()
            result = await handle.result()

    assert (result.status, result.text, world.changes) == ("COMPLETED", "All done.", ["x"])


async def test_an_agent_inside_keeps_to_its_own_policy() -> None:
    world = World()
    denies = RulePolicy([Rule(id="no-change", verdict="deny", tools="change")], default="allow")
    helper = agent_of(*asking("x"), tools=[world.change], name="helper", policy=denies)

    result = await run_of(boss_of(helper))

    assert (result.status, world.changes) == ("COMPLETED", [])


async def test_one_agent_under_two_names_has_one_set_of_tools_and_two_agents_under_one_name_are_refused() -> None:
    one, other = agent_of("One.", name="helper"), agent_of("Other.", name="helper")
    twice = agent_of(
        calls(("a", "first", {"task": "1"}), ("b", "second", {"task": "2"})),
        "Done.",
        tools=[one.as_tool("first"), one.as_tool("second")],
        policy=POLICY,
    )
    assert (await run_of(twice)).text == "Done."

    second = agent_of("x", tools=[other.as_tool()], name="second")
    with pytest.raises(ConfigurationError, match="different tools named 'ask_helper'"):
        Runner(agent_of("x", tools=[one.as_tool()], handoffs=(second,)))


@pytest.mark.requirement("R096")
async def test_guardrails_of_other_tools_do_not_cover_an_agent_or_a_handoff_unless_they_are_given_some() -> None:
    seen: list[str] = []

    def refuse(value: Any, context: ToolContext) -> str:
        seen.append(context.tool_name)
        return "Not this."

    guarded = tool(risk="read", name="guarded", input_guardrails=[refuse])(lambda: "x")
    helper, writer = agent_of("Done.", name="helper"), agent_of("", "", "Written.", name="writer")
    asked = calls(("a", "guarded", {}), ("b", "ask_helper", {"task": "1"}), ("c", "careful", {"task": "2"}))
    boss = agent_of(
        asked,
        calls(("d", "handoff_to_writer", {})),
        tools=[guarded, helper.as_tool(), helper.as_tool("careful", input_guardrails=(refuse,))],
        handoffs=(writer,),
        policy=POLICY,
    )

    result = await run_of(boss)

    assert [record.code for record in result.observations] == ["guardrail_refused", "ok", "guardrail_refused", "ok"]
    assert sorted(seen) == ["careful", "guarded"]
    assert result.text == "Written."


@pytest.mark.usefixtures("log_backend")
async def test_a_run_inside_that_somebody_else_moves_on_is_waited_for(tmp_path: Path) -> None:
    world = World()
    async with open_log(tmp_path / "log") as log:
        runner, handle = await start(pair(world), log)
        (question,) = (await handle.result()).questions
        await handle.decide(question.action_id, approved=True)
        tried, claim = asyncio.Event(), log.acquire

        async def claimed_once(run_id: str, *, force: bool = False) -> Any:
            if run_id == question.run_id and not tried.is_set():
                tried.set()
                raise RunClaimedError("somebody has it")
            return await claim(run_id, force=force)

        with mock.patch.object(log, "acquire", claimed_once):
            await handle.resume()
            result = await handle.result()

        assert tried.is_set()
        assert (result.text, world.changes) == ("All done.", ["x"])
        await runner.close()


def recursive(**declared: Any) -> Agent:
    """An agent that asks itself, and then says that it is enough."""
    tools: list[Any] = []
    again = calls(("again", "ask_me", {"task": "Once more."}))
    agent = agent_of(again, "Enough.", tools=tools, name="me", policy=POLICY, **declared)
    tools.append(agent.as_tool())
    return agent


@pytest.mark.parametrize(("options", "deepest"), [({}, 5), ({"max_depth": 1}, 1), ({"max_depth": 0}, 0)])
async def test_agents_that_ask_agents_go_only_so_deep_and_the_last_one_is_told(
    options: dict[str, Any], deepest: int
) -> None:
    log = MemoryLog()

    result = await run_of(recursive(), log=log, **options)

    run_ids = await log.run_ids()
    assert (result.status, result.text, len(run_ids)) == ("COMPLETED", "Enough.", deepest + 1)
    (told,) = await facts_of(CallObserved, log, run_ids[-1])
    assert told.observation.code == "runtime_precondition_failed"
    assert f"me was not asked: agents that ask agents may go {deepest} deep here." in told.observation.summary
    assert "Nothing was changed." in told.observation.summary


async def test_the_id_of_the_deepest_run_is_still_a_name() -> None:
    log = MemoryLog()
    async with Runner(recursive(), log=log, max_depth=9) as runner:
        await (await runner.start("Do it.", run_id="r" * 128)).result()

    run_ids = await log.run_ids()
    assert len(run_ids) == 10
    assert all(map(is_valid_name, run_ids))


@pytest.mark.parametrize("depth", [-1, 10, True, "5"])
def test_a_depth_that_makes_no_sense_is_refused(depth: Any) -> None:
    with pytest.raises(ConfigurationError, match="a number from 0 to 9"):
        Runner(recursive(), max_depth=depth)


async def waiting_pair(log: MemoryLog, world: World) -> tuple[str, str]:
    """Two runs, one inside a call of the other, both ready to go on. Nobody has them."""
    async with Runner(pair(world), log=log) as runner:
        result = await runner.run("Do it.")
        (question,) = result.questions
        await runner.inbox.deliver(question.run_id, question.action_id, Answer(approved=True))
    return result.run_id, question.run_id


async def test_taking_a_run_over_by_force_takes_the_runs_inside_its_calls() -> None:
    log, world = MemoryLog(), World()
    outer, inside = await waiting_pair(log, world)
    for run_id in (outer, inside):
        await log.acquire(run_id)  # by a process that is stopped

    async with Runner(pair(world), log=log) as runner:
        result = await (await runner.open(outer, force=True)).result()

    assert (result.text, world.changes) == ("All done.", ["x"])


async def test_a_run_inside_that_another_process_has_for_long_is_named_and_the_run_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(children, "_WAIT_SECONDS", 0.0)
    log, world = MemoryLog(), World()
    outer, inside = await waiting_pair(log, world)
    held = await log.acquire(inside)
    async with Runner(pair(world), log=log) as runner:
        assert await runner.recover() == []
        handle = await runner.open(outer)
        waiting = await handle.result()
        assert (waiting.questions, waiting.observations, world.changes) == ((), (), [])
        assert waiting.message.startswith(f"It waits for {inside}, which is owned by process ")

        await log.release(held)
        result = await handle.wait_until_finished()

    assert (result.text, result.message, world.changes) == ("All done.", "", ["x"])


@pytest.mark.parametrize("left", ["nothing", "another agent"])
async def test_a_run_inside_whose_agent_is_gone_ends_with_the_run_around_it(left: str) -> None:
    log, world = MemoryLog(), World()
    outer, inside = await waiting_pair(log, world)
    said = (calls(("out", "ask_helper", {"task": "Help."})), "All done.")
    other = agent_of("Other.", name="other").as_tool("ask_helper")

    async with Runner(agent_of(*said, tools=[] if left == "nothing" else [other], name="boss"), log=log) as runner:
        result = await (await runner.open(outer)).result()

    (seen,) = result.observations
    assert seen.side_effects == "unknown"
    assert seen.code == ("outcome_unknown" if left == "nothing" else "tool_failed")
    (cancelled,) = await facts_of(RunCancelled, log, inside)
    assert (result.status, cancelled.message, world.changes) == ("COMPLETED", "The run around it is over.", [])


async def test_what_a_child_used_counts_in_the_run_around_it() -> None:
    child = agent_of(ScriptedTurn(text="Found.", usage=Usage(input_tokens=70, cost=2.5)), name="child")
    asks = ScriptedTurn(calls=calls(("a", "ask_child", {"task": "look"})).calls, usage=Usage(input_tokens=5, cost=0.5))
    parent = agent_of(asks, "Done.", tools=[child.as_tool()], policy=POLICY, budgets=Budgets(max_cost=3.0))

    result = await run_of(parent)

    assert (result.usage.input_tokens, result.usage.cost) == (75, 3.0)
    assert result.message == "The run has used its budget of 3 of cost."


@pytest.mark.requirement("R114", "P06")
async def test_a_run_killed_beside_its_child_continues_with_the_child() -> None:
    world, log, killed = World(), MemoryLog(), MemoryLog()
    artifacts = MemoryArtifacts()
    async with Runner(pair(world), log=log, artifacts=artifacts) as runner:
        waiting = await runner.run("Do it.")
    (question,) = waiting.questions
    outer = await log.read(waiting.run_id)
    begun = next(place for place, entry in enumerate(outer) if decode_event(entry).type == "tool.invocation.started")
    await append_entries(killed, waiting.run_id, outer[: begun + 1])
    await append_entries(killed, question.run_id, await log.read(question.run_id))

    async with Runner(pair(world), log=killed, artifacts=artifacts) as runner:
        handle = await runner.open(waiting.run_id)
        assert (await handle.result()).questions == (question,)
        await handle.decide(question.action_id, approved=True)
        await handle.resume()
        result = await handle.result()

    recovered, *_ = await facts_of(InvocationSuspended, killed, waiting.run_id)
    assert (recovered.call_id, recovered.child_run_id, recovered.invocation_id) == ("out", question.run_id, "")
    types = [decode_event(entry).type for entry in await killed.read(waiting.run_id)]
    assert types[types.index("run.paused") :][:3] == ["run.paused", "run.resumed", "tool.invocation.started"]
    assert (result.status, world.changes) == ("COMPLETED", ["x"])
