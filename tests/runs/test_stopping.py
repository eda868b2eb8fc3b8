"""Runs that are cancelled, paused, closed under, or that a person goes on talking to."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from interlock import Answer, MemoryLog, ToolDefinition, tool
from interlock.agent.agent import Agent
from interlock.domain.decision import FailSafeConfig
from interlock.domain.errors import ModelError, RunClaimedError, RunEndedError, RunPausedError
from interlock.domain.event import CallObserved, LogEntry, ModelFailed, RunCancelled, UserMessageReceived
from interlock.models.scripted import ScriptedFault, ScriptedTurn
from interlock.runs.inbox import Inbox
from interlock.runs.runner import Runner
from interlock.storage.event_log import Lease
from tests.agent.test_budgets import Hanging
from tests.logs import open_log

from .support import agent_of, asked_of, calls, facts_of, in_words, messages, start


class Long:
    """A tool that runs until it is told to end, or cancelled."""

    def __init__(self, risk: str = "read") -> None:
        self.running, self.release, self.cancelled = asyncio.Event(), asyncio.Event(), False
        self.tool: ToolDefinition = tool(risk=risk, name="long")(self._run)

    async def _run(self) -> str:
        """Take long."""
        self.running.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "done"


@tool(risk="write")
def change() -> str:
    """A person is asked."""
    return "changed"


@pytest.mark.requirement("R101", "R104")
async def test_cancelling_ends_what_runs_and_shows_the_model_nothing_more() -> None:
    long, log = Long(), MemoryLog()
    agent = agent_of(calls(("a", "long", {})), "Done.", tools=[long.tool])
    runner, handle = await start(agent, log)
    await long.running.wait()

    await handle.cancel("Enough.")
    result = await handle.result()

    assert long.cancelled
    assert (result.status, result.cancelled, result.message) == ("FAILED", True, "Enough.")
    assert len(asked_of(agent)) == 1
    await runner.close()


async def test_cancelling_after_the_turn_lets_the_calls_end() -> None:
    long = Long()
    agent = agent_of(calls(("a", "long", {})), "Done.", tools=[long.tool])
    runner, handle = await start(agent)
    await long.running.wait()

    cancelling = asyncio.create_task(handle.cancel("Later.", after_turn=True))
    asyncio.get_running_loop().call_soon(long.release.set)
    await cancelling
    result = await handle.result()

    assert not long.cancelled
    assert (result.cancelled, result.message) == (True, "Later.")
    assert [seen.code for seen in result.observations] == ["ok"]
    assert len(asked_of(agent)) == 1
    await runner.close()


@pytest.mark.parametrize("after_turn", [False, True])
async def test_cancelling_stops_listening_to_the_model(after_turn: bool) -> None:
    model = Hanging()
    runner, handle = await start(Agent(provider=model))
    await model.speaking.wait()

    await handle.cancel("Enough.", after_turn=after_turn)

    assert model.left.is_set()
    assert (await handle.result()).cancelled
    await runner.close()


class Gate(MemoryLog):
    """A log whose appends wait."""

    immediate = False

    def __init__(self) -> None:
        super().__init__()
        self.open, self.waiting = asyncio.Event(), asyncio.Event()
        self.open.set()

    def append(self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None) -> Any:
        return asyncio.ensure_future(self._append(run_id, entries, lease))

    async def _append(self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None) -> None:
        if not self.open.is_set():
            self.waiting.set()
        await self.open.wait()
        super().append(run_id, entries, lease)


@pytest.mark.parametrize("how", ["cancel", "pause"])
async def test_a_model_that_was_about_to_be_asked_is_not_asked(how: str) -> None:
    log, agent = Gate(), agent_of(calls(("a", "change", {})), tools=[change])
    runner, handle = await start(agent, log)
    log.open.clear()
    await log.waiting.wait()

    asyncio.get_running_loop().call_soon(log.open.set)
    if how == "pause":
        handle.pause()
    else:
        await handle.cancel()
    result = await handle.result()

    assert not asked_of(agent)
    assert not result.observations
    assert result.cancelled == (how == "cancel")
    await runner.close()


async def test_a_run_that_waits_can_be_cancelled() -> None:
    log = MemoryLog()
    runner, handle = await start(agent_of(calls(("a", "change", {})), tools=[change]), log)
    waiting = await handle.result()

    await handle.cancel("Never mind.")

    result = await handle.result()
    assert (result.cancelled, result.message, result.questions) == (True, "Never mind.", ())
    with pytest.raises(RunEndedError):
        await handle.decide(waiting.questions[0].action_id, approved=True)
    with pytest.raises(RunEndedError, match="cancelled already"):
        await handle.cancel()
    await handle.resume()
    assert (await handle.result()).cancelled, "what is over stays over"
    await runner.close()


@pytest.mark.usefixtures("log_backend")
async def test_another_process_can_cancel_and_the_one_that_has_the_run_does_it(tmp_path: Path) -> None:
    long = Long()
    async with open_log(tmp_path / "log") as log, open_log(tmp_path / "log") as elsewhere:
        runner, handle = await start(agent_of(calls(("a", "long", {})), "Done.", tools=[long.tool]), log)
        await long.running.wait()
        desk = Inbox(elsewhere, runner.app.artifacts, active_runs=[handle.run_id])

        assert await desk.cancel(handle.run_id, "From afar.") == "queued"
        result = await handle.result()

        assert (long.cancelled, result.cancelled, result.message) == (True, True, "From afar.")
        assert len(await facts_of(RunCancelled, log, handle.run_id)) == 1
        assert not await log.queued_commands(handle.run_id)
        await desk.close()
        await runner.close()


async def test_cancelling_the_calls_lets_the_run_go_on() -> None:
    long = Long()
    runner, handle = await start(agent_of(calls(("a", "long", {})), "Done.", tools=[long.tool]))
    await long.running.wait()

    assert handle.cancel_calls() == 1

    result = await handle.result()
    assert (result.status, result.text) == ("COMPLETED", "Done.")
    assert [seen.code for seen in result.observations] == ["cancelled"]
    assert handle.cancel_calls() == 0
    await runner.close()


async def test_a_pause_keeps_the_run_and_resuming_goes_on_without_repeating_anything() -> None:
    long, log = Long(), MemoryLog()
    agent = agent_of(calls(("a", "long", {})), "Done.", tools=[long.tool])
    runner, handle = await start(agent, log)
    await long.running.wait()
    handle.pause()
    long.release.set()
    paused = await handle.result()
    assert (paused.status, len(asked_of(agent))) == ("RUNNING", 1)
    assert not handle.is_live

    await handle.resume()

    assert (await handle.result()).text == "Done."
    assert len(await facts_of(CallObserved, log, handle.run_id)) == 1
    await runner.close()


async def test_closing_the_runner_leaves_no_task_and_a_run_that_can_be_gone_on_with() -> None:
    long, log = Long(), MemoryLog()
    runner, handle = await start(agent_of(calls(("a", "long", {})), "Done.", tools=[long.tool]), log)
    await long.running.wait()

    await runner.close()

    assert not handle.is_live
    assert long.cancelled
    async with Runner(agent_of(calls(("a", "long", {})), "Done.", tools=[long.tool]), log=log) as again:
        result = await (await again.open(handle.run_id)).result()
    assert (result.status, result.text) == ("COMPLETED", "Done.")
    assert [seen.code for seen in result.observations] == ["outcome_unknown"], "it was cancelled, and is not repeated"


async def test_a_run_is_moved_on_once_at_a_time_in_a_process() -> None:
    long = Long()
    runner, handle = await start(agent_of(calls(("a", "long", {})), "Done.", tools=[long.tool]))
    await long.running.wait()

    with pytest.raises(RunClaimedError, match="already running in this process"):
        await runner.open(handle.run_id)
    long.release.set()

    assert (await handle.result()).text == "Done."
    await runner.close()


async def test_a_chat_rests_after_each_answer_and_goes_on_when_a_person_speaks() -> None:
    log = MemoryLog()
    runner, handle = await start(agent_of("Hello.", "Bye."), log, chat=True)
    first = await handle.result()
    assert (first.status, first.text) == ("RUNNING", "Hello.")

    await handle.send_message("And?")

    assert (await handle.result()).text == "Bye."
    assert in_words(await messages(log, handle.run_id)) == [
        "user: Do it.",
        "model: Hello.",
        "user: And?",
        "model: Bye.",
    ]
    assert [fact.text for fact in await facts_of(UserMessageReceived, log, handle.run_id)] == ["Do it.", "And?"]
    await runner.close()


async def test_what_a_person_says_has_to_wait_for_the_answer_to_a_question() -> None:
    agent = agent_of(calls(("a", "change", {})), "Done.", "Fine.", tools=[change])
    runner, handle = await start(agent, chat=True)
    waiting = await handle.result()

    with pytest.raises(RunPausedError, match="Answer its questions"):
        await handle.send_message("Hurry.")

    await handle.decide(waiting.questions[0].action_id, approved=True)
    await handle.resume()
    assert (await handle.result()).text == "Done."
    await handle.send_message("Thanks.")
    assert (await handle.result()).text == "Fine."
    await runner.close()


@pytest.mark.requirement("R128")
async def test_a_model_that_gives_no_answer_fails_the_run_in_words() -> None:
    log = MemoryLog()
    runner, handle = await start(
        agent_of(ScriptedTurn(text="Hm", fault=ScriptedFault(message="The server is gone."))), log
    )

    result = await handle.result()

    assert (result.status, result.message) == ("FAILED", "The model gave no answer: The server is gone.")
    assert [fact.message for fact in await facts_of(ModelFailed, log, handle.run_id)] == ["The server is gone."]
    await runner.close()


async def test_a_run_may_be_kept_when_the_model_gives_no_answer() -> None:
    gone = [True]

    def answer(request: object) -> ScriptedTurn:
        return (
            ScriptedTurn(text="Hm", fault=ScriptedFault(message="The server is gone."))
            if gone.pop()
            else ScriptedTurn(text="Done.")
        )

    agent = agent_of(answer, fail_safe=FailSafeConfig(model_failure_policy="keep"))
    runner, handle = await start(agent)
    with pytest.raises(ModelError, match="The server is gone"):
        await handle.result()
    gone.append(False)

    await handle.resume()

    assert (await handle.result()).text == "Done."
    await runner.close()


async def test_a_listener_that_raises_disturbs_nobody() -> None:
    heard: list[str] = []

    def broken(event: object) -> None:
        raise RuntimeError("no")

    runner = Runner(agent_of("Hello.", "Done."), chat=True)
    handle = await runner.start("Do it.")
    handle.on_model(broken)
    handle.on_model(lambda event: heard.append(type(event).__name__))

    assert (await handle.result()).text == "Hello."
    assert heard == ["TextDelta", "StreamFinished"]
    await runner.close()


@pytest.mark.usefixtures("log_backend")
async def test_an_answer_that_comes_when_the_run_is_just_given_back_is_not_lost(tmp_path: Path) -> None:
    async with open_log(tmp_path / "log") as log, open_log(tmp_path / "log") as elsewhere:
        runner, handle = await start(agent_of(calls(("a", "change", {})), "Done.", tools=[change]), log)
        waiting = await handle.result()
        held: list[str] = [handle.run_id]  # as if somebody had it until the note was left
        desk = Inbox(elsewhere, runner.app.artifacts, active_runs=held)
        action_id = waiting.questions[0].action_id
        assert await desk.deliver(handle.run_id, action_id, Answer(approved=True)) == "queued"

        await handle.resume()

        assert (await handle.result()).text == "Done."
        await desk.close()
        await runner.close()


async def test_a_run_that_is_stopped_at_once_is_free() -> None:
    """Also before its task took the first step."""
    log = MemoryLog()
    async with Runner(agent_of("Done."), log=log) as runner:
        handle = await runner.start("Do it.")
        await handle.stop()
        assert await log.lease_holders() == {}
        await handle.resume()
        assert (await handle.result()).text == "Done."
