"""The state as of an event is what the runtime itself held at that moment."""

from interlock import MemoryLog, Rule, RulePolicy, tool
from interlock.domain.call import Answer
from interlock.domain.event import LogEntry, decode_event
from interlock.history.state_view import build_state_at
from interlock.runs.runner import Runner
from tests.runs.support import agent_of, calls


@tool(risk="write")
def change(what: str) -> str:
    """Change it."""
    return f"changed {what}"


@tool
def look(what: str) -> str:
    """Look at it."""
    return f"seen {what}"


async def a_run() -> list[LogEntry]:
    """Looks, changes with a yes, is done."""
    policy = RulePolicy([Rule(id="ask", verdict="ask", tools="change")], default="allow")
    turns = (calls(("c1", "look", {"what": "x"}), ("c2", "change", {"what": "x"})), "Done.")
    agent = agent_of(*turns, tools=[look, change], policy=policy, name="one")
    log = MemoryLog()
    async with Runner(agent, log=log, requester="user:sam") as runner:
        paused = await (await runner.start("Do it.")).result()
        (question,) = paused.questions
        answers = {question.action_id: Answer(approved=True, by="user:olga", reason="Fine.")}
        await (await runner.open(paused.run_id, answers=answers)).result()
        return await log.read(paused.run_id)


async def test_the_status_goes_from_running_over_paused_to_completed() -> None:
    entries = await a_run()
    run_id = entries[0].run_id
    states = [build_state_at(run_id, entries[: at + 1]) for at in range(len(entries))]

    assert [state.at_seq for state in states] == list(range(len(entries)))
    assert list(dict.fromkeys(state.status for state in states)) == ["RUNNING", "PAUSED_APPROVAL", "COMPLETED"]
    assert [state.at for state in states] == [decode_event(entry).at for entry in entries]
    last = states[-1]
    assert (last.agent, last.requester, last.message) == ("one", "user:sam", "Done.")
    assert [(call.call_id, call.state, call.ok) for call in last.calls] == [
        ("c1", "observed", True),
        ("c2", "observed", True),
    ]
    (question,) = last.questions
    assert (question.status, question.by, question.reason) == ("EXECUTED", "user:olga", "Fine.")
    assert -1 < question.asked_seq < question.answered_seq < question.executed_seq
    assert (last.model_requests, last.model_answers, last.tool_calls) == (2, 2, 2)


async def test_before_its_first_event_a_run_has_nothing() -> None:
    state = build_state_at("run_none", [])
    assert (state.at_seq, state.calls, state.questions, state.message_count) == (-1, (), (), 0)


async def test_nothing_that_comes_later_is_known_earlier() -> None:
    entries = await a_run()
    run_id = entries[0].run_id
    for at in range(len(entries)):
        state = build_state_at(run_id, entries[: at + 1])
        seqs = [call.proposed_seq for call in state.calls] + [call.observed_seq for call in state.calls]
        seqs += [question.asked_seq for question in state.questions]
        seqs += [max(question.answered_seq, question.executed_seq) for question in state.questions]
        assert all(seq <= at for seq in seqs)
