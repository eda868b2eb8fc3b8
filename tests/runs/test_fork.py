"""A fork goes on from any event of a run: with its memory, without its approvals, and without doing anything again."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import MemoryLog, tool
from interlock.agent.agent import Agent
from interlock.audit.verify import verify
from interlock.domain.errors import ConfigurationError, LogCorruptError
from interlock.domain.event import (
    ApprovalGranted,
    ApprovalRequested,
    CallObserved,
    InvocationStarted,
    LogEntry,
    RunStarted,
    decode_event,
)
from interlock.domain.state.lifecycle import ActionState, RunState
from interlock.domain.tool import ToolDefinition
from interlock.history.fold import fold_entries
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from interlock.runs.fork import copy_entries, fork
from interlock.runs.runner import Runner
from interlock.storage.event_log import EventLog
from interlock.storage.memory_artifacts import MemoryArtifacts
from tests.logs import open_log
from tests.replay.replayed import People

TURNS = (
    ScriptedTurn(text="First.", calls=(tool_call("look", at="a"), tool_call("send", to="bob"))),
    ScriptedTurn(calls=(tool_call("send", to="carl"), tool_call("put", at="b"), tool_call("send", to="eve"))),
    ScriptedTurn(calls=(tool_call("send", to="bob"), tool_call("look", at="c"))),
    ScriptedTurn(text="Done."),
)


def tools(done: list[str]) -> list[ToolDefinition]:
    @tool(risk="read")
    def look(at: str) -> str:
        """Look."""
        done.append(f"look {at}")
        return "seen"

    @tool(risk="write", idempotent=True)
    def put(at: str) -> str:
        """Put it there, however often."""
        done.append(f"put {at}")
        return "put"

    @tool(risk="write")
    def send(to: str) -> str:
        """Send."""
        done.append(f"send {to}")
        return "sent"

    return [look, put, send]


def sender(done: list[str]) -> Agent:
    return Agent(provider=ScriptedModel(TURNS, by_position=True), tools=tools(done), name="sender")


async def recorded(log: EventLog, artifacts: MemoryArtifacts) -> str:
    """A run that paused whenever somebody had to be asked. The yes to bob is for the whole run."""
    async with Runner(sender([]), log=log, artifacts=artifacts) as runner:
        handle = await runner.start("Send them.")
        while questions := (await handle.result()).questions:
            for question in questions:
                to = question.arguments.get("to")
                answer: Any = {"approved": to != "eve", "by": "ann", "scope": "run" if to == "bob" else "once"}
                await handle.decide(question.action_id, **answer)
            await handle.resume()
        return handle.run_id


async def gone_on(log: EventLog, artifacts: MemoryArtifacts, run_id: str) -> tuple[list[str], list[str]]:
    """What was done, and who was asked about, when somebody who says yes goes on with the run."""
    done: list[str] = []
    asked = Asked()
    async with Runner(sender(done), log=log, artifacts=artifacts, interaction=asked) as runner:
        handle = await runner.open(run_id)
        assert (await handle.result()).state is RunState.COMPLETED
    return done, asked.about


class Asked(People):
    def __init__(self) -> None:
        self.about: list[str] = []

    async def ask(self, question: Any) -> Any:
        self.about.append(question.call_id)
        return await super().ask(question)


def starts(entries: list[LogEntry]) -> list[InvocationStarted]:
    facts = [decode_event(entry).fact for entry in entries]
    return [fact for fact in facts if isinstance(fact, InvocationStarted)]


def started_in(entries: list[LogEntry]) -> set[str]:
    """The calls that had started, by id."""
    return {fact.call_id for fact in starts(entries)}


async def test_the_ledger_of_a_fork_is_that_of_the_run_at_every_event_but_for_what_is_its_own() -> None:
    log, artifacts = MemoryLog(), MemoryArtifacts()
    run_id = await recorded(log, artifacts)
    entries = await log.read(run_id)

    for at in range(len(entries)):
        told = copy_entries(entries[: at + 1], "run_fork")
        now, then = fold_entries("run_fork", told), fold_entries(run_id, entries[: at + 1])
        then.run_id, then.grants, then.checks.forked_at = "run_fork", {}, at

        assert now == then
        assert verify(told, "run_fork").ok


async def test_from_every_event_a_fork_goes_on_and_does_nothing_again_that_had_started() -> None:
    log, artifacts = MemoryLog(), MemoryArtifacts()
    run_id = await recorded(log, artifacts)
    entries = await log.read(run_id)

    for at in range(len(entries) - 1):
        name = await fork(log, run_id, at)
        prefix = await log.read(name)
        begun = started_in(entries[: at + 1])
        open_actions = fold_entries(name, prefix).actions.values()
        assert all(action.state not in (ActionState.PENDING, ActionState.APPROVED) for action in open_actions)

        if at == 0:  # nobody had said what to do
            continue
        done, asked = await gone_on(log, artifacts, name)

        after = (await log.read(name))[len(prefix) :]
        assert not begun & started_in(after)
        assert len(done) == len(started_in(after))
        assert {fact.call_id for fact in starts(after) if fact.tool != "look"} <= set(asked)
        assert verify(await log.read(name), name).ok
    assert await log.read(run_id) == entries


async def place_of(log: EventLog, run_id: str, kind: type, number: int = 0) -> int:
    events = [decode_event(entry) for entry in await log.read(run_id)]
    return [event.seq for event in events if isinstance(event.fact, kind)][number]


async def test_a_fork_says_where_it_comes_from_and_begins_with_the_same_facts_at_the_same_places() -> None:
    log, artifacts = MemoryLog(), MemoryArtifacts()
    run_id = await recorded(log, artifacts)

    name = await fork(log, run_id, 8, new_run_id="run_other")

    was, now = [[decode_event(entry) for entry in await log.read(each)] for each in (run_id, name)]
    assert name == "run_other"
    first = now[0].fact
    assert isinstance(first, RunStarted)
    assert (first.forked_from, first.forked_at, first.agent) == (run_id, 8, "sender")
    assert [(event.seq, event.at, event.fact) for event in now[1:9]] == [
        (event.seq, event.at, event.fact) for event in was[1:9]
    ]


async def test_an_approval_that_was_given_and_not_used_is_asked_for_again() -> None:
    log, artifacts = MemoryLog(), MemoryArtifacts()
    run_id = await recorded(log, artifacts)
    granted = await place_of(log, run_id, ApprovalGranted)

    done, asked = await gone_on(log, artifacts, await fork(log, run_id, granted))

    assert asked[0] == "call_2"
    assert done[0] == "send bob"


async def test_a_yes_for_the_whole_run_does_not_hold_in_a_fork() -> None:
    log, artifacts = MemoryLog(), MemoryArtifacts()
    run_id = await recorded(log, artifacts)
    was_asked = [entry for entry in await log.read(run_id) if isinstance(decode_event(entry).fact, ApprovalRequested)]
    used = await place_of(log, run_id, InvocationStarted, 1)

    _, asked = await gone_on(log, artifacts, await fork(log, run_id, used + 2))

    assert len(was_asked) == 4
    assert asked == ["call_3", "call_4", "call_5", "call_6"]


async def test_what_had_started_and_not_ended_has_an_unknown_outcome_whatever_the_tool_says() -> None:
    log, artifacts = MemoryLog(), MemoryArtifacts()
    run_id = await recorded(log, artifacts)
    entries = await log.read(run_id)
    seqs = [seq for seq, entry in enumerate(entries) if isinstance(decode_event(entry).fact, InvocationStarted)]

    for seq in seqs:
        name = await fork(log, run_id, seq)
        told = [decode_event(entry).fact for entry in (await log.read(name))[seq + 1 :]]
        seen = [fact.observation for fact in told if isinstance(fact, CallObserved)]
        assert {each.code for each in seen} == {"outcome_unknown"}
        assert all("It is not run again" in each.summary for each in seen)


async def test_a_fork_of_a_run_that_is_over_goes_on_from_before_its_end() -> None:
    log, artifacts = MemoryLog(), MemoryArtifacts()
    run_id = await recorded(log, artifacts)
    count = len(await log.read(run_id))

    name = await fork(log, run_id)

    assert len(await log.read(name)) == count - 1
    with pytest.raises(ConfigurationError, match=f"Fork it from event {count - 2} or before"):
        await fork(log, run_id, count - 1)


@pytest.mark.parametrize(
    ("run_id", "at", "new", "words"),
    [
        ("run_none", 0, "", "There is no run 'run_none'"),
        ("", 999, "", "has events 0 to"),
        ("", -1, "", "has events 0 to"),
        ("", 3, "\x00", "cannot be the id of a run"),
        ("", 3, "taken", "There is a run 'taken' already"),
    ],
)
async def test_a_fork_that_cannot_be_is_refused_in_words_and_writes_nothing(
    run_id: str, at: int, new: str, words: str
) -> None:
    log, artifacts = MemoryLog(), MemoryArtifacts()
    known = await recorded(log, artifacts)
    await fork(log, known, 3, new_run_id="taken")
    version = log.version()

    with pytest.raises(ConfigurationError, match=words):
        await fork(log, run_id or known, at, new_run_id=new)
    assert log.version() == version


async def test_a_run_that_is_not_what_was_written_is_not_forked() -> None:
    log = MemoryLog()
    run_id = await recorded(log, MemoryArtifacts())
    entries = await log.read(run_id)
    forged = msgspec.structs.replace(entries[3], hash=bytes(32))

    with pytest.raises(LogCorruptError):
        copy_entries([*entries[:3], forged], "run_fork")


@pytest.mark.usefixtures("log_backend")
async def test_a_fork_is_durable_where_the_run_is(tmp_path: Path) -> None:
    artifacts = MemoryArtifacts()
    async with open_log(tmp_path / "runs.db") as log:
        run_id = await recorded(log, artifacts)
        name = await fork(log, run_id, 5)

    async with open_log(tmp_path / "runs.db") as log:
        assert len(await log.read(name)) == 6
        done, _ = await gone_on(log, artifacts, name)
    assert done[-1] == "look c"


async def test_a_run_inside_a_call_is_not_started_again_by_a_fork() -> None:
    log, artifacts, done = MemoryLog(), MemoryArtifacts(), list[str]()

    def boss(done: list[str]) -> Agent:
        turns = (ScriptedTurn(calls=(tool_call("send", to="bob"),)), ScriptedTurn(text="Sent."))
        inside = Agent(provider=ScriptedModel(turns, by_position=True), name="inner", tools=tools(done))
        asks = (ScriptedTurn(calls=(tool_call("ask_inner", task="Send it."),)), ScriptedTurn(text="Done."))
        return Agent(provider=ScriptedModel(asks, by_position=True), tools=[inside.as_tool()], name="boss")

    async with Runner(boss(done), log=log, artifacts=artifacts) as runner:
        handle = await runner.start("Go.")
        (outer,) = (await handle.result()).questions
        await handle.decide(outer.action_id, approved=True)
        await handle.resume()
        assert len((await handle.result()).questions) == 1

        name = await fork(log, handle.run_id)
        result = await (await runner.open(name)).result()

    assert (result.state, result.text) == (RunState.COMPLETED, "Done.")
    assert done == []
