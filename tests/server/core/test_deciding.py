"""People answer: the first answer stands, the same one again is the same, and another one is a conflict."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from interlock import SqliteLog
from interlock.domain.call import Answer
from interlock.domain.commands import AnswerCommand, command_key, encode_command
from interlock.domain.event import ApprovalGranted, ApprovalRejected
from interlock.server.core.errors import ConflictError, ForbiddenError, InvalidRequestError, NotFoundError
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.index.rows import ActionRow
from interlock.server.core.runs.approval_service import Approval
from interlock.server.core.service import Service
from interlock.storage.event_log import QueuedCommand

from .serving import ADA, BOB, BOT, World, approve, asked, create, serving, settings_of, status, told

AUDITOR = Principal(name="user:eve", kind="person", roles=frozenset({Role.AUDITOR}))
NOBODY = Principal(name="user:mallory", kind="person")
OTHERS = Principal(name="user:carl", kind="person", roles=frozenset({Role.OPERATOR}), agents=frozenset({"two"}))


@pytest.fixture
def world() -> World:
    return World()


async def waiting(service: Service, agent: str = "one") -> ActionRow:
    (row,) = await asked(service, await create(service, agent))
    return row


@pytest.mark.requirement("R159", "R160", "R161")
async def test_an_approval_of_something_else_is_a_conflict_that_names_both_hashes(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, world.one()) as service:
        row = await waiting(service)
        for decide in (
            service.approval_service.approve(BOB, row.action_id, Approval(payload_hash="sha256:" + "0" * 64)),
            service.approval_service.reject(BOB, row.action_id, "No.", "sha256:" + "0" * 64),
        ):
            with pytest.raises(ConflictError) as conflict:
                await decide
            assert conflict.value.code == "payload_hash_mismatch"
            assert conflict.value.details == {"expected": row.payload_hash, "actual": "sha256:" + "0" * 64}
        with pytest.raises(InvalidRequestError):
            await service.approval_service.approve(BOB, row.action_id, Approval(payload_hash=""))
        still = await service.index.get_action(row.action_id)

    assert still is not None
    assert still.status == "PENDING"
    assert world.changes == []


async def test_the_same_answer_again_is_the_same_and_another_one_names_both(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, world.one()) as service:
        row = await waiting(service)
        await approve(service, row, BOB)

        again = await approve(service, row, BOB)
        attempts: list[Any] = [
            service.approval_service.reject(BOB, row.action_id, "No."),
            service.approval_service.approve(ADA, row.action_id, Approval(payload_hash=row.payload_hash)),
            service.approval_service.approve(
                BOB, row.action_id, Approval(payload_hash=row.payload_hash, arguments={"what": "z"})
            ),
        ]
        for attempt in attempts:
            with pytest.raises(ConflictError) as conflict:
                await attempt
            assert conflict.value.code == "already_decided"
            assert conflict.value.details["decided"]["by"] == "user:bob"
            assert "attempted" in conflict.value.details
        await status(service, row.run_id, "COMPLETED")
        late = await approve(service, row, BOB)
        facts = await told(service, row.run_id)

    assert (again.delivery, late.delivery, late.action.status) == ("recorded", "recorded", "EXECUTED")
    assert sum(isinstance(fact, ApprovalGranted) for fact in facts) == 1
    assert world.changes == ["x"]


async def test_of_many_answers_at_once_one_stands(tmp_path: Path, world: World) -> None:
    people = [Principal(name=f"user:p{number}", kind="person", roles=frozenset({Role.OPERATOR})) for number in range(8)]
    async with serving(tmp_path, world.one()) as service:
        row = await waiting(service)
        yes = [
            service.approval_service.approve(who, row.action_id, Approval(payload_hash=row.payload_hash))
            for who in people
        ]
        no = [service.approval_service.reject(who, row.action_id, "No.") for who in people]
        outcomes = await asyncio.gather(
            *(each for pair in zip(yes, no, strict=True) for each in pair), return_exceptions=True
        )
        await status(service, row.run_id, "COMPLETED", "FAILED")
        facts = await told(service, row.run_id)

    assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1
    assert all(isinstance(outcome, ConflictError) for outcome in outcomes if isinstance(outcome, BaseException))
    assert sum(isinstance(fact, ApprovalGranted | ApprovalRejected) for fact in facts) == 1


async def test_an_answer_that_is_on_its_way_to_another_process_is_known(tmp_path: Path, world: World) -> None:
    path = tmp_path / "runs.db"
    async with SqliteLog(path) as log, SqliteLog(path) as other_log:
        async with serving(tmp_path, world.one(), log=log) as service:
            row = await waiting(service)
        claim = await other_log.acquire(row.run_id)
        note = AnswerCommand(row.action_id, Answer(approved=True, by="user:bob"), row.payload_hash)
        await log.enqueue(row.run_id, QueuedCommand(command_key(note), encode_command(note)))
        async with serving(tmp_path, world.one(), log=log) as service:
            same = await approve(service, row, BOB)
            with pytest.raises(ConflictError) as conflict:
                await service.approval_service.reject(ADA, row.action_id, "No.")
            await other_log.release(claim)

    assert same.delivery == "queued"
    assert conflict.value.code == "already_decided"
    assert conflict.value.details["decided"] | {"at": ""} == {
        "status": "APPROVED",
        "answer": "approved",
        "by": "user:bob",
        "reason": "",
        "at": "",
    }


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"arguments": {"what": 7}}, "arguments"),
        ({"arguments": {"nothing": "x"}}, "arguments"),
        ({"scope": "window"}, "scope"),
    ],
)
async def test_an_approval_that_cannot_be_carried_out_is_refused_by_its_field(
    tmp_path: Path, world: World, wish: dict[str, Any], field: str
) -> None:
    async with serving(tmp_path, world.one()) as service:
        row = await waiting(service)
        with pytest.raises(InvalidRequestError) as refused:
            await approve(service, row, BOB, **wish)
        await approve(service, row, BOB)
        await status(service, row.run_id, "COMPLETED")

    assert refused.value.details["fields"][0]["field"] == field


async def test_an_answer_of_the_wrong_kind_decides_nothing(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, world.one()) as service:
        row = await waiting(service)
        with pytest.raises(ConflictError) as conflict:
            await service.approval_service.provide_input(BOB, row.action_id, "x")

    assert conflict.value.details == {"expected": "approval", "actual": "input"}


async def test_only_those_who_may_decide_do_and_what_they_may_not_see_is_not_there(
    tmp_path: Path, world: World
) -> None:
    async with serving(tmp_path, world.one()) as service:
        row = await waiting(service)
        for who, error in (
            (BOT, ForbiddenError),
            (AUDITOR, ForbiddenError),
            (NOBODY, NotFoundError),
            (OTHERS, NotFoundError),
        ):
            with pytest.raises(error):
                await approve(service, row, who)
        with pytest.raises(NotFoundError):
            await service.approval_service.reject(BOB, "act_nothing", "No.")
        refused = [entry.by for entry in await service.audit_log.read() if entry.outcome == "refused"]

    assert refused == ["key:bot", "user:eve"]
    assert world.changes == []


@pytest.mark.parametrize("agent", ["one", "boss"])
async def test_with_four_eyes_whoever_made_the_run_or_is_acted_for_decides_nothing(
    tmp_path: Path, world: World, agent: str
) -> None:
    async with serving(tmp_path, world.one(), world.boss(), settings=settings_of(four_eyes="all")) as service:
        own = await create(service, agent, ADA)
        for_bob = await create(service, agent, BOT, on_behalf_of="bob")
        for run_id, who in ((own, ADA), (for_bob, BOB)):
            (row,) = await asked(service, run_id)
            with pytest.raises(ForbiddenError) as refused:
                await approve(service, row, who)
            assert refused.value.code == "four_eyes"
            with pytest.raises(ForbiddenError):
                await service.approval_service.reject(who, row.action_id, "No.")
        assert world.changes == []
        await approve(service, (await asked(service, own))[0], BOB)
        await status(service, own, "COMPLETED")


async def test_a_question_of_a_run_that_is_over_cannot_be_answered(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, world.one()) as service:
        row = await waiting(service)
        await service.run_service.cancel(ADA, row.run_id, "Enough.")
        with pytest.raises(ConflictError) as conflict:
            await approve(service, row, BOB)

    assert conflict.value.code == "not_open"
    assert conflict.value.details["attempted"] == "APPROVED"
