"""The moment in which a run is given back: what people do just then is neither lost nor done twice."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from interlock import Answer, MemoryLog, tool
from interlock.domain.commands import CancelCommand, command_key, encode_command
from interlock.domain.event import ApprovalGranted, LogEntry
from interlock.pipeline.record import Recorder
from interlock.runs.inbox import Inbox
from interlock.runs.runner import Runner
from interlock.storage.event_log import Lease, QueuedCommand
from tests.logs import open_log

from .support import agent_of, calls, start
from .test_stopping import Long, change

ASKS = (calls(("a", "change", {})), "Done.")


class Slow(MemoryLog):
    """A log whose first release takes as long as a test wants, after the run is free."""

    def __init__(self) -> None:
        super().__init__()
        self.given_back, self.go_on = asyncio.Event(), asyncio.Event()

    async def release(self, lease: Lease) -> bool:
        has_commands = await super().release(lease)
        if not self.given_back.is_set():
            self.given_back.set()
            await self.go_on.wait()
        return has_commands


async def test_resuming_a_run_that_is_about_to_stop_is_heard() -> None:
    log = Slow()
    runner, handle = await start(agent_of(*ASKS, tools=[change]), log)
    await log.given_back.wait()
    (question,) = await handle.questions()
    assert await runner.inbox.deliver(handle.run_id, question.action_id, Answer(approved=True)) == "recorded"

    await handle.resume()
    log.go_on.set()

    assert (await handle.result()).text == "Done."
    await runner.close()


async def test_cancelling_a_run_that_is_about_to_stop_is_heard() -> None:
    log = Slow()
    runner, handle = await start(agent_of(*ASKS, tools=[change]), log)
    await log.given_back.wait()

    await handle.cancel("Enough.")
    log.go_on.set()

    assert (await handle.result()).message == "Enough."
    await runner.close()


@pytest.mark.usefixtures("log_backend")
async def test_command_right_before_the_pause_is_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause is durable with the release, which finds the command."""
    async with open_log(tmp_path / "log") as log, open_log(tmp_path / "log") as elsewhere:
        append_and_release = log.append_and_release

        async def write(run_id: str, entries: Sequence[LogEntry], lease: Lease) -> bool:
            command = CancelCommand("Enough.", "ana")
            await elsewhere.enqueue(run_id, QueuedCommand(command_key(command), encode_command(command)))
            return await append_and_release(run_id, entries, lease)

        def enqueue_before(run_id: str, entries: Sequence[LogEntry], lease: Lease) -> "asyncio.Future[bool]":
            return asyncio.ensure_future(write(run_id, entries, lease))

        monkeypatch.setattr(log, "append_and_release", enqueue_before)
        runner, handle = await start(agent_of(*ASKS, tools=[change]), log)

        result = await handle.wait_until_finished()
        assert (result.cancelled, result.message) == (True, "Enough.")
        assert await log.queued_commands(handle.run_id) == []
        await runner.close()


@pytest.mark.usefixtures("log_backend")
async def test_answer_while_a_pause_is_written_resumes_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that reaches the run after its last step was decided is recorded with the pause."""
    async with open_log(tmp_path / "log") as log:
        settle_writes = Recorder.settle_writes

        async def answer_before(recorder: Recorder) -> None:
            await settle_writes(recorder)
            for asked in recorder.ledger.open_questions():
                granted = Answer(approved=True, by="ana")
                recorder.add(ApprovalGranted(call_id=asked.call_id, action_id=asked.action_id, answer=granted))

        monkeypatch.setattr(Recorder, "settle_writes", answer_before)
        runner, handle = await start(agent_of(*ASKS, tools=[change]), log)

        assert (await handle.result()).text == "Done."
        await runner.close()


@pytest.mark.usefixtures("log_backend")
async def test_answers_that_come_with_a_resume_are_taken_from_a_run_that_is_moved_on(tmp_path: Path) -> None:
    long, aside = Long(), tool(risk="write", name="aside", concurrency="safe")(lambda: "changed")
    both = calls(("a", "aside", {}), ("b", "long", {}))
    async with open_log(tmp_path / "log") as log:
        runner, handle = await start(agent_of(both, "Done.", tools=[aside, long.tool]), log)
        await long.running.wait()
        (question,) = await handle.questions()

        await handle.resume(answers={question.action_id: Answer(approved=True, by="ana")})
        long.release.set()

        assert (await handle.wait_until_finished()).text == "Done."
        await runner.close()


async def test_a_run_that_is_paused_and_resumed_at_once_goes_on() -> None:
    long = Long()
    runner, handle = await start(agent_of(calls(("a", "long", {})), "Done.", tools=[long.tool]))
    await long.running.wait()

    handle.pause()
    await handle.resume()
    long.release.set()

    assert (await handle.result()).text == "Done."
    await runner.close()


async def test_whoever_waits_for_a_result_is_told_how_far_it_came_when_the_runner_is_closed() -> None:
    long = Long()
    runner, handle = await start(agent_of(calls(("a", "long", {})), "Done.", tools=[long.tool]))
    waiting = asyncio.create_task(handle.result())
    await long.running.wait()

    await runner.close()

    assert (await waiting).status == "RUNNING"


async def test_a_second_handle_of_a_run_is_closed_with_the_runner_although_the_first_ends_later() -> None:
    log, long = Slow(), Long()
    agent = agent_of(calls(("a", "change", {})), calls(("b", "long", {})), "Done.", tools=[change, long.tool])
    runner, first = await start(agent, log)
    await log.given_back.wait()
    (question,) = await first.questions()
    second = await runner.open(first.run_id, answers={question.action_id: Answer(approved=True)})
    await long.running.wait()
    log.go_on.set()
    await first.result()

    await runner.close()

    assert (long.cancelled, second.is_live) == (True, False)


@pytest.mark.usefixtures("log_backend")
async def test_a_result_has_the_calls_that_another_process_carried_out(tmp_path: Path) -> None:
    async with open_log(tmp_path / "log") as log, open_log(tmp_path / "log") as elsewhere:
        agent = agent_of(*ASKS, tools=[change])
        runner, handle = await start(agent, log)
        waiting = await handle.result()
        answers = {waiting.questions[0].action_id: Answer(approved=True)}
        async with Runner(agent, log=elsewhere, artifacts=runner.app.artifacts) as other:
            there = await (await other.open(handle.run_id, answers=answers)).result()

        here = await handle.result()

        assert [record.output for record in here.tool_executions] == ["changed"]
        assert here == there
        await runner.close()


async def test_a_chat_at_rest_is_left_alone_by_whoever_waits_for_its_end() -> None:
    log = MemoryLog()
    runner, handle = await start(agent_of("Hello.", "Bye."), log, chat=True)
    await handle.result()
    at_rest = log.version()
    over = asyncio.create_task(handle.wait_until_finished())

    assert await runner.recover() == []
    await handle.questions()
    assert log.version() == at_rest

    await handle.cancel("Enough.")
    assert (await over).message == "Enough."
    await runner.close()


async def test_a_desk_closes_what_it_made_and_no_log() -> None:
    log = MemoryLog()
    runner, handle = await start(agent_of(*ASKS, tools=[change]), log)
    (question,) = (await handle.result()).questions

    async with Inbox(log, runner.app.artifacts) as desk:
        await desk.deliver(handle.run_id, question.action_id, Answer(approved=True))

    await handle.resume()
    assert (await handle.result()).text == "Done."
    await runner.close()
