"""`Inbox`: list and answer the questions of all runs of a log."""

import pytest

from interlock import Answer, Inbox, MemoryLog, Rule, RulePolicy, Runner, tool
from interlock.domain.errors import AnswerRefusedError, ConfigurationError, DecisionConflictError, RunEndedError
from interlock.domain.event import ApprovalGranted, ApprovalRejected, LogEntry
from interlock.testing.log_entries import append_entries

from .support import agent_of, calls, facts_of

ASK_NAME = Rule(id="name", verdict="request_user_input", tools="greet", target_arg="name", prompt="Whom?")


@tool(risk="write")
def change(to: str = "x") -> str:
    """A person is asked."""
    return f"changed to {to}"


async def start_runs(log: MemoryLog, *run_ids: str) -> Runner:
    """Start runs that wait for an approval, and return the runner that continues them."""
    runner = Runner(agent_of(calls(("a", "change", {})), "Done.", tools=[change]), log=log)
    for run_id in run_ids:
        await (await runner.start("Do it.", run_id=run_id)).result()
    return runner


async def test_pending_lists_all_unfinished_runs() -> None:
    log = MemoryLog()
    async with await start_runs(log, "one", "two", "over"), Inbox(log) as inbox:
        await inbox.cancel("over", "Not needed.", by="ana")
        assert [question.run_id for question in await inbox.pending()] == ["one", "two"]
        assert [question.run_id for question in await inbox.pending("two")] == ["two"]
        with pytest.raises(ConfigurationError, match="There is no run 'three'"):
            await inbox.pending("three")


async def test_pending_leaves_out_damaged_runs() -> None:
    log = MemoryLog()
    async with await start_runs(log, "one", "damaged"), Inbox(log) as inbox:
        *_, last = await log.read("damaged")
        await append_entries(log, "damaged", [LogEntry("damaged", last.seq + 1, last.body, last.hash)])
        assert [question.run_id for question in await inbox.pending()] == ["one"]


@pytest.mark.parametrize("by_id", [True, False])
async def test_approve_continues_with_edited_arguments(by_id: bool) -> None:
    log = MemoryLog()
    async with await start_runs(log, "one", "two") as runner:
        async with Inbox(log) as inbox:
            question = (await inbox.pending())[1]
            answered = question.action_id if by_id else question
            assert await inbox.approve(answered, by="ana", reason="fine", arguments={"to": "y"}) == "recorded"
            assert [question.run_id for question in await inbox.pending()] == ["one"]
            with pytest.raises(DecisionConflictError, match="decided before"):
                await inbox.reject(answered, by="bob")
        result = await (await runner.open("two")).result()
    assert [record.output for record in result.tool_executions] == ["changed to y"]
    (granted,) = await facts_of(ApprovalGranted, log, "two")
    assert (granted.answer.by, granted.answer.reason) == ("ana", "fine")


async def test_reject_records_person_and_reason() -> None:
    log = MemoryLog()
    async with await start_runs(log, "one"), Inbox(log) as inbox:
        (question,) = await inbox.pending()
        assert await inbox.reject(question.action_id, by="bob", reason="too much") == "recorded"
    (rejected,) = await facts_of(ApprovalRejected, log, "one")
    assert rejected.answer == Answer(approved=False, by="bob", reason="too much")


async def test_question_is_answered_as_shown() -> None:
    """A changed payload is refused when a `Question` is given, and with `payload_hash` for an action id."""
    log = MemoryLog()
    async with await start_runs(log, "one"), Inbox(log) as inbox:
        (question,) = await inbox.pending()
        for answer in (inbox.approve, inbox.reject):
            with pytest.raises(DecisionConflictError, match="sha256:other"):
                await answer(question, payload_hash="sha256:other")
            with pytest.raises(DecisionConflictError, match="sha256:other"):
                await answer(question.action_id, payload_hash="sha256:other", run_id="one")


async def test_unknown_question_and_unfitting_answer_are_refused() -> None:
    log = MemoryLog()
    async with await start_runs(log, "one"), Inbox(log) as inbox:
        (question,) = await inbox.pending()
        with pytest.raises(DecisionConflictError, match=r"No unfinished run of the log asks 'other'"):
            await inbox.approve("other")
        with pytest.raises(AnswerRefusedError, match="stays open"):
            await inbox.approve(question, scope="window")
        await inbox.cancel("one")
        with pytest.raises(RunEndedError):
            await inbox.approve(question)


async def test_answer_gives_value_that_was_asked_for() -> None:
    log = MemoryLog()
    agent = agent_of(calls(("a", "greet", {})), "Done.", tools=[greet], policy=RulePolicy([ASK_NAME]))
    async with Runner(agent, log=log) as runner, Inbox(log) as inbox:
        handle = await runner.start("Do it.")
        await handle.result()
        (question,) = await inbox.pending()
        assert question.kind == "input"
        await inbox.answer(question, "Ana", by="ana")
        await handle.resume()
        result = await handle.result()
    assert [record.output for record in result.tool_executions] == ["hello Ana"]


@tool
def greet(name: str = "") -> str:
    """A person is asked for the name."""
    return f"hello {name}"
