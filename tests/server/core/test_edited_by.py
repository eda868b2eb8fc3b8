"""Whoever edits the arguments of a call that needs four eyes does not approve the result."""

from pathlib import Path

import pytest

from interlock.domain.event import InvocationStarted
from interlock.server.core.errors import ForbiddenError
from interlock.server.core.identity.principal import Principal, Role

from .serving import ADA, BOB, World, approve, asked, create, serving, settings_of, status, told

EVE = Principal(name="user:eve", kind="person", roles=frozenset({Role.OPERATOR}))
EDIT = {"what": "y"}


@pytest.fixture
def world() -> World:
    return World()


async def test_edited_call_needs_another_person(tmp_path: Path, world: World) -> None:
    """ADA made the run, BOB edits, and only EVE may approve what BOB wrote."""
    async with serving(tmp_path, world.one(), settings=settings_of(four_eyes="all")) as service:
        (first,) = await asked(service, await create(service, "one"))
        await approve(service, first, BOB, arguments=EDIT)
        (second,) = await asked(service, first.run_id, after=first)
        question = (await service.run_queries.get_action(EVE, second.run_id, second.action_id)).question
        view = await service.run_queries.get_question(BOB, second.action_id)
        for who in (ADA, BOB):
            with pytest.raises(ForbiddenError) as refused:
                await approve(service, second, who)
            assert refused.value.code == "four_eyes"
        assert world.changes == []
        await approve(service, second, EVE)
        await status(service, first.run_id, "COMPLETED")
        started = [fact for fact in await told(service, first.run_id) if isinstance(fact, InvocationStarted)]

    assert (question.arguments, question.edited_by, question.replaces) == (EDIT, "user:bob", first.action_id)
    assert "edited by user:bob" in view.denied_reason
    assert world.changes == ["y"]
    assert [(fact.action_id, fact.arguments) for fact in started] == [(second.action_id, EDIT)]


async def test_edited_call_waits_across_a_restart(tmp_path: Path, world: World) -> None:
    settings = settings_of(four_eyes="all")
    async with serving(tmp_path, world.one(), settings=settings) as service:
        (first,) = await asked(service, await create(service, "one"))
        await approve(service, first, BOB, arguments=EDIT)
        (second,) = await asked(service, first.run_id, after=first)
    async with serving(tmp_path, world.one(), settings=settings) as service:
        await approve(service, second, EVE)
        await status(service, first.run_id, "COMPLETED")

    assert world.changes == ["y"]


async def test_second_edit_needs_a_third_decision(tmp_path: Path, world: World) -> None:
    async with serving(tmp_path, world.one(), settings=settings_of(four_eyes="all")) as service:
        (first,) = await asked(service, await create(service, "one"))
        await approve(service, first, BOB, arguments=EDIT)
        (second,) = await asked(service, first.run_id, after=first)
        await approve(service, second, EVE, arguments={"what": "z"})
        (third,) = await asked(service, first.run_id, after=second)
        with pytest.raises(ForbiddenError):
            await approve(service, third, EVE)
        await approve(service, third, BOB)
        await status(service, first.run_id, "COMPLETED")

    assert world.changes == ["z"]


async def test_edit_without_four_eyes_runs_at_once(tmp_path: Path, world: World) -> None:
    """The tool writes, which is not high risk."""
    async with serving(tmp_path, world.one()) as service:
        (row,) = await asked(service, await create(service, "one"))
        await approve(service, row, BOB, arguments=EDIT)
        await status(service, row.run_id, "COMPLETED")

    assert world.changes == ["y"]
