"""A question that stays open: the call keeps its place, the run is paused, an answer and `resume` move it on."""

import asyncio
from typing import Any

import pytest

from interlock import (
    BatchResult,
    CallbackInteractionProvider,
    Decision,
    DecisionConflictError,
    HeadlessInteractionProvider,
    MemoryLog,
    PolicyEvent,
    Question,
    Rule,
    RulePolicy,
    RunEndedError,
    RunPausedError,
    RunState,
    ToolDefinition,
    ToolRuntime,
    Verdict,
    tool,
)
from interlock.domain.event import CallObserved, InvocationStarted, decode_event
from tests.pipeline.batch.stage import PATIENCE, Stage, codes, others_ran, walk
from tests.support import call, facts, handle_events

OPEN = HeadlessInteractionProvider("wait")


class CountingPolicy:
    """Asks about every call of `ask`, and remembers which calls it judged."""

    def __init__(self) -> None:
        self.judged: list[str] = []
        self.verdict = Verdict.ASK

    def evaluate(self, event: PolicyEvent) -> Decision:
        self.judged.append(event.call_id)
        return Decision(verdict=self.verdict if event.tool_name == "ask" else Verdict.ALLOW, reason="It says so.")


def key(arguments: dict[str, Any]) -> str:
    return str(arguments["path"])


def tools(stage: Stage) -> list[ToolDefinition]:
    return [
        tool(stage.act, name="ask", write_keys=key),
        tool(stage.act, name="edit", write_keys=key),
        tool(stage.act, name="read", risk="read"),
        tool(stage.act, name="command", concurrency="exclusive"),
    ]


def paused_runtime(stage: Stage) -> tuple[ToolRuntime, CountingPolicy]:
    policy = CountingPolicy()
    return ToolRuntime(tools=tools(stage), policy=policy, interaction=OPEN), policy


def behind(result: BatchResult) -> dict[str, str]:
    """Which calls wait, and behind which call."""
    return {waits.valid.call_id: waits.behind for waits in result.waiting}


@pytest.mark.requirement("R137")
@pytest.mark.parametrize("provider", ["silent callback", "fallback of a callback that takes too long", "headless"])
async def test_an_open_question_pauses_the_run_and_executes_nothing(provider: str) -> None:
    stage, never = Stage(), asyncio.Event()

    async def silent(_: Question) -> None:
        return None

    async def slow(_: Question) -> bool:
        await never.wait()
        return True

    interaction = {
        "silent callback": CallbackInteractionProvider(silent),
        "fallback of a callback that takes too long": CallbackInteractionProvider(slow, 0.01, "wait"),
        "headless": OPEN,
    }[provider]
    runtime = ToolRuntime(tools=tools(stage), policy=CountingPolicy(), interaction=interaction)

    async with asyncio.timeout(PATIENCE):
        result = await runtime.execute([call("c1", "ask", name="a", path="p")])

    assert result.observations == ()
    assert [question.call_id for question in result.questions] == ["c1"]
    assert (result.state, result.status) == (RunState.PAUSED_APPROVAL, "PAUSED_APPROVAL")
    assert stage.seen == []


async def test_calls_that_conflict_with_a_waiting_call_stay_behind_it_and_others_run_now() -> None:
    stage = Stage()
    runtime, _ = paused_runtime(stage)

    result = await runtime.execute(
        [
            call("c1", "read", name="r1"),
            call("c2", "ask", name="asked", path="p"),
            call("c3", "edit", name="same", path="p"),
            call("c4", "edit", name="other", path="q"),
            call("c5", "read", name="r2"),
            call("c6", "edit", name="again", path="p"),
        ]
    )

    assert codes(result) == {"c1": "ok", "c4": "ok", "c5": "ok"}
    assert set(stage.starts()) == {"r1", "other", "r2"}
    assert behind(result) == {"c2": "", "c3": "c2", "c6": "c2"}
    assert [question.call_id for question in result.questions] == ["c2"]


async def test_everything_stays_behind_an_exclusive_call_that_is_behind_a_waiting_one() -> None:
    stage = Stage()
    runtime, _ = paused_runtime(stage)

    result = await runtime.execute(
        [call("c1", "ask", name="a", path="p"), call("c2", "command", name="b"), call("c3", "read", name="c")]
    )

    assert stage.seen == []
    assert list(behind(result)) == ["c1", "c2", "c3"]


@pytest.mark.requirement("R080", "R081", "R137", "R119")
async def test_after_an_approval_resume_runs_the_call_and_those_behind_it_in_their_order() -> None:
    stage = Stage()
    runtime, _ = paused_runtime(stage)
    first = await runtime.execute(
        [
            call("c1", "read", name="done"),
            call("c2", "ask", name="asked", path="p"),
            call("c3", "edit", name="after", path="p"),
        ]
    )
    await runtime.decide(first.questions[0].action_id, approved=True, by="maria")

    resumed = await runtime.resume()

    assert stage.starts() == ["done", "asked", "after"]
    assert codes(resumed) == {"c2": "ok", "c3": "ok"}
    assert resumed.state is RunState.RUNNING
    assert await walk(runtime, "c2") == [
        "tool.intent",
        "tool.validation",
        "tool.permission",
        "approval.requested",
        "approval.granted",
        "tool.invocation.started",
        "tool.invocation.completed",
        "tool.observation",
    ]


@pytest.mark.requirement("R080", "R082")
async def test_an_answered_call_is_not_judged_again() -> None:
    stage = Stage()
    runtime, policy = paused_runtime(stage)
    result = await runtime.execute([call("c1", "ask", name="a", path="p"), call("c2", "read", name="b")])
    assert policy.judged == ["c1", "c2"]
    policy.verdict = Verdict.DENY
    await runtime.decide(result.questions[0].action_id, approved=True)

    assert codes(await runtime.resume()) == {"c1": "ok"}
    assert policy.judged == ["c1", "c2"]


@pytest.mark.requirement("R093", "R119")
async def test_a_rejection_and_its_reason_reach_the_model_and_the_run_goes_on() -> None:
    stage = Stage()
    runtime, policy = paused_runtime(stage)
    result = await runtime.execute([call("c1", "ask", name="a", path="p"), call("c2", "edit", name="b", path="p")])
    policy.verdict = Verdict.ALLOW
    await runtime.decide(result.questions[0].action_id, approved=False, reason="Use the staging file.", by="maria")

    resumed = await runtime.resume()

    assert codes(resumed) == {"c1": "user_denied", "c2": "ok"}
    assert "Use the staging file." in resumed.messages[0]["content"]
    assert stage.starts() == ["b"]
    assert (await walk(runtime, "c1"))[-3:] == ["approval.requested", "approval.rejected", "tool.observation"]
    assert resumed.state is RunState.RUNNING


@pytest.mark.requirement("R137")
async def test_a_paused_run_takes_no_new_calls() -> None:
    stage = Stage()
    runtime, _ = paused_runtime(stage)
    await runtime.execute([call("c1", "ask", name="a", path="p")])

    with pytest.raises(RunPausedError, match="c1"):
        await runtime.execute([call("c2", "read", name="b")])

    assert stage.seen == []
    assert await runtime.state() is RunState.PAUSED_APPROVAL


@pytest.mark.requirement("R137", "R092")
async def test_resuming_without_an_answer_leaves_everything_as_it_is_and_records_no_second_question() -> None:
    stage = Stage()
    runtime, _ = paused_runtime(stage)
    first = await runtime.execute([call("c1", "ask", name="a", path="p")])

    second = await runtime.resume()

    assert [question.action_id for question in second.questions] == [first.questions[0].action_id]
    assert second.state is RunState.PAUSED_APPROVAL
    assert (await walk(runtime, "c1")).count("approval.requested") == 1
    assert stage.seen == []


@pytest.mark.requirement("R081", "R137")
async def test_with_one_of_two_questions_answered_resume_runs_that_call_and_the_run_stays_paused() -> None:
    stage = Stage()
    runtime, _ = paused_runtime(stage)
    result = await runtime.execute([call("c1", "ask", name="a", path="p"), call("c2", "ask", name="b", path="q")])
    await runtime.decide(result.questions[1].action_id, approved=True)

    resumed = await runtime.resume()

    assert codes(resumed) == {"c2": "ok"}
    assert behind(resumed) == {"c1": ""}
    assert resumed.state is RunState.PAUSED_APPROVAL
    assert stage.starts() == ["b"]


@pytest.mark.requirement("R137")
async def test_while_one_of_two_questions_is_open_the_run_takes_no_new_calls() -> None:
    stage = Stage()
    runtime, _ = paused_runtime(stage)
    result = await runtime.execute([call("c1", "ask", name="a", path="p"), call("c2", "ask", name="b", path="q")])
    await runtime.decide(result.questions[1].action_id, approved=True)

    assert await runtime.state() is RunState.PAUSED_APPROVAL
    with pytest.raises(RunPausedError):
        await runtime.execute([call("c3", "edit", name="c", path="p")])
    assert stage.seen == []


@pytest.mark.requirement("P05", "R081", "R086")
async def test_one_approval_that_is_used_three_times_gives_one_execution() -> None:
    stage = Stage()
    runtime, _ = paused_runtime(stage)
    asked = [call("c1", "ask", name="a", path="p")]
    action_id = (await runtime.execute(asked)).questions[0].action_id
    await runtime.decide(action_id, approved=True)

    first = await runtime.resume()
    second = await runtime.resume()
    third = await runtime.execute(asked)
    with pytest.raises(DecisionConflictError):
        await runtime.decide(action_id, approved=True)
    fourth = await runtime.resume()

    assert stage.starts() == ["a"]
    assert codes(first) == {"c1": "ok"}
    assert third.observations == first.observations
    assert (second.observations, fourth.observations) == ((), ())
    assert (await walk(runtime, "c1")).count("tool.invocation.started") == 1


@pytest.mark.requirement("R082")
@pytest.mark.parametrize("approved", [True, False])
async def test_the_first_answer_stands(approved: bool) -> None:
    stage = Stage()
    runtime, _ = paused_runtime(stage)
    action_id = (await runtime.execute([call("c1", "ask", name="a", path="p")])).questions[0].action_id
    await runtime.decide(action_id, approved=approved)

    with pytest.raises(DecisionConflictError):
        await runtime.decide(action_id, approved=not approved)

    assert codes(await runtime.resume()) == {"c1": "ok" if approved else "user_denied"}
    assert stage.starts() == (["a"] if approved else [])


async def test_an_answer_that_comes_after_the_run_ended_is_refused() -> None:
    stage = Stage()
    runtime, _ = paused_runtime(stage)
    action_id = (await runtime.execute([call("c1", "ask", name="a", path="p")])).questions[0].action_id
    await runtime.cancel("Enough.")

    with pytest.raises((RunEndedError, DecisionConflictError)):
        await runtime.decide(action_id, approved=True)

    assert stage.seen == []
    assert (await runtime.verify()).ok


@pytest.mark.requirement("R119")
async def test_a_call_that_is_approved_on_the_spot_runs_in_its_place_in_line() -> None:
    stage, asked, said = Stage(), asyncio.Event(), asyncio.Event()

    async def later(_: Question) -> bool:
        asked.set()
        await said.wait()
        return True

    runtime = ToolRuntime(
        tools=tools(stage),
        policy=RulePolicy([Rule(id="a", verdict="ask", tools="ask")]),
        interaction=CallbackInteractionProvider(later),
    )
    running = asyncio.create_task(
        runtime.execute(
            [
                call("c1", "ask", name="asked", path="p"),
                call("c2", "edit", name="same", path="p"),
                call("c3", "edit", name="other", path="q"),
            ]
        )
    )
    async with asyncio.timeout(PATIENCE):
        await asked.wait()
        await stage.started("other")
        assert stage.starts() == ["other"]
        said.set()
        result = await running

    assert stage.starts() == ["other", "asked", "same"]
    assert codes(result) == {"c1": "ok", "c2": "ok", "c3": "ok"}
    assert result.state is RunState.RUNNING


async def test_an_end_is_durable_while_a_person_thinks() -> None:
    """Killed now, the finished call must not be one with an unknown outcome."""
    log, asked, answered = MemoryLog(), asyncio.Event(), asyncio.Event()
    stage = Stage()

    async def think(question: Question) -> bool:
        asked.set()
        await answered.wait()
        return True

    async def ended() -> bool:
        entries = [decode_event(entry).fact for entry in await log.read("run_1")]
        return any(isinstance(fact, CallObserved) and fact.observation.call_id == "c1" for fact in entries)

    tools = [tool(stage.play, name="save", write_keys=key), tool(stage.act, name="ask", write_keys=key)]
    runtime = ToolRuntime(
        tools=tools, policy=CountingPolicy(), interaction=CallbackInteractionProvider(think), log=log, run_id="run_1"
    )
    calls = [call("c1", "save", name="a", path="x"), call("c2", "ask", name="b", path="y")]
    running = asyncio.create_task(runtime.execute(calls))
    await stage.started("a")
    await asked.wait()
    stage.let_go("a")
    await stage.ended("a")
    async with asyncio.timeout(PATIENCE):
        while not await ended():
            await others_ran(1)
    assert not running.done()

    answered.set()
    assert codes(await running) == {"c1": "ok", "c2": "ok"}


@pytest.mark.requirement("R013")
async def test_cancelling_a_paused_run_voids_its_questions_and_ends_its_calls() -> None:
    stage = Stage()
    runtime, _ = paused_runtime(stage)
    calls = [call("c1", "ask", name="a", path="x"), call("c2", "edit", name="b", path="x")]
    assert len((await runtime.execute(calls)).waiting) == 2

    await runtime.cancel("Enough.")

    assert [action.status for action in await runtime.actions()] == ["VOID"]
    ended = [event for event in await handle_events(runtime) if event.type == "tool_completed"]
    assert [(event.data["tool_call_id"], event.data["success"]) for event in ended] == [("c1", False), ("c2", False)]
    assert (stage.seen, await runtime.state()) == ([], RunState.CANCELLED)


async def test_a_call_that_waited_behind_another_has_one_decision() -> None:
    stage = Stage()
    runtime, _ = paused_runtime(stage)
    [question] = (
        await runtime.execute([call("c1", "ask", name="a", path="x"), call("c2", "edit", name="b", path="x")])
    ).questions
    await runtime.decide(question.action_id, approved=True)
    assert codes(await runtime.resume()) == {"c1": "ok", "c2": "ok"}

    decided = [event.data for event in await handle_events(runtime) if event.type == "policy_decision"]
    assert [data["tool_name"] for data in decided] == ["ask", "edit"]
    started = [fact for fact in await facts(runtime) if isinstance(fact, InvocationStarted)]
    assert [fact.waited_for for fact in started] == [(), ("c1",)]


async def test_a_character_without_utf8_is_the_same_in_result_and_log() -> None:
    @tool(risk="read")
    def odd() -> str:
        return "a\ud800b"

    runtime = ToolRuntime(tools=[odd])
    result = await runtime.execute([call("c1", "odd")])

    assert list(result.tool_executions) == await runtime.tool_executions()
    assert result.messages_for("openai")[0]["content"].encode()
