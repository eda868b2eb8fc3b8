"""Of any number of answers to one question one counts, and everybody is told which."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from time import time_ns

import pytest

from interlock import MemoryLog, Runner, SqliteLog
from interlock.domain.call import Answer, Question
from interlock.domain.commands import AnswerCommand, encode_command
from interlock.domain.errors import DecisionConflictError
from interlock.domain.event import ApprovalGranted, ApprovalRejected, LogEntry
from interlock.runs.inbox import Inbox
from interlock.storage.event_log import Lease, QueuedCommand

from .deciding import change, check, deciders
from .support import agent_of, calls, facts


@pytest.mark.usefixtures("log_backend")
@pytest.mark.requirement("P17")
async def test_one_of_many_processes_is_first(tmp_path: Path) -> None:
    with deciders(tmp_path / "log", people=6, processes=3) as people:
        for number, here in enumerate(("first", "later", "never") * 3):
            check(await people.answer(number, here=here))


@pytest.mark.requirement("P17")
@pytest.mark.parametrize("turn", range(4))
async def test_the_person_here_and_others_race(turn: int) -> None:
    """The provider, the handle and an inbox answer at once, in another order each time."""
    log, asked, go = MemoryLog(), asyncio.Event(), asyncio.Event()

    async def approve(question: Question) -> Answer:
        asked.set()
        await go.wait()
        return Answer(approved=True, by="provider")

    async with (
        Runner(agent_of(calls(("a", "change", {})), "Done.", tools=[change]), log=log, approve=approve) as runner,
        Inbox(log) as inbox,
    ):
        handle = await runner.start("Do it.", run_id="one")
        await asked.wait()
        (question,) = await handle.questions()

        async def answer(by: str) -> str:
            try:
                if by == "provider":
                    go.set()
                elif by == "handle":
                    await handle.decide(question.action_id, approved=False, by=by)
                else:
                    await inbox.reject(question, by=by)
            except DecisionConflictError as conflict:
                return conflict.by
            return by

        people = ["provider", "handle", "inbox", "late"]
        order = people[turn:] + people[:turn]
        told = dict(zip(order, await asyncio.gather(*map(answer, order)), strict=True))
        await handle.wait_until_finished()
    (recorded,) = [fact for fact in await facts(log, "one") if isinstance(fact, ApprovalGranted | ApprovalRejected)]
    first = recorded.answer.by
    del told["provider"]  # it is not told anything
    assert set(told.values()) == {first}


class _AnsweredElsewhere(SqliteLog):
    """A log for which another process queues an answer right before one is recorded here."""

    def append_unless_queued(
        self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None, key: str
    ) -> "asyncio.Future[bool]":
        other = AnswerCommand(key.partition(":")[2], Answer(approved=False, by="elsewhere"), "", time_ns())
        queued = asyncio.ensure_future(self.enqueue(run_id, QueuedCommand(key, encode_command(other))))
        answering = asyncio.get_running_loop().create_future()

        def then(_: object) -> None:
            appended = super(_AnsweredElsewhere, self).append_unless_queued(run_id, entries, lease, key)
            appended.add_done_callback(lambda done: answering.set_result(done.result()))

        queued.add_done_callback(then)
        return answering


@pytest.mark.requirement("P17")
async def test_answer_given_at_opening_yields_to_a_queued_one(tmp_path: Path) -> None:
    agent = agent_of(calls(("a", "change", {})), "Done.", tools=[change])
    async with SqliteLog(tmp_path / "log") as log, Runner(agent, log=log) as runner:
        paused = await runner.run("Do it.")
    yes = {paused.questions[0].action_id: Answer(approved=True, by="ana")}

    async with _AnsweredElsewhere(tmp_path / "log") as log, Runner(agent, log=log) as runner:
        with pytest.raises(DecisionConflictError):
            await runner.open(paused.run_id, answers=yes)

        recorded = await facts(log, paused.run_id)
        answers = [fact.answer for fact in recorded if isinstance(fact, ApprovalGranted | ApprovalRejected)]
        assert [(answer.approved, answer.by) for answer in answers] == [(False, "elsewhere")]
