"""Runs on three workers while processes, the database and connections fail at random: every effect at most once, every
run to its end, and nothing left.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from signal import SIGCONT, SIGINT, SIGKILL, SIGQUIT, SIGSTOP, SIGTERM, Signals
from typing import Any, LiteralString

import psycopg
import pytest

from interlock import Inbox, Runner
from interlock.audit import verify
from interlock.domain.event import CallObserved, LogEntry, decode_event
from interlock.storage.postgres.log import PostgresLog
from tests.engine.clerk import LONG_STEPS, long_clerk
from tests.engine.workers import LEASE_SECONDS, Office, Worker
from tests.patience import HANG_SECONDS
from tests.postgres.server import PostgresServer

from .budget import Budget

pytestmark = pytest.mark.soak

WORKERS, MAX_OPEN, MAX_RUNS = 3, 40, 5_000
#: What a worker may exit with that was not killed: it was stopped, or the database was gone.
EXITS = {0, 75, -SIGKILL}
OPEN_RUNS = "SELECT count(*) FROM runs WHERE state <> 2"
LEFT = """
SELECT (SELECT count(*) FROM runs WHERE state <> 2), (SELECT count(*) FROM procrastinate_jobs),
    (SELECT count(*) FROM commands), (SELECT count(*) FROM runs WHERE token <> 0)
"""
QUESTIONS = "SELECT DISTINCT run_id FROM indexed_actions JOIN runs ON runs.number = run WHERE status = 'PENDING'"
DROP = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'interlock%'"


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    """With a server to stop."""
    monkeypatch.setenv("CLERK_FOLDER", str(tmp_path))
    server = PostgresServer()
    try:
        yield Office(server.start("autovacuum=on"), tmp_path)
    finally:
        server.close()


async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)  # noqa: TID251 - so long a fault lasts, or none happens


def query(office: Office, statement: LiteralString) -> list[Any]:
    """The rows; none while the database is away."""
    try:
        return office.server.query(statement, office.schema)
    except psycopg.OperationalError:
        return []


class Chaos:
    """Three workers, each started again when it ends, and the faults."""

    def __init__(self, office: Office, chance: random.Random, stack: ExitStack) -> None:
        self.office, self._chance, self._stack = office, chance, stack
        self.workers: list[Worker] = []
        self.exits: set[int] = set()
        self.run_ids: list[str] = []
        self.is_over = False
        self.faults: dict[str, Callable[[], Awaitable[None]]] = {
            "killed": lambda: self._signal(SIGKILL),
            "stopped and continued": self._stop_and_continue,
            "terminated": lambda: self._signal(SIGTERM),
            "database restarts": lambda: self._restart(SIGINT),
            "database crashes": lambda: self._restart(SIGQUIT),
            "connections dropped": self._drop,
        }

    async def start_workers(self) -> None:
        """Replace the workers that ended."""
        ended = [worker for worker in self.workers if worker.process.poll() is not None]
        self.exits |= {worker.process.returncode for worker in ended}
        self.workers = [worker for worker in self.workers if worker not in ended]
        while len(self.workers) < WORKERS:
            starting = self.office.worker(agent="long_clerk")
            self.workers.append(await asyncio.to_thread(self._stack.enter_context, starting))

    async def submit(self, runner: Runner, log: PostgresLog) -> None:
        """Submit runs, so that there are always some that are not over, until the faults are."""
        while not self.is_over and len(self.run_ids) < MAX_RUNS:
            for (count,) in await asyncio.to_thread(query, self.office, OPEN_RUNS):
                for _ in range(MAX_OPEN - count):
                    self.run_ids.append(await runner.submit("Do it."))
            await log.wait_for_change(log.version(), 0.2)

    async def harm(self, name: str) -> None:
        await pause(self._chance.uniform(0.2, 2.0))
        await self.faults[name]()

    def _choose(self) -> Worker:
        return self._chance.choice(self.workers)

    async def _signal(self, how: Signals) -> None:
        self._choose().process.send_signal(how)

    async def _stop_and_continue(self) -> None:
        stopped = self._choose().process
        stopped.send_signal(SIGSTOP)
        await pause(self._chance.uniform(0.5, 2 * LEASE_SECONDS))
        stopped.send_signal(SIGCONT)

    async def _restart(self, how: Signals) -> None:
        await asyncio.to_thread(self.office.server.stop, how)
        await pause(self._chance.uniform(0.0, 2.0))
        await asyncio.to_thread(self.office.server.start, "autovacuum=on")

    async def _drop(self) -> None:
        self.office.server.query(DROP, self.office.schema)


async def approve_all(office: Office, log: PostgresLog) -> None:
    """Approve what is asked, until this is cancelled."""
    async with Inbox(log) as inbox:
        while True:
            for (run_id,) in await asyncio.to_thread(query, office, QUESTIONS):
                for question in await inbox.pending(run_id):
                    await inbox.approve(question, by="ana")
            await log.wait_for_change(log.version(), 0.2)


def count_unknown(entries: list[LogEntry]) -> int:
    facts = [decode_event(entry).fact for entry in entries]
    failures = [fact.observation.failure for fact in facts if isinstance(fact, CallObserved)]
    return sum(failure is not None and failure.code == "outcome_unknown" for failure in failures)


async def wait_until_nothing_is_left(office: Office, log: PostgresLog, chaos: Chaos) -> None:
    """Of runs, jobs, commands and leases."""
    while office.server.query(LEFT, office.schema) != [(0, 0, 0, 0)]:
        await chaos.start_workers()
        await log.wait_for_change(log.version(), 0.5)


async def test_random_faults_repeat_lose_and_block_nothing(office: Office, budget: Budget) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance, seen = random.Random(seed), list[str]()
    async with office.open_log() as log, Runner(long_clerk(), log=log) as runner:
        with ExitStack() as stack:
            chaos = Chaos(office, chance, stack)
            submitting = asyncio.create_task(chaos.submit(runner, log))
            approving = asyncio.create_task(approve_all(office, log))
            for _ in budget.rounds(enough=lambda: len(set(seen)) == len(chaos.faults)):
                await chaos.start_workers()
                seen.append(chance.choice([name for name in chaos.faults if name not in seen] or [*chaos.faults]))
                await chaos.harm(seen[-1])
            chaos.is_over = True
            async with asyncio.timeout(2 * HANG_SECONDS):
                await submitting
                await wait_until_nothing_is_left(office, log, chaos)
            approving.cancel()
            ends = {await asyncio.to_thread(worker.stop) for worker in chaos.workers}
        stored = {run_id: await log.read(run_id) for run_id in chaos.run_ids}

    print(f"{len(stored)} runs, {len(seen)} faults, {sum(map(count_unknown, stored.values()))} unknown outcomes")
    effects = office.effects()
    assert len(effects) == len(set(effects))
    for run_id, entries in stored.items():
        assert verify(entries, run_id).ok
        assert decode_event(entries[-1]).type == "run.completed"
        missing = LONG_STEPS - sum(effect.startswith(f"{run_id}:") for effect in effects)
        assert missing <= count_unknown(entries)
    assert chaos.exits <= EXITS
    assert ends == {0}
