"""Afterwards: replay executes nothing, the export is complete, and verification names every change to it."""

from pathlib import Path
from typing import Any

import pytest

from interlock import (
    AgentRunEvent,
    CallbackInteractionProvider,
    MemoryLog,
    Replay,
    SqliteLog,
    ToolRegistry,
    ToolRuntime,
    read_export,
    tool,
    verify,
)
from interlock.audit.verify import Checkpoint
from interlock.domain.event import InvocationStarted, LogEntry
from interlock.history.run_handle_view import to_run_handle_events
from tests.support import call

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool
async def commit(message: str) -> str:
    ran.append(message)
    return f"committed {message}"


@tool
async def broken() -> None:
    ran.append("broken")
    raise OSError("gone")


async def recorded(**options: Any) -> ToolRuntime:
    runtime = ToolRuntime(tools=[commit, broken], **options)
    await runtime.execute([call("c1", "commit", message="one"), call("c2", "broken"), call("c3", "commit")])
    await runtime.execute([call("c4", "commit", message="two")])
    return runtime


@pytest.mark.requirement("R269")
async def test_replay_executes_nothing_and_returns_what_was_observed() -> None:
    runtime = await recorded()
    before = list(ran)

    replay = await runtime.replay()
    observed = replay.observations()

    assert {observation.call_id: observation.code for observation in observed} == {
        "c1": "ok",
        "c2": "tool_failed",
        "c3": "schema_invalid",
        "c4": "ok",
    }
    assert ran == before


@pytest.mark.requirement("R196", "R269")
async def test_a_run_whose_tools_are_gone_is_replayed_and_answered_from_the_log() -> None:
    log = MemoryLog()
    first = await recorded(log=log)
    before = list(ran)
    later = ToolRuntime(tools=ToolRegistry(), log=log, run_id=first.run_id)

    assert (await later.replay()).observations() == (await first.replay()).observations()
    repeated = await later.execute([call("c1", "commit", message="one"), call("c2", "broken")])
    assert [observation.code for observation in repeated.observations] == ["ok", "tool_failed"]
    assert ran == before


@pytest.mark.requirement("R270")
async def test_a_call_that_was_refused_at_validation_is_replayed_without_any_start() -> None:
    replay = await (await recorded()).replay()

    of_refused = [step.event for step in replay if step.event.correlation_id == "c3"]
    assert [event.type for event in of_refused] == ["tool.intent", "tool.validation", "tool.observation"]
    assert not [event for event in of_refused if isinstance(event.fact, InvocationStarted)]


@pytest.mark.requirement("R173", "P11")
async def test_an_export_is_complete_and_proves_itself(tmp_path: Path) -> None:
    async with await recorded(log=SqliteLog(tmp_path / "runs.db")) as runtime:
        exported = await runtime.export()
        replay = await runtime.replay()

    entries = read_export(exported.splitlines())
    assert len(entries) == len(replay)
    assert verify(entries, runtime.run_id).ok
    assert Replay(entries).observations() == replay.observations()


def edited(entries: list[LogEntry], at: int) -> list[LogEntry]:
    entry = entries[at]
    body = entry.body.replace(b'"seq"', b'"sEq"', 1)
    return [*entries[:at], LogEntry(entry.run_id, entry.seq, body, entry.hash), *entries[at + 1 :]]


def removed(entries: list[LogEntry], at: int) -> list[LogEntry]:
    return [*entries[:at], *entries[at + 1 :]]


def moved(entries: list[LogEntry], at: int) -> list[LogEntry]:
    return [*entries[:at], entries[at + 1], entries[at], *entries[at + 2 :]]


def inserted(entries: list[LogEntry], at: int) -> list[LogEntry]:
    entry = entries[at]
    forged = LogEntry(entry.run_id, entry.seq, entry.body.replace(b"c1", b"c9"), bytes(32))
    return [*entries[:at], forged, *entries[at:]]


@pytest.mark.requirement("P11")
@pytest.mark.parametrize("damage", [edited, removed, moved, inserted])
async def test_any_change_to_a_real_run_is_found_at_its_place(damage: Any) -> None:
    runtime = await recorded()
    entries = read_export((await runtime.export()).splitlines())

    for at in range(len(entries) - 1):
        audit = verify(damage(entries, at), runtime.run_id)
        assert audit.flaw is not None
        assert audit.flaw.seq == at, audit.flaw


@pytest.mark.requirement("P11")
async def test_a_cut_tail_of_a_real_run_is_found_with_a_checkpoint() -> None:
    runtime = await recorded()
    entries = read_export((await runtime.export()).splitlines())
    whole = await runtime.verify()
    checkpoint = Checkpoint(whole.count, whole.head_hash)

    for kept in range(len(entries)):
        audit = verify(entries[:kept], runtime.run_id, checkpoint)
        assert audit.flaw is not None
        assert (audit.flaw.problem, audit.flaw.seq) == ("cut", kept)


@pytest.mark.requirement("D01")
async def test_the_run_handle_shows_a_fixed_view_of_the_dotted_log() -> None:
    runtime = ToolRuntime(
        tools=[tool(commit.handler, name="commit", risk="write")],
        interaction=CallbackInteractionProvider(lambda _: True),
    )
    await runtime.execute([call("c1", "commit", message="one")])
    await runtime.complete()

    log = [event async for event in runtime.log_events()]
    shown = [event async for event in runtime.events()]

    assert all("." in event.type or event.type == "warning" for event in log)
    assert shown == [view for event in log for view in to_run_handle_events(event)]
    assert [event.type for event in shown] == [
        "tool_batch_started",
        "policy_decision",
        "run_paused",
        "run_resumed",
        "tool_completed",
    ]
    assert all(isinstance(event, AgentRunEvent) for event in shown)
