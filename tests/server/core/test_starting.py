"""Runs are made once, for whoever may make them, and ended once."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import SqliteLog
from interlock.domain.event import RunCancelled, RunStarted, UserMessageReceived
from interlock.server.core.errors import (
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.runs.run_service import MAX_TASK_CHARS, NewRun
from tests.runs.support import calls

from .serving import ADA, BOB, BOT, World, approve, asked, breath, create, scripted, serving, settings_of, status, told
from .test_worker_stop import Slow

AUDITOR = Principal(name="user:eve", kind="person", roles=frozenset({Role.AUDITOR}))


@pytest.fixture
def world() -> World:
    return World()


def wish(agent: str = "one", task: str = "Do it.", **more: Any) -> NewRun:
    return NewRun(agent=agent, task=task, **more)


async def test_the_log_says_who_made_a_run_and_for_whom(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, world.one()) as service:
        row, new = await service.run_service.create(BOT, wish(on_behalf_of="ada"))
        started, said = (await told(service, row.run_id))[:2]

    assert new
    assert isinstance(started, RunStarted)
    assert (started.created_by, started.requester) == ("key:bot", "user:ada")
    assert isinstance(said, UserMessageReceived)
    assert said.text == "Do it."


async def test_a_new_run_is_described_as_in_lists(tmp_path: Path, world: World) -> None:
    """Without waiting for the index; times and the last event move on meanwhile."""
    task = f"Use ghp_{'a1' * 18}. " + "word " * 200
    async with serving(tmp_path, world.one()) as service:
        row, _ = await service.run_service.create(BOT, wish(on_behalf_of="ada", task=task))
        listed = await service.index.get_run(row.run_id)

    assert listed is not None
    assert "ghp_" not in row.task
    moving = {"updated_at": 0, "last_seq": 0, "state": row.state, "message": "", "open_questions": 0}
    assert msgspec.structs.replace(row, **moving) == msgspec.structs.replace(listed, **moving)


@pytest.mark.parametrize(
    ("who", "asked_for", "field"),
    [
        (ADA, wish(task=" \n"), "task"),
        (ADA, wish(task="x" * (MAX_TASK_CHARS + 1)), "task"),
        (ADA, wish(on_behalf_of="bob"), "on_behalf_of"),
        (BOT, wish(on_behalf_of="Ada Lovelace"), "on_behalf_of"),
        (BOT, wish(on_behalf_of="user:"), "on_behalf_of"),
        (ADA, wish(idempotency_key="two words"), "Idempotency-Key"),
        (ADA, wish(idempotency_key="x" * 201), "Idempotency-Key"),
        (ADA, wish(idempotency_key="kéy"), "Idempotency-Key"),
    ],
)
async def test_a_wish_that_cannot_be_is_refused_by_its_field(
    tmp_path: Path, world: World, who: Principal, asked_for: NewRun, field: str
) -> None:
    async with serving(tmp_path, world.one()) as service:
        with pytest.raises(InvalidRequestError) as refused:
            await service.run_service.create(who, asked_for)
        assert await service.log.run_ids() == []

    assert refused.value.details["fields"][0]["field"] == field


async def test_an_agent_that_is_not_here_is_unknown_and_one_that_is_not_theirs_is_refused(
    tmp_path: Path, world: World
) -> None:
    async with serving(tmp_path, world.one(), world.two()) as service:
        with pytest.raises(NotFoundError):
            await service.run_service.create(ADA, wish("nobody"))
        for who, agent in ((BOT, "two"), (AUDITOR, "one")):
            with pytest.raises(ForbiddenError):
                await service.run_service.create(who, wish(agent))
        journal = await service.audit_log.read()

    assert [(entry.by, entry.outcome) for entry in journal] == [("key:bot", "refused"), ("user:eve", "refused")]


async def test_one_key_is_one_run_also_for_twenty_at_once_and_after_a_restart(tmp_path: Path, world: World) -> None:
    async with SqliteLog(tmp_path / "runs.db") as log:
        async with serving(tmp_path, world.one(), log=log) as service:
            same = [service.run_service.create(ADA, wish(idempotency_key="k1")) for _ in range(20)]
            made = await asyncio.gather(*same)
        async with serving(tmp_path, world.one(), log=log, state="other") as service:
            row, new = await service.run_service.create(ADA, wish(idempotency_key="k1"))
            other, _ = await service.run_service.create(BOB, wish(idempotency_key="k1"))
            runs = await log.run_ids()

    assert {each.run_id for each, _ in made} == {row.run_id}
    assert [made_now for _, made_now in made].count(True) == 1
    assert not new
    assert runs == [row.run_id, other.run_id]


async def test_one_key_is_one_run_for_two_servers_at_once(tmp_path: Path, world: World) -> None:
    path = tmp_path / "runs.db"
    async with SqliteLog(path) as log, SqliteLog(path) as other_log:
        one, other = serving(tmp_path, world.one(), log=log), serving(tmp_path, world.one(), log=other_log, state="b")
        async with one as first, other as second:
            for number in range(10):
                same = wish(idempotency_key=f"k{number}")
                both = (first.run_service.create(ADA, same), second.run_service.create(ADA, same))
                for outcome in await asyncio.gather(*both, return_exceptions=True):
                    assert not isinstance(outcome, BaseException) or isinstance(outcome, UnavailableError)
            assert len(await log.run_ids()) == 10


@pytest.mark.parametrize("other", [wish(task="Other."), wish("two"), wish(on_behalf_of="bob")])
async def test_a_key_that_made_something_else_is_a_conflict_that_names_both(
    tmp_path: Path, world: World, other: NewRun
) -> None:
    key = Principal(name="key:ci", kind="key", roles=frozenset({Role.OPERATOR}))
    async with serving(tmp_path, world.one(), world.two()) as service:
        await service.run_service.create(key, wish(idempotency_key="k1"))
        again = NewRun(agent=other.agent, task=other.task, on_behalf_of=other.on_behalf_of, idempotency_key="k1")
        with pytest.raises(ConflictError) as conflict:
            await service.run_service.create(key, again)

    assert conflict.value.code == "idempotency_conflict"
    assert conflict.value.details["existing"] != conflict.value.details["attempted"]


async def test_a_secret_in_the_task_does_not_make_it_another_one(tmp_path: Path, world: World) -> None:
    task = "Use AKIAIOSFODNN7EXAMPLE \ud800 here."
    async with serving(tmp_path, world.one()) as service:
        first, _ = await service.run_service.create(ADA, wish(task=task, idempotency_key="k1"))
        again, new = await service.run_service.create(ADA, wish(task=task, idempotency_key="k1"))

    assert (again.run_id, new) == (first.run_id, False)


async def test_more_runs_than_there_may_be_at_once_are_not_begun(tmp_path: Path) -> None:
    slow = Slow()
    agent = scripted("slow", calls(("c1", "slow", {})), "Done.", tools=[slow.tool])
    async with serving(tmp_path, agent, settings=settings_of(max_live_runs=3)) as service:
        many = (service.run_service.create(ADA, wish("slow")) for _ in range(10))
        made = await asyncio.gather(*many, return_exceptions=True)
        slow.may_end.set()

    refused = [each for each in made if isinstance(each, UnavailableError)]
    assert len(refused) == 7
    assert "Nothing was started" in str(refused[0])


async def test_runs_that_wait_do_not_count_as_live(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, world.one(), settings=settings_of(max_live_runs=1)) as service:
        for _ in range(3):
            await asked(service, await create(service, "one"))
            while service.runners.list_live_handles():
                await breath()


async def test_a_run_that_waits_is_cancelled_and_so_it_is_the_second_time(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, world.boss()) as service:
        run_id = await create(service, "boss")
        (row,) = await asked(service, run_id)

        first = await service.run_service.cancel(BOB, run_id, "Enough.")
        again = await service.run_service.cancel(ADA, run_id, "Really.")
        (last,) = [fact for fact in await told(service, run_id) if isinstance(fact, RunCancelled)]
        inside = await service.index.get_run(row.run_id)

    assert (first.status, again.status) == ("FAILED", "FAILED")
    assert (last.message, last.by) == ("Enough.", "user:bob")
    assert inside is not None
    assert inside.status == "FAILED"


async def test_a_live_run_is_cancelled_and_an_ended_one_cannot_be(tmp_path: Path, world: World) -> None:
    slow = Slow()
    agent = scripted("slow", calls(("c1", "slow", {})), "Done.", tools=[slow.tool])
    async with serving(tmp_path, agent, world.one()) as service:
        run_id = await create(service, "slow")
        await slow.begun.wait()
        ended = await service.run_service.cancel(ADA, run_id, "Enough.")
        assert ended.status == "FAILED"

        done = await create(service, "one")
        await approve(service, (await asked(service, done))[0])
        await status(service, done, "COMPLETED")
        with pytest.raises(ConflictError) as conflict:
            await service.run_service.cancel(ADA, done, "Too late.")

    assert conflict.value.details == {"current": "COMPLETED", "attempted": "cancel"}


async def test_whoever_may_not_see_a_run_cannot_cancel_it(tmp_path: Path, world: World) -> None:
    stranger = Principal(name="user:mallory", kind="person")
    async with serving(tmp_path, world.one()) as service:
        run_id = await create(service, "one")
        for who, name in ((stranger, run_id), (ADA, "run_nothing")):
            with pytest.raises(NotFoundError):
                await service.run_service.cancel(who, name, "")
        with pytest.raises(ForbiddenError):
            await service.run_service.cancel(BOT, run_id, "")  # it did not make this one
