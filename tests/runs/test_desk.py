"""Answers at awkward moments: the first one stands, and none is lost or said to be recorded when it is not."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import Answer, MemoryArtifacts, MemoryLog, tool
from interlock.domain.errors import DecisionConflictError, InterlockError, RunClaimedError, RunEndedError
from interlock.domain.event import ApprovalGranted, ApprovalRejected, RunCancelled, RunCompleted, WarningRaised
from interlock.runs.handle import RunHandle
from interlock.runs.inbox import Inbox
from interlock.runs.runner import Runner
from interlock.storage.event_log import EventLog, Lease, QueuedCommand

from .support import agent_of, calls, facts, facts_of
from .test_stopping import Long

RUN = "run"
YES, NO = Answer(approved=True, by="ann"), Answer(approved=False, by="bob")


@tool(risk="write")
def change() -> str:
    """A person is asked."""
    return "changed"


class Between(MemoryLog):
    """Lets something happen right after the next claim, or right before the next note is left."""

    def __init__(self) -> None:
        super().__init__()
        self.after_claim: Callable[[], Awaitable[object]] | None = None
        self.before_post: Callable[[], Awaitable[object]] | None = None

    async def acquire(self, run_id: str, *, force: bool = False) -> Lease:
        claim = await super().acquire(run_id, force=force)
        then, self.after_claim = self.after_claim, None
        if then is not None:
            await then()
        return claim

    async def enqueue(self, run_id: str, command: QueuedCommand) -> bool:
        before, self.before_post = self.before_post, None
        if before is not None:
            await before()
        return await super().enqueue(run_id, command)

    async def steal(self) -> None:
        """Somebody takes the run over by force."""
        await MemoryLog.acquire(self, RUN, force=True)

    async def let_go(self) -> None:
        """Whoever has the run dies."""
        await self.release(await MemoryLog.acquire(self, RUN, force=True))


def asking() -> Any:
    return agent_of(calls(("a", "change", {})), "Done.", tools=[change])


async def waiting(log: EventLog) -> str:
    """A run that waits for a person and that nobody has. The question."""
    async with Runner(asking(), log=log) as runner:
        result = await (await runner.start("Do it.", run_id=RUN)).result()
    return result.questions[0].action_id


def desk_of(log: EventLog) -> Inbox:
    return Inbox(log, MemoryArtifacts())


async def answers_in(log: EventLog) -> list[Answer]:
    return [fact.answer for fact in await facts(log, RUN) if isinstance(fact, ApprovalGranted | ApprovalRejected)]


async def test_an_answer_that_was_left_stands_although_the_process_that_it_was_left_for_died() -> None:
    log = Between()
    action_id = await waiting(log)
    await log.acquire(RUN)
    assert await desk_of(log).deliver(RUN, action_id, NO) == "queued"
    await log.let_go()

    with pytest.raises(DecisionConflictError, match="rejected, by bob"):
        await desk_of(log).deliver(RUN, action_id, YES)

    assert await answers_in(log) == [NO]
    assert await log.queued_commands(RUN) == []


async def test_an_answer_to_a_run_that_is_cancelled_meanwhile_is_not_said_to_be_recorded() -> None:
    log = Between()
    action_id = await waiting(log)
    await log.acquire(RUN)

    async def cancelled() -> None:
        await log.let_go()
        await desk_of(log).cancel(RUN, "Stop.")

    log.before_post = cancelled
    with pytest.raises(RunEndedError, match="cancelled"):
        await desk_of(log).deliver(RUN, action_id, YES)

    assert await answers_in(log) == []


async def test_an_answer_that_was_too_late_names_the_one_that_stands() -> None:
    log = Between()
    action_id = await waiting(log)
    await log.acquire(RUN)

    async def answered() -> None:
        await log.let_go()
        await desk_of(log).deliver(RUN, action_id, YES)

    log.before_post = answered
    with pytest.raises(DecisionConflictError, match="approved, by ann"):
        await desk_of(log).deliver(RUN, action_id, NO)

    assert await answers_in(log) == [YES]
    assert await log.queued_commands(RUN) == []


async def test_an_answer_that_was_left_after_another_one_was_taken_names_the_one_that_stands() -> None:
    """Whoever has the run recorded the other answer between the look at the log and the note."""
    log = Between()
    action_id = await waiting(log)
    await log.acquire(RUN)

    async def taken_there() -> None:
        await log.let_go()
        await desk_of(log).deliver(RUN, action_id, YES)
        await MemoryLog.acquire(log, RUN)

    log.before_post = taken_there
    with pytest.raises(DecisionConflictError, match="approved, by ann"):
        await desk_of(log).deliver(RUN, action_id, NO)

    assert await answers_in(log) == [YES]
    assert await log.queued_commands(RUN) == []


async def test_a_desk_that_loses_the_run_while_it_writes_leaves_the_answer_for_whoever_has_it() -> None:
    log = Between()
    action_id = await waiting(log)
    log.after_claim = log.steal

    assert await desk_of(log).deliver(RUN, action_id, YES) == "queued"
    assert await answers_in(log) == []
    await log.let_go()
    async with Runner(asking(), log=log) as runner:
        result = await (await runner.open(RUN)).result()

    assert (result.text, await answers_in(log), await log.queued_commands(RUN)) == ("Done.", [YES], [])


async def test_a_note_stays_when_whoever_takes_it_loses_the_run() -> None:
    log = Between()
    action_id = await waiting(log)
    await log.acquire(RUN)
    await desk_of(log).deliver(RUN, action_id, YES)
    await log.let_go()
    log.after_claim = log.steal

    assert not await desk_of(log).apply_queued(RUN)

    assert len(await log.queued_commands(RUN)) == 1
    await log.let_go()
    assert await desk_of(log).apply_queued(RUN)
    assert await answers_in(log) == [YES]


async def test_a_cancellation_is_not_lost_when_the_run_is_taken_over_meanwhile() -> None:
    log = Between()
    await waiting(log)
    log.after_claim = log.steal

    assert await desk_of(log).cancel(RUN, "Stop.") == "queued"
    await log.let_go()
    async with Runner(asking(), log=log) as runner:
        result = await (await runner.open(RUN)).result()

    assert (result.cancelled, result.message, await log.queued_commands(RUN)) == (True, "Stop.", [])


async def test_cancelling_a_run_that_is_completed_meanwhile_says_so() -> None:
    log = Between()
    action_id = await waiting(log)
    await log.acquire(RUN)

    async def completed() -> None:
        await log.let_go()
        async with Runner(asking(), log=log) as runner:
            await (await runner.open(RUN, answers={action_id: YES})).result()

    log.before_post = completed
    with pytest.raises(RunEndedError, match="completed"):
        await desk_of(log).cancel(RUN)

    assert await facts_of(RunCompleted, log, RUN)
    assert not await facts_of(RunCancelled, log, RUN)


async def test_a_cancellation_that_the_owner_recorded_is_not_said_to_be_ours() -> None:
    log = Between()
    await waiting(log)
    await log.acquire(RUN)

    async def cancelled() -> None:
        await log.let_go()
        await desk_of(log).cancel(RUN, "Stop.")

    log.before_post = cancelled

    assert await desk_of(log).cancel(RUN, "Stop.") == "queued"
    assert (len(await facts_of(RunCancelled, log, RUN)), await log.queued_commands(RUN)) == (1, [])


async def test_an_answer_that_was_recorded_but_whose_note_still_lies_there_is_no_conflict() -> None:
    log = Between()
    action_id = await waiting(log)
    await log.acquire(RUN)
    await desk_of(log).deliver(RUN, action_id, YES)
    (note,) = await log.queued_commands(RUN)
    await log.let_go()
    await desk_of(log).apply_queued(RUN)

    await log.enqueue(RUN, note)  # the process died before it took the note away
    await desk_of(log).apply_queued(RUN)

    assert (await log.queued_commands(RUN), await facts_of(WarningRaised, log, RUN)) == ([], [])


async def test_a_note_that_no_version_can_read_is_taken_away_with_a_warning() -> None:
    log = Between()
    action_id = await waiting(log)
    deep = b'{"type":"answer","action_id":"x","answer":{"approved":true,"value":' + b"[" * 3000 + b"]" * 3000 + b"}}"
    await log.enqueue(RUN, QueuedCommand("deep", deep))

    assert await desk_of(log).deliver(RUN, action_id, YES) == "recorded"

    (warned,) = await facts_of(WarningRaised, log, RUN)
    assert (warned.message, await log.queued_commands(RUN)) == ("A note was left that cannot be read: 'deep'.", [])


class Moving:
    """A run that is moved on here, beside a question that is open."""

    def __init__(self) -> None:
        self.log, self.long = Between(), Long("network")
        both = calls(("busy", "long", {}), ("a", "change", {}))
        self.runner = Runner(agent_of(both, "Done.", tools=[change, self.long.tool]), log=self.log)

    async def start(self) -> tuple[RunHandle, str]:
        handle = await self.runner.start("Do it.", run_id=RUN)
        asked = (await handle.result()).questions
        busy = next(question.action_id for question in asked if question.tool_name == "long")
        await handle.decide(busy, approved=True)
        await handle.resume()
        await self.long.running.wait()
        return handle, next(question.action_id for question in asked if question.tool_name == "change")


async def test_an_answer_that_was_left_before_stands_also_where_the_run_is_moved_on() -> None:
    moving = Moving()
    handle, action_id = await moving.start()
    assert await desk_of(moving.log).deliver(RUN, action_id, NO) == "queued"

    with pytest.raises(DecisionConflictError, match="rejected, by bob"):
        await handle.decide(action_id, approved=True, by="ann")

    moving.long.release.set()
    await handle.result()
    assert NO in await answers_in(moving.log)
    await moving.runner.close()


async def test_an_answer_given_to_a_process_that_lost_its_run_is_left_for_the_one_that_has_it() -> None:
    moving = Moving()
    handle, action_id = await moving.start()
    await moving.log.steal()

    await handle.decide(action_id, approved=True, by="ann")

    assert [note.key for note in await moving.log.queued_commands(RUN)] == [f"answer:{action_id}"]
    assert YES not in await answers_in(moving.log)
    await moving.runner.close()


async def test_going_on_with_answers_says_so_when_the_run_was_taken_over_before_they_were_recorded() -> None:
    log = Between()
    action_id = await waiting(log)
    log.after_claim = log.steal
    async with Runner(asking(), log=log) as runner:
        with pytest.raises(RunClaimedError, match=rf"taken over.*before the answer to {action_id} was recorded"):
            await runner.open(RUN, answers={action_id: YES})

    assert await answers_in(log) == []


async def test_a_wish_to_end_a_run_stays_until_its_end_is_recorded() -> None:
    moving = Moving()
    handle, _ = await moving.start()
    ended: list[bool] = []
    take_away = moving.log.ack

    async def seen(run_id: str, key: str) -> None:
        ended.append(bool(await facts_of(RunCancelled, moving.log, RUN)))
        await take_away(run_id, key)

    moving.log.ack = seen
    assert await desk_of(moving.log).cancel(RUN, "Stop.") == "queued"
    result = await handle.result()

    assert (result.cancelled, result.message, ended) == (True, "Stop.", [True])
    await moving.runner.close()


Step = Literal["yes", "no", "cancel", "hold", "let go", "steal after the claim", "let go before the note", "take"]


@given(st.lists(st.sampled_from(Step.__args__), max_size=10))
def test_whatever_happens_meanwhile_no_answer_is_lost_and_none_is_said_to_be_recorded_that_is_not(
    steps: list[Step],
) -> None:
    asyncio.run(_no_answer_is_lost(steps))


async def _no_answer_is_lost(steps: list[Step]) -> None:
    log = Between()
    action_id = await waiting(log)
    left: list[Answer] = []
    for number, step in enumerate(steps):
        answer = Answer(approved=step == "yes", by=f"person {number}")
        try:
            said = await _do(step, log, action_id, answer)
        except InterlockError:
            continue
        if said == "recorded" and step in ("yes", "no"):
            assert await answers_in(log) == [answer]
        elif said == "queued":
            left.append(answer)
    log.after_claim = log.before_post = None
    await log.let_go()
    desk = desk_of(log)
    await desk.apply_queued(RUN)
    ended = not (await desk.pending(RUN)) and bool(await facts_of(RunCancelled, log, RUN))
    stands, warnings = await answers_in(log), await facts_of(WarningRaised, log, RUN)
    lost = [answer for answer in left if answer not in stands]
    assert await log.queued_commands(RUN) == []
    assert len(stands) <= 1
    assert ended or len(lost) <= len(warnings)


async def _do(step: Step, log: Between, action_id: str, answer: Answer) -> object:
    desk = desk_of(log)
    match step:
        case "yes" | "no":
            return await desk.deliver(RUN, action_id, answer)
        case "cancel":
            await desk.cancel(RUN)
        case "hold":
            await log.acquire(RUN)
        case "let go":
            await log.let_go()
        case "steal after the claim":
            log.after_claim = log.steal
        case "let go before the note":
            log.before_post = log.let_go
        case "take":
            await desk.apply_queued(RUN)
    return None
