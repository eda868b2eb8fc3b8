"""Answers, cancels and wake-ups at any moment: none is lost, none counts twice."""

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from interlock import SqliteLog, verify
from interlock.domain.event import ApprovalGranted, ApprovalRejected, InvocationStarted, RunCancelled
from interlock.server.core.errors import ConflictError
from interlock.server.core.index.rows import ActionQuery, RunQuery
from interlock.server.core.runs.approval_service import Approval
from interlock.server.core.service import Service
from interlock.storage.event_log import Lease, QueuedCommand
from tests.runs.support import facts

from .serving import ADA, BOB, OPEN, World, breath, create, serving, until

AGENTS = ("one", "two", "boss", "one", "two")


class Jittery(SqliteLog):
    """A log in which claims and notes take their time, so that others come in between."""

    def __init__(self, path: Path, random: Random) -> None:
        super().__init__(path)
        self._random = random

    async def _linger(self) -> None:
        for _ in range(self._random.randrange(4)):
            await breath()

    async def acquire(self, run_id: str, *, force: bool = False) -> Lease:
        await self._linger()
        taken = await super().acquire(run_id, force=force)
        await self._linger()
        return taken

    async def release(self, lease: Lease) -> bool:
        await self._linger()
        has_commands = await super().release(lease)
        await self._linger()
        return has_commands

    async def queued_commands(self, run_id: str) -> list[QueuedCommand]:
        found = await super().queued_commands(run_id)
        await self._linger()
        return found


async def _somebody(service: Service, random: Random, runs: list[str]) -> None:
    """Does this and that until everything is over."""
    while not await _all_over(service):
        with suppress(ConflictError):  # somebody else was faster
            await _anything(service, random, runs)
        await breath()


async def _anything(service: Service, random: Random, runs: list[str]) -> None:
    rows = (await service.index.list_actions(ActionQuery(statuses=OPEN))).rows
    what = random.random()
    if what < 0.1:
        await service.worker.engine.wake([random.choice(runs)])
    elif what < 0.13:
        await service.run_service.cancel(ADA, random.choice(runs), "Enough.")
    elif rows:
        row = random.choice(rows)
        if what < 0.25:
            await service.approval_service.reject(BOB, row.action_id, "No.", row.payload_hash)
        else:
            await service.approval_service.approve(BOB, row.action_id, Approval(payload_hash=row.payload_hash))


async def _all_over(service: Service) -> bool:
    page = await service.index.list_runs(RunQuery(include_child_runs=True))
    return all(row.status in ("COMPLETED", "FAILED") for row in page.rows)


async def _live_through(folder: Path, seed: int) -> None:
    random, world = Random(seed), World()
    agents = (world.one(), world.two(), world.boss())
    async with Jittery(folder / "runs.db", random) as log:
        async with serving(folder, *agents, log=log) as service:
            runs = [await create(service, agent) for agent in AGENTS]
            people = [asyncio.create_task(_somebody(service, random, runs)) for _ in range(3)]
            try:
                await until(service, lambda: _all_over(service))
                await asyncio.gather(*people)
            finally:
                for person in people:
                    person.cancel()
                await asyncio.gather(*people, return_exceptions=True)
        started = 0
        for run_id in await log.run_ids():
            assert verify(await log.read(run_id), run_id).ok
            started += await _check(log, run_id)
    # A run may be cancelled between the start of a call, which is durable first, and its effect.
    assert len(world.changes) <= started


async def _check(log: SqliteLog, run_id: str) -> int:
    """How many changes were begun. Each was granted, none twice, and what was granted was done or its run ended."""
    told = await facts(log, run_id)
    begun = [fact.action_id for fact in told if isinstance(fact, InvocationStarted) and fact.tool == "change"]
    granted = [fact.action_id for fact in told if isinstance(fact, ApprovalGranted)]
    ended = any(isinstance(fact, ApprovalRejected | RunCancelled) for fact in told)
    assert len(set(begun)) == len(begun)
    assert set(begun) <= set(granted)
    assert ended or set(begun) == set(granted)
    return len(begun)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_comes_at_whichever_moment_every_run_comes_to_its_end_and_nothing_runs_twice(seed: int) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(_live_through(Path(folder), seed))
