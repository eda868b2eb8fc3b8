"""Servers that share a log in Postgres: any of them takes requests, and any worker continues the runs."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from interlock import Agent, Inbox, Rule, RulePolicy, tool, verify
from interlock.domain.event import ApprovalGranted, CallObserved, RunCancelled, RunCompleted
from interlock.engine.postgres import PostgresEngine
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.index.rows import RunQuery
from interlock.server.core.live.event_reader import EventReader
from interlock.server.core.live.live_event import LiveEvent
from interlock.server.core.runs.run_service import NewRun
from interlock.server.core.runs.served_agent import ServedAgent
from interlock.server.core.service import Service
from interlock.server.core.settings import ServerSettings, WorkerTable
from tests.patience import HANG_SECONDS, eventually
from tests.postgres.server import PostgresServer
from tests.runs.support import calls, facts

from .index_runs import events_of
from .killed_canceller import cancel_and_be_killed
from .serving import ADA, World, approve, asked, breath, create, kinds, scripted, serving, status

ADMIN = Principal(name="user:root", kind="person", roles=frozenset({Role.ADMIN}))


class Replicas:
    """Servers on one log. Each has a folder of its own."""

    def __init__(self, server: PostgresServer, folder: Path, **options: float) -> None:
        self._server, self._folder, self._options = server, folder, options
        self._schema = server.new_schema()

    @asynccontextmanager
    async def open(
        self, state: str, *agents: Agent | ServedAgent, is_worker: bool = True, **chosen: Any
    ) -> AsyncGenerator[Service]:
        async with self._server.open_log(self._schema, **self._options) as log:
            options: dict[str, Any] = {"engine": PostgresEngine(log, name=state), "is_worker": is_worker, **chosen}
            async with serving(self._folder, *agents, log=log, state=state, **options) as service:
                yield service

    async def cancel_and_be_killed(self, run_id: str) -> None:
        await cancel_and_be_killed(run_id, self._server.url, self._schema)


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


async def test_parent_of_a_cancelled_child_run_continues(replicas: Replicas) -> None:
    world = World()
    async with replicas.open("first", world.boss()) as first:
        run_id = await create(first, "boss")
        (question,) = await asked(first, run_id)
        await first.run_service.cancel(ADMIN, question.run_id, "Not this way.")
        await status(first, run_id, "COMPLETED")

    assert world.changes == []


async def test_parent_continues_when_the_canceller_of_its_child_is_killed(replicas: Replicas) -> None:
    """Between the last event of the child run, and the release of its lease."""
    world = World()
    async with replicas.open("first", world.boss()) as first:
        run_id = await create(first, "boss")
        (question,) = await asked(first, run_id)
        await replicas.cancel_and_be_killed(question.run_id)
        await status(first, run_id, "COMPLETED")

    assert world.changes == []


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
            assert await shown(first, run_id) == "Waits for a worker with the agent 'one'."
        async with replicas.open("third", world.one()):
            await asked(first, run_id)
            assert await first.worker.engine.waiting_reasons([run_id]) == {}


async def shown(service: Service, run_id: str) -> str:
    """What a run that cannot continue says to people."""
    async with asyncio.timeout(HANG_SECONDS):
        while not await service.worker.engine.waiting_reasons([run_id]):
            await breath()
    (row,) = (await service.run_queries.list_runs(ADMIN, RunQuery(statuses=frozenset({"RUNNING"})))).rows
    assert row == await service.run_queries.get_run(ADMIN, run_id)
    return row.message


async def test_run_without_its_folder_waits_and_says_so(replicas: Replicas, tmp_path: Path) -> None:
    world, folders = World(), [tmp_path / "right", tmp_path / "wrong"]
    for folder in folders:
        folder.mkdir()
    right, wrong = (ServedAgent(agent=world.one(), workspace=str(folder)) for folder in folders)
    async with replicas.open("first", right, is_worker=False) as first:
        run_id = await create(first, "one")
        async with replicas.open("second", wrong):
            assert await shown(first, run_id) == f"Waits for a worker with the folder {str(folders[0])!r}."
        async with replicas.open("third", right):
            await approve(first, (await asked(first, run_id))[0])
            await status(first, run_id, "COMPLETED")

    assert world.changes == ["x"]


async def test_runs_of_an_agent_are_for_the_workers_of_its_queue(replicas: Replicas) -> None:
    world, plain = World(), scripted("plain", "Hello.")
    bound = ServedAgent(agent=world.one(), queue="host-a")
    async with replicas.open("first", bound, plain) as first:
        run_id = await create(first, "one")
        await status(first, await create(first, "plain"), "COMPLETED")
        assert await kinds(first.log, run_id) == ["RunStarted", "UserMessageReceived"]
        settings = ServerSettings(worker=WorkerTable(queues=("host-a",)))
        async with replicas.open("second", bound, settings=settings):
            await approve(first, (await asked(first, run_id))[0])
            await status(first, run_id, "COMPLETED")


async def test_stream_at_one_replica_shows_what_another_records(replicas: Replicas) -> None:
    world = World()
    async with (
        replicas.open("first", world.one()) as first,
        replicas.open("second", world.one(), is_worker=False) as second,
    ):
        run_id = await create(first, "one")
        (row,) = await asked(first, run_id)
        async with second.hub.open_reader(run_id) as of_run, second.hub.open_reader() as of_all:
            await approve(first, row)
            followed = [await follow(reader) for reader in (of_run, of_all)]
        recorded = await first.log.read(run_id)

    assert [live.entry for live in followed[0]] == recorded
    assert [live.entry for live in followed[1]] == recorded[-len(followed[1]) :]
    assert any(isinstance(live.event and live.event.fact, ApprovalGranted) for live in followed[1])


async def follow(reader: EventReader) -> list[LiveEvent]:
    """Read until a run is over."""
    events: list[LiveEvent] = []
    async with asyncio.timeout(HANG_SECONDS):
        while not (events and isinstance(events[-1].event and events[-1].event.fact, RunCompleted)):
            events += events_of(await anext(reader))
    return events


async def test_agent_is_stopped_at_a_replica_that_does_not_have_its_runs(replicas: Replicas) -> None:
    begun = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    world, slow = World(), scripted("slow", calls(("c1", "wait", {})), "Done.", tools=[wait])
    agents = (slow, world.one())
    async with replicas.open("first", *agents, is_worker=False) as first, replicas.open("second", *agents):
        run_id, other = await create(first, "slow"), await create(first, "one")
        await begun.wait()
        stopped = await first.run_service.stop_agent(ADMIN, "slow", "It went wild.")
        await asked(first, other)
        (last,) = (await facts(first.log, run_id))[-1:]

    assert (stopped.cancelled, stopped.unfinished) == (1, ())
    assert isinstance(last, RunCancelled)


DENY = RulePolicy([Rule(id="no-change", verdict="deny", tools="change")], default="allow")


async def test_policy_of_the_worker_that_continues_decides(replicas: Replicas) -> None:
    """An approval does not outlive the policy that it was asked under."""
    world = World()
    old, new = world.one(), world.one(policy=DENY)
    async with replicas.open("first", old) as first:
        run_id = await create(first, "one")
        (row,) = await asked(first, run_id)
    async with replicas.open("second", old, is_worker=False) as second:
        await approve(second, row)
        async with replicas.open("third", new):
            await status(second, run_id, "COMPLETED", "FAILED")
            (observed,) = [fact for fact in await facts(second.log, run_id) if isinstance(fact, CallObserved)]

    assert not observed.observation.ok
    assert world.changes == []


async def test_approval_is_void_for_a_worker_with_another_tool(replicas: Replicas) -> None:
    world, changed = World(), list[str]()

    @tool(risk="write")
    def change(what: str) -> str:
        """Change it thoroughly."""
        changed.append(what)
        return "changed"

    new = scripted("one", calls(("c1", "change", {"what": "x"})), "Done.", tools=[change])
    async with replicas.open("first", world.one()) as first:
        run_id = await create(first, "one")
        (row,) = await asked(first, run_id)
    async with replicas.open("second", world.one(), is_worker=False) as second:
        await approve(second, row)
        async with replicas.open("third", new):
            (again,) = await asked(second, run_id, after=row)
            assert changed == []
            await approve(second, again)
            await status(second, run_id, "COMPLETED")

    assert (world.changes, changed) == ([], ["x"])


async def test_hosts_with_other_clocks_share_runs(replicas: Replicas) -> None:
    """Leases have the clock of the database."""
    world, hour = World(), 3_600 * 10**9
    async with (
        replicas.open("early", world.one(), is_worker=False, now=lambda: time_ns() - hour) as early,
        replicas.open("late", world.one(), now=lambda: time_ns() + hour),
    ):
        run_id = await create(early, "one")
        await approve(early, (await asked(early, run_id))[0])
        await status(early, run_id, "COMPLETED")
        assert verify(await early.log.read(run_id), run_id).ok

    assert world.changes == ["x"]


async def test_child_run_of_a_run_that_is_over_is_ended(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    async def die(self: Inbox, ledger: object) -> None:
        """The process died before it could end the child run."""

    world = World()
    async with replicas.open("first", world.boss()) as first:
        run_id = await create(first, "boss")
        (row,) = await asked(first, run_id)
        with monkeypatch.context() as dying:
            dying.setattr(Inbox, "cancel_children", die)
            await first.run_service.cancel(ADMIN, run_id, "Enough.")
        await first.worker.engine.wake([row.run_id])
        await status(first, row.run_id, "FAILED")
        assert isinstance((await facts(first.log, row.run_id))[-1], RunCancelled)

    assert world.changes == []


async def test_server_works_again_when_the_database_is_back(tmp_path: Path) -> None:
    server = PostgresServer().start()
    try:
        replicas = Replicas(server, tmp_path, patience_seconds=0.5)
        async with replicas.open("first", scripted("plain", "Hello.")) as first:
            await first.worker.engine.ready.wait()
            await asyncio.to_thread(server.stop)
            await eventually(lambda: bool(first.worker.problem))
            problems = await first.find_readiness_problems()
            await asyncio.to_thread(server.start)
            await eventually(lambda: not first.worker.problem and not first.log.problem)
            await status(first, await create(first, "plain"), "COMPLETED")
    finally:
        server.close()

    assert "Runs are not continued here." in problems
