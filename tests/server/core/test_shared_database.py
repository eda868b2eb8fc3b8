"""Servers that share a database in Postgres: one of them leads, and each knows what the others did."""

from pathlib import Path

import pytest

from interlock.server.core.identity.principal import Role
from tests.logs import keep_in_postgres
from tests.postgres.server import PostgresServer

from .people import PASSWORD
from .serving import ASK_CHANGE, World, approve, asked, create, serving, status


@pytest.fixture
def folder(tmp_path: Path, postgres: PostgresServer) -> Path:
    keep_in_postgres(tmp_path, postgres, postgres.server_url)
    return tmp_path


async def test_a_run_is_approved_at_one_server_and_seen_at_the_other(folder: Path) -> None:
    world = World()
    agent = world.one(policy=ASK_CHANGE)
    async with serving(folder, agent) as here, serving(folder, agent, state="other") as there:
        await here.accounts.create("ada", PASSWORD, roles=[Role.OPERATOR], by="test")
        session = await there.sessions.start("ada")
        assert session is not None
        assert await here.sessions.authenticate(session.token)

        run_id = await create(here, "one")
        (question,) = await asked(there, run_id)
        await approve(there, question)
        await status(here, run_id, "COMPLETED")
        await status(there, run_id, "COMPLETED")

    assert world.changes == ["x"]


async def test_another_server_leads_when_the_connection_of_the_leader_is_lost(
    folder: Path, postgres: PostgresServer
) -> None:
    agent = World().one()
    async with serving(folder, agent) as here, serving(folder, agent, state="other") as there:
        assert [each.leadership.is_leading for each in (here, there)] == [True, False]
        assert await here.checkpoints.take() is None, "the first one was taken at the start"

        postgres.end_sessions("interlock-leader")
        await there.leadership.check()
        await here.leadership.check()
        assert [each.leadership.is_leading for each in (here, there)] == [False, True]

    async with serving(folder, agent) as again:
        assert again.leadership.is_leading, "one that stops lets others lead at once"
        assert (await again.checkpoints.verify()).ok
