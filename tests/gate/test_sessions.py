"""Sessions of clients: the same call again attaches to the first one, and runs once."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from interlock import Gate, RunState, verify
from interlock.domain.call import Question
from interlock.gate.gate import Settled
from interlock.gate.sessions import Session, Sessions
from interlock.history.fold import load_run
from tests.gate.support import Desk, intent, open_gate
from tests.patience import HANG_SECONDS

Execute = Callable[[dict[str, Any]], Awaitable[Any]]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def _open(gate: Gate, requester: str = "ana", client: str = "coder") -> tuple[Sessions, Session]:
    sessions = Sessions(gate)
    return sessions, await sessions.open(requester=requester, client=client, framework="mcp")


async def _approve(gate: Gate, *, approved: bool = True, reason: str = "") -> None:
    (question,) = await gate.inbox.pending()
    await (gate.inbox.approve if approved else gate.inbox.reject)(question, by="ada", reason=reason)


async def _state(gate: Gate, session: Session) -> RunState:
    return (await load_run(gate.log, session.run_id)).ledger.state


async def test_repeated_call_attaches_and_runs_once_after_restart(tmp_path: Path, desk: Desk) -> None:
    asked: list[Settled] = []
    for number in range(3):
        async with open_gate(tmp_path) as gate:
            sessions, session = await _open(gate)
            asked.append(await sessions.call(session, intent("pay", f"c{number}"), desk.pay))
            await sessions.end(session)
    async with open_gate(tmp_path) as gate:
        await _approve(gate)
        sessions, session = await _open(gate)
        done = await sessions.call(session, intent("pay", "c7"), desk.pay)
        again = await sessions.call(session, intent("pay", "c8"), desk.pay)
        question = asked[0].question
        assert question is not None
        chain = verify(await gate.log.read(question.run_id), question.run_id)

    assert [settled.question for settled in asked] == [question] * 3
    assert (done.ok, desk.paid, chain.ok) == (True, [5], True)
    assert again.question is not None
    assert again.question.action_id != question.action_id


async def test_rejection_is_reported_once(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        sessions, session = await _open(gate)
        await sessions.call(session, intent("pay", "c1"), desk.pay)
        await _approve(gate, approved=False, reason="Too much.")
        told = await sessions.call(session, intent("pay", "c2"), desk.pay)
        again = await sessions.call(session, intent("pay", "c3"), desk.pay)

    assert "Too much." in told.text
    assert again.question is not None
    assert desk.paid == []


@pytest.mark.parametrize(("requester", "client"), [("ben", "coder"), ("ana", "other")])
async def test_approval_is_not_for_others(tmp_path: Path, desk: Desk, requester: str, client: str) -> None:
    async with open_gate(tmp_path) as gate:
        sessions, session = await _open(gate)
        await sessions.call(session, intent("pay", "c1"), desk.pay)
        await _approve(gate)
        other = await sessions.open(requester=requester, client=client)
        settled = await sessions.call(other, intent("pay", "c1"), desk.pay)

    assert settled.question is not None
    assert desk.paid == []


async def test_session_takes_calls_while_one_waits(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        sessions, session = await _open(gate)
        await sessions.call(session, intent("pay", "c1"), desk.pay)
        looks = [sessions.call(session, intent("look", f"l{n}"), desk.pay) for n in range(8)]
        assert all(settled.ok for settled in await asyncio.gather(*looks))
        await sessions.end(session)
        assert await _state(gate, session) is RunState.PAUSED_APPROVAL

    assert desk.paid == [5] * 8


async def test_end_completes_a_session_without_questions(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        sessions, session = await _open(gate)
        await sessions.call(session, intent("look", "c1"), desk.pay)
        await sessions.end(session)
        assert await _state(gate, session) is RunState.COMPLETED


async def test_named_session_is_continued_until_it_ends(tmp_path: Path, desk: Desk) -> None:
    async with open_gate(tmp_path) as gate:
        sessions = Sessions(gate)
        first = await sessions.open(requester="ana", client="coder", session_id="s1")
        await sessions.call(first, intent("look", "c1"), desk.pay)
        same = await sessions.open(requester="ana", client="coder", session_id="s1")
        await sessions.end(first)
        later = await sessions.open(requester="ana", client="coder", session_id="s1")

    assert same == first
    assert later.run_id != first.run_id


async def test_held_call_runs_when_it_is_approved(tmp_path: Path, desk: Desk) -> None:
    held = asyncio.Event()

    async def hold(question: Question) -> None:
        held.set()
        await asyncio.Event().wait()

    async with open_gate(tmp_path) as gate:
        sessions, session = await _open(gate)
        call = asyncio.create_task(sessions.call(session, intent("pay", "c1"), desk.pay, waits=hold))
        async with asyncio.timeout(HANG_SECONDS):
            await held.wait()
            await _approve(gate)
            settled = await call

    assert (settled.ok, desk.paid) == (True, [5])


async def test_cancelling_one_call_leaves_the_others(tmp_path: Path, desk: Desk) -> None:
    running, go = asyncio.Event(), asyncio.Event()

    async def slow(arguments: dict[str, Any]) -> str:
        running.set()
        await go.wait()
        return "done"

    async with open_gate(tmp_path) as gate:
        sessions, session = await _open(gate)
        slow_call = asyncio.create_task(sessions.call(session, intent("look", "c1"), slow))
        async with asyncio.timeout(HANG_SECONDS):
            await running.wait()
            cancelled = asyncio.create_task(sessions.call(session, intent("look", "c2", 9), slow))
            running.clear()
            await running.wait()
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            go.set()
            settled = await slow_call

    assert settled.result == "done"


async def test_call_of_another_process_is_awaited(tmp_path: Path, desk: Desk) -> None:
    """The process that holds the call runs it; the other one gets the same outcome from the log."""
    held = asyncio.Event()

    async def hold(question: Question) -> None:
        held.set()
        await asyncio.Event().wait()

    async def refuse(arguments: dict[str, Any]) -> None:
        raise AssertionError("ran twice")

    async with open_gate(tmp_path) as gate, open_gate(tmp_path) as other:
        sessions, session = await _open(gate)
        async with asyncio.timeout(HANG_SECONDS):
            call = asyncio.create_task(sessions.call(session, intent("pay", "c1"), desk.pay, waits=hold))
            await held.wait()
            others, second = await _open(other)
            paused = await others.call(second, intent("pay", "c1"), refuse)
            waiting = asyncio.create_task(others.call(second, intent("pay", "c1"), refuse, waits="inline"))
            await _approve(other)
            first, attached = await asyncio.gather(call, waiting)

    assert paused.question is not None
    assert (first.ok, attached.ok, desk.paid) == (True, True, [5])


async def test_call_with_unknown_outcome_is_never_repeated(tmp_path: Path, desk: Desk) -> None:
    """After a crash the same call reports that its outcome is unknown; later ones ask a person first."""
    running = asyncio.Event()

    async def die(arguments: dict[str, Any]) -> None:
        await desk.pay(arguments)
        running.set()
        await asyncio.Event().wait()

    gate = open_gate(tmp_path)
    sessions, session = await _open(gate)
    await sessions.call(session, intent("pay", "c1"), desk.pay)
    await _approve(gate)
    call = asyncio.create_task(sessions.call(session, intent("pay", "c2"), die))
    async with asyncio.timeout(HANG_SECONDS):
        await running.wait()
    copy = tmp_path / "after_crash"
    await asyncio.to_thread(_copy_state, tmp_path / "state", copy / "state")
    call.cancel()
    await gate.close()

    async with open_gate(copy) as gate:
        sessions, session = await _open(gate)
        lost = await sessions.call(session, intent("pay", "c3"), desk.pay)
        asked = await sessions.call(session, intent("pay", "c4"), desk.pay)

    assert lost.observation is not None
    assert lost.observation.failure is not None
    assert lost.observation.failure.code == "outcome_unknown"
    assert asked.question is not None
    assert desk.paid == [5]


def _copy_state(source: Path, target: Path) -> None:
    """Copy the log as a crash would leave it, and let nobody have its runs."""
    target.mkdir(parents=True)
    with sqlite3.connect(source / "runs.db") as log, sqlite3.connect(target / "runs.db") as copy:
        log.backup(copy)
        copy.execute("UPDATE claims SET pid = 0")
        copy.commit()
