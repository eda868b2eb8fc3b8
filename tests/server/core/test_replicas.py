"""Servers that share a log in Postgres: any of them takes requests, and any worker continues the runs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock import Agent
from interlock.engine.postgres import PostgresEngine
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.runs.run_service import NewRun
from interlock.server.core.runs.served_agent import ServedAgent
from interlock.server.core.service import Service
from tests.postgres.server import PostgresServer

from .serving import ADA, World, approve, asked, create, scripted, serving, status

ADMIN = Principal(name="user:root", kind="person", roles=frozenset({Role.ADMIN}))


class Replicas:
    """Servers on one log. Each has a folder of its own."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._schema = server.new_schema()

    @asynccontextmanager
    async def open(self, state: str, *agents: Agent | ServedAgent, is_worker: bool = True) -> AsyncGenerator[Service]:
        async with self._server.open_log(self._schema) as log:
            engine = PostgresEngine(log, name=state)
            options: dict[str, Any] = {"engine": engine, "is_worker": is_worker}
            async with serving(self._folder, *agents, log=log, state=state, **options) as service:
                yield service


@pytest.fixture
def replicas(postgres: PostgresServer, tmp_path: Path) -> Replicas:
    return Replicas(postgres, tmp_path)


async def test_run_of_one_replica_is_answered_at_another(replicas: Replicas) -> None:
    world = World()
    agents = (world.one(), world.boss())
    async with replicas.open("first", *agents, is_worker=False) as first:
        made = [await create(first, name) for name in ("one", "boss")]
        assert first.runners.list_live_handles() == []
        async with replicas.open("second", *agents) as second:
            for run_id in made:
                await approve(first, (await asked(first, run_id))[0])
            for run_id in made:
                await status(second, run_id, "COMPLETED")
            assert [row.created_by for row in [await status(first, made[0], "COMPLETED")]] == ["user:ada"]

    assert sorted(world.changes) == ["h", "x"]


async def test_same_key_at_two_replicas_is_one_run(replicas: Replicas) -> None:
    plain = scripted("plain", "Hello.")
    async with replicas.open("first", plain, is_worker=False) as first, replicas.open("second", plain) as second:
        request = NewRun(agent="plain", task="Do it.", idempotency_key="key")
        made = [await server.run_service.create(ADA, request) for server in (first, second, first)]
        await status(first, made[0][0].run_id, "COMPLETED")

    assert [is_new for _, is_new in made] == [True, False, False]
    assert len({row.run_id for row, _ in made}) == 1


async def test_run_without_its_agent_waits_and_says_so(replicas: Replicas) -> None:
    world, plain = World(), scripted("plain", "Hello.")
    async with replicas.open("first", world.one(), plain, is_worker=False) as first:
        run_id = await create(first, "one")
        async with replicas.open("second", plain) as second:
            await status(second, await create(first, "plain"), "COMPLETED")
            while not (reasons := await first.worker.engine.waiting_reasons([run_id])):
                await first.log.wait_for_change(first.log.version(), 0.1)
            row = await first.run_queries.get_run(ADMIN, run_id)
        async with replicas.open("third", world.one()):
            await asked(first, run_id)
            assert await first.worker.engine.waiting_reasons([run_id]) == {}

    expected = f"Waiting to try again: Run {run_id} waits for a worker with the agent 'one'."
    assert row.message == reasons[run_id] == expected
