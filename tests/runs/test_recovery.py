"""Runs whose process is gone: what another one finds, asks again, or leaves alone."""

import sqlite3
from pathlib import Path

import pytest

from interlock import MemoryArtifacts, MemoryLog, SqliteLog, ToolDefinition, tool
from interlock.agent.agent import Agent
from interlock.domain.decision import FailSafeConfig
from interlock.domain.errors import LogWriteError
from interlock.domain.event import InvocationStarted, ModelRequested, decode_event
from interlock.runs.runner import Runner
from interlock.storage.event_log import EventLog
from interlock.testing.log_entries import append_entries
from tests.storage.watched import watched

from .support import agent_of, asked_of, calls, run_of, start


def sending(sent: list[str], **options: object) -> ToolDefinition:
    @tool(risk="read", name="send", read_only=False, **options)  # pyright: ignore[reportArgumentType]
    def send(to: str) -> str:
        """Have an effect."""
        sent.append(to)
        return "sent"

    return send


def sender(sent: list[str], **declared: object) -> Agent:
    return agent_of(calls(("a", "send", {"to": "bob"})), "Done.", tools=[sending(sent)], **declared)


async def cut_after(kind: type, log: EventLog, run_id: str) -> MemoryLog:
    """The log as it was when the process died right after the first fact of this kind."""
    cut, entries = MemoryLog(), await log.read(run_id)
    last = next(entry.seq for entry in entries if isinstance(decode_event(entry).fact, kind))
    await append_entries(cut, run_id, entries[: last + 1])
    return cut


@pytest.mark.requirement("P07", "D15")
@pytest.mark.parametrize(("again", "sent"), [(True, ["bob", "bob"]), (False, ["bob"])])
async def test_a_person_may_say_whether_a_call_runs_again_of_which_nobody_knows_whether_it_happened(
    again: bool, sent: list[str]
) -> None:
    log, done, artifacts = MemoryLog(), list[str](), MemoryArtifacts()
    asks = FailSafeConfig(unknown_outcome_policy="ask")
    whole = await run_of(sender(done), log=log, artifacts=artifacts)
    cut = await cut_after(InvocationStarted, log, whole.run_id)

    async with Runner(sender(done, fail_safe=asks), log=cut, artifacts=artifacts) as runner:
        handle = await runner.open(whole.run_id)
        (question,) = (await handle.result()).questions
        assert "whether it happened is not known" in question.prompt
        await handle.decide(question.action_id, approved=again)
        await handle.resume()
        result = await handle.result()

    assert (result.status, result.text, done) == ("COMPLETED", "Done.", sent)
    assert [seen.code for seen in result.observations] == ["ok" if again else "outcome_unknown"]


async def test_a_model_that_was_asked_when_the_process_died_is_asked_again_with_the_same() -> None:
    log, done, artifacts = MemoryLog(), list[str](), MemoryArtifacts()
    first, second = sender(done), sender(done)
    whole = await run_of(first, log=log, artifacts=artifacts)
    cut = await cut_after(ModelRequested, log, whole.run_id)

    async with Runner(second, log=cut, artifacts=artifacts) as runner:
        result = await (await runner.open(whole.run_id)).result()

    assert result.text == "Done."
    assert asked_of(first)[0] == asked_of(second)[0]


async def test_a_tool_that_changed_since_it_was_approved_is_asked_about_anew(tmp_path: Path) -> None:
    done: list[str] = []

    def agent(description: str) -> Agent:
        @tool(risk="write", name="send", description=description)
        def send(to: str) -> str:
            done.append(to)
            return "sent"

        return agent_of(calls(("a", "send", {"to": "bob"})), "Done.", tools=[send])

    async with SqliteLog(tmp_path / "log") as log:
        async with Runner(agent("Send a letter."), log=log) as runner:
            handle = await runner.start("Do it.")
            waiting = await handle.result()
            await handle.decide(waiting.questions[0].action_id, approved=True)
        async with Runner(agent("Send a parcel."), log=log) as runner:
            handle = await runner.open(waiting.run_id)
            (question,) = (await handle.result()).questions
            assert question.replaces == waiting.questions[0].action_id
            assert not done

            await handle.decide(question.action_id, approved=True)
            await handle.resume()
            result = await handle.result()

    assert (result.text, done) == ("Done.", ["bob"])


async def test_starting_up_goes_on_with_what_was_left_and_with_nothing_else() -> None:
    log, done, artifacts = MemoryLog(), list[str](), MemoryArtifacts()
    whole = await run_of(sender(done), log=log, artifacts=artifacts)
    cut = await cut_after(ModelRequested, log, whole.run_id)
    ended = await run_of(agent_of("Over."), log=cut)
    asking = agent_of(calls(("a", "change", {})), tools=[tool(risk="write", name="change")(lambda: "x")])
    runner, waiting = await start(asking, cut)
    await waiting.result()
    await runner.close()
    await run_of(agent_of("Other.", name="other"), log=cut)

    async with Runner(sender(done), log=cut, artifacts=artifacts) as runner:
        (handle,) = await runner.recover()
        assert (await handle.result()).text == "Done."

    assert handle.run_id == whole.run_id != ended.run_id
    assert (await waiting.state()).value == "paused_approval"


async def test_a_run_whose_log_failed_can_be_gone_on_with_in_the_same_process(tmp_path: Path) -> None:
    sent: list[str] = []

    def see(connection: sqlite3.Connection, sql: str) -> None:
        if sent and sql == "COMMIT":
            raise sqlite3.OperationalError("database or disk is full")

    failing = SqliteLog(tmp_path / "log", factory=watched(see))
    async with Runner(sender(sent), log=failing) as runner:
        handle = await runner.start("Do it.", run_id="run")
        with pytest.raises(LogWriteError, match="disk is full"):
            await handle.result()

    async with SqliteLog(tmp_path / "log") as log, Runner(sender(sent), log=log) as runner:
        result = await (await runner.open("run")).result()

    assert (result.text, sent) == ("Done.", ["bob"])
    assert [seen.code for seen in result.observations] == ["outcome_unknown"]
    await failing.close()
