"""Runs go on by themselves: when they are made, when somebody answers, when their time is over."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock import ToolContext, tool
from interlock.domain.call import Answer
from interlock.domain.decision import Decision, Verdict
from interlock.domain.event import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    CallObserved,
    InvocationStarted,
    RunFailed,
    RunResumed,
)
from interlock.domain.json import JsonObject
from interlock.domain.tool import CallContext, Consent, ConsentBinding
from interlock.server.core.runs import indexed_runs
from interlock.server.core.runs.served_agent import ServedAgent
from tests.runs.support import calls

from .people import FakeClock
from .serving import (
    ADA,
    ASK_CHANGE,
    BOB,
    World,
    approve,
    asked,
    breath,
    create,
    kinds,
    scripted,
    serving,
    settings_of,
    status,
    told,
    until,
)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.requirement("R124", "R127")
async def test_a_run_is_moved_on_as_soon_as_it_is_made(tmp_path: Path) -> None:
    async with serving(tmp_path, scripted("plain", "Hello.")) as service:
        run_id = await create(service, "plain")

        row = await status(service, run_id, "COMPLETED")

    assert (row.message, row.created_by, row.requester) == ("Hello.", "user:ada", "user:ada")


@pytest.mark.requirement("R131", "R152", "R153")
async def test_after_an_approval_the_run_goes_on_by_itself_and_the_log_has_the_order_of_it(
    tmp_path: Path, world: World
) -> None:
    async with serving(tmp_path, world.one()) as service:
        run_id = await create(service, "one")
        (row,) = await asked(service, run_id)
        assert world.changes == []

        decided = await approve(service, row)
        await status(service, run_id, "COMPLETED")
        facts = [fact for fact in await told(service, run_id) if isinstance(fact, RunResumed | ApprovalGranted)]
        order = await kinds(service.log, run_id)

    assert (decided.delivery, decided.action.status) == ("recorded", "APPROVED")
    assert world.changes == ["x"]
    assert [type(fact) for fact in facts] == [RunResumed, ApprovalGranted]
    assert order[order.index("RunResumed") :][:3] == ["RunResumed", "ApprovalGranted", "InvocationStarted"]


@pytest.mark.requirement("R152")
async def test_an_answer_from_another_process_is_gone_on_with_here(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, world.one()) as service:
        run_id = await create(service, "one")
        (row,) = await asked(service, run_id)

        command = "from interlock.cli.main import main; main()"
        words = ["approvals", "approve", row.action_id, "--log", tmp_path / "runs.db", "--hash", row.payload_hash]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            command,
            *map(str, words),
            stdout=subprocess.DEVNULL,
            env=os.environ | {"HOME": str(tmp_path)},
        )
        assert await process.wait() == 0
        await status(service, run_id, "COMPLETED")

    assert world.changes == ["x"]


@pytest.mark.requirement("P12", "R150")
async def test_edited_arguments_are_what_runs_and_the_model_is_told(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, world.one()) as service:
        run_id = await create(service, "one")
        (row,) = await asked(service, run_id)

        await approve(service, row, arguments={"what": "y"})
        await status(service, run_id, "COMPLETED")
        facts = await told(service, run_id)

    assert world.changes == ["y"]
    (observed,) = [fact.observation for fact in facts if isinstance(fact, CallObserved)]
    assert "user:bob" in str(observed)


@pytest.mark.requirement("R133", "R151", "D02")
async def test_a_rejection_fails_the_run_out_of_its_pause(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, world.one()) as service:
        run_id = await create(service, "one")
        (row,) = await asked(service, run_id)

        decided = await service.approval_service.reject(BOB, row.action_id, "Not today.", row.payload_hash)
        ended = await status(service, run_id, "FAILED")
        order = await kinds(service.log, run_id)

    assert decided.action.status == "REJECTED"
    assert "RunResumed" not in order
    assert order[-1] == "RunFailed"
    assert "Not today." in ended.message
    assert world.changes == []


@pytest.mark.requirement("D02")
async def test_an_agent_that_says_so_goes_on_after_a_rejection(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, ServedAgent(agent=world.one(), on_rejection="continue")) as service:
        run_id = await create(service, "one")
        (row,) = await asked(service, run_id)

        await service.approval_service.reject(BOB, row.action_id, "Not today.")
        await status(service, run_id, "COMPLETED")

    assert world.changes == []


async def test_the_first_of_two_answers_is_carried_out_without_the_second(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, world.two()) as service:
        run_id = await create(service, "two")
        first, second = await asked(service, run_id, 2)

        await approve(service, first)
        await until(service, lambda: changed_to(world, "x"))
        await service.approval_service.reject(BOB, second.action_id, "No.")
        await status(service, run_id, "FAILED")

    assert world.changes == ["x"]


async def test_what_nobody_answers_in_time_expires_by_the_clock(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_runs, "_POLL_SECONDS", 0.01)
    clock = FakeClock()
    async with serving(tmp_path, world.one(), settings=settings_of(approval_seconds=60.0), now=clock) as service:
        run_id = await create(service, "one")
        (row,) = await asked(service, run_id)
        assert row.expires_at == clock.at + 60 * 10**9

        clock.at += 60 * 10**9
        await status(service, run_id, "FAILED")
        facts = await told(service, run_id)

    assert any(isinstance(fact, ApprovalExpired) for fact in facts)
    assert not any(isinstance(fact, ApprovalRejected) for fact in facts)
    (observed,) = [fact.observation for fact in facts if isinstance(fact, CallObserved)]
    assert observed.failure is not None
    assert observed.failure.code == "approval_expired"
    assert world.changes == []


async def test_a_question_that_is_late_and_nobody_here_can_close_keeps_no_other_one_open(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_POLL_SECONDS", "_EXPIRED_POLL_SECONDS"):
        monkeypatch.setattr(indexed_runs, name, 0.01)
    clock = FakeClock()
    timed = settings_of(approval_seconds=60.0)
    async with serving(tmp_path, world.one("gone"), settings=timed, now=clock, state="other") as service:
        stays = await create(service, "gone")
        await asked(service, stays)
    clock.at += 61 * 10**9

    async with serving(tmp_path, world.one(), settings=timed, now=clock) as service:
        run_id = await create(service, "one")
        await asked(service, run_id)
        clock.at += 61 * 10**9
        await status(service, run_id, "FAILED")
        await status(service, stays, "PAUSED_APPROVAL")


def _ask_for_audience(arguments: JsonObject, situation: CallContext) -> Decision:
    return Decision(verdict=Verdict.REQUEST_INPUT, reason="Who?", prompt="Who?", target_arg="audience")


@pytest.mark.parametrize("answered", [True, False])
async def test_a_value_is_provided_or_refused(tmp_path: Path, answered: bool) -> None:
    sent: list[str] = []

    @tool(authorize=_ask_for_audience)
    def send(audience: str = "") -> str:
        """Send it."""
        sent.append(audience)
        return "sent"

    async with serving(tmp_path, scripted("mail", calls(("c1", "send", {})), "Sent.", tools=[send])) as service:
        run_id = await create(service, "mail")
        (row,) = await asked(service, run_id)
        if answered:
            await service.approval_service.provide_input(BOB, row.action_id, "everybody", row.payload_hash)
        else:
            await service.approval_service.reject(BOB, row.action_id, "Nobody.")
        await status(service, run_id, "COMPLETED" if answered else "FAILED")

    assert sent == (["everybody"] if answered else [])


class Access:
    """Access of one user, given by hand."""

    can_ask = True

    def __init__(self) -> None:
        self.held: str | None = None

    async def token(self, binding: ConsentBinding, consent: Consent) -> str | None:
        return self.held


@pytest.mark.requirement("R130", "R132", "R134", "R156", "R157")
@pytest.mark.parametrize("given", [True, False])
async def test_a_run_that_waits_for_consent_goes_on_with_it_and_fails_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    access, tokens = Access(), list[str]()
    monkeypatch.setattr("interlock.server.core.service.NoConsents", lambda: access)

    @tool(risk="write", consent=Consent(provider="mail", scopes=("send",)))
    def send(context: ToolContext) -> str:
        """Send it."""
        tokens.append(context.access_token)
        return "sent"

    async with serving(tmp_path, scripted("mail", calls(("c1", "send", {})), "Sent.", tools=[send])) as service:
        run_id = await create(service, "mail")
        (row,) = await asked(service, run_id)
        while row.kind != "consent":  # both may be needed, in whichever order
            await approve(service, row)
            await status(service, run_id, "PAUSED_CONSENT")
            (row,) = await asked(service, run_id)
        await status(service, run_id, "PAUSED_CONSENT")

        access.held = "secret-token" if given else None
        await service.approval_service.record_consent(run_id, row.action_id, Answer(approved=given, by="user:ada"))
        while given and (await status(service, run_id, "PAUSED_APPROVAL", "COMPLETED")).status != "COMPLETED":
            await approve(service, (await asked(service, run_id))[0])
            await status(service, run_id, "COMPLETED")
        await status(service, run_id, "COMPLETED" if given else "FAILED")

    assert tokens == (["secret-token"] if given else [])


@pytest.mark.requirement("R152")
async def test_a_run_inside_a_call_is_approved_and_the_run_around_it_goes_on(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, world.boss(), settings=settings_of(four_eyes="all")) as service:
        run_id = await create(service, "boss", ADA)
        (row,) = await asked(service, run_id)
        assert row.run_id.startswith(f"{run_id}.")
        assert (row.requester, row.created_by) == ("user:ada", "user:ada")

        await approve(service, row, BOB)
        ended = await status(service, run_id, "COMPLETED")
        order = await kinds(service.log, run_id)

    assert (ended.message, world.changes) == ("All done.", ["h"])
    assert order.count("RunPaused") == 1


async def test_two_answers_inside_a_call_are_carried_out_one_by_one(tmp_path: Path, world: World) -> None:
    turn = calls(("i1", "change", {"what": "a"}), ("i2", "change", {"what": "b"}))
    helper = scripted("helper", turn, "Helped.", tools=[world.change])
    boss = scripted(
        "boss", calls(("out", "ask_helper", {"task": "Help."})), "Done.", tools=[helper.as_tool()], policy=ASK_CHANGE
    )
    async with serving(tmp_path, boss) as service:
        run_id = await create(service, "boss")
        first, second = await asked(service, run_id, 2)

        await approve(service, first)
        await until(service, lambda: changed_to(world, "a"))
        await approve(service, second)
        await status(service, run_id, "COMPLETED")

    assert world.changes == ["a", "b"]


async def test_a_run_inside_that_is_cancelled_lets_the_run_around_it_go_on(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, world.boss()) as service:
        run_id = await create(service, "boss")
        (row,) = await asked(service, run_id)

        await service.run_service.cancel(BOB, row.run_id, "Not this way.")
        await status(service, run_id, "COMPLETED")

    assert world.changes == []


async def test_a_model_without_an_answer_fails_its_run_and_no_other(tmp_path: Path, world: World) -> None:
    silent: Any = scripted("silent")
    async with serving(tmp_path, silent, world.one()) as service:
        failing, other = await create(service, "silent"), await create(service, "one")

        row = await status(service, failing, "FAILED")
        await asked(service, other)
        facts = await told(service, failing)

    assert isinstance(facts[-1], RunFailed)
    assert "The model gave no answer" in row.message


async def test_what_goes_wrong_in_one_run_stops_no_other(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, world.one(), scripted("plain", "Hello.")) as service:
        run_id = await create(service, "one")
        (row,) = await asked(service, run_id)
        monkeypatch.setattr(service.runners.by_agent["one"], "open_started", _broken)

        await approve(service, row)
        await status(service, await create(service, "plain"), "COMPLETED")
        ended = await status(service, run_id, "FAILED")

    assert f"{run_id} cannot continue" in caplog.text
    assert ended.message == "The run cannot continue: ZeroDivisionError: a bug"
    assert world.changes == []


async def changed_to(world: World, *changes: str) -> bool:
    return world.changes == [*changes]


async def _broken(*_: object) -> None:
    raise ZeroDivisionError("a bug")


async def test_an_effect_is_not_repeated_when_a_run_is_woken_again_and_again(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, world.one()) as service:
        run_id = await create(service, "one")
        (row,) = await asked(service, run_id)
        await approve(service, row)
        for _ in range(50):
            await service.worker.engine.wake([run_id])
            await breath()
        await status(service, run_id, "COMPLETED")
        facts = await told(service, run_id)

    assert world.changes == ["x"]
    assert sum(isinstance(fact, InvocationStarted) for fact in facts) == 1
