"""Runs of a log in a file or in memory that one process serves."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from interlock import EventLog, Inbox, Limits, Runner, SqliteLog
from interlock.domain.errors import DecisionConflictError
from interlock.engine.advance import RunAdvancer
from interlock.engine.interface import Engine
from interlock.engine.local import LocalEngine, LogRuns
from interlock.storage.memory import MemoryLog
from tests.patience import HANG_SECONDS

from .clerk import clerk, effects_of


@pytest.fixture(params=["memory", "file"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventLog]:
    log = MemoryLog() if request.param == "memory" else SqliteLog(tmp_path / "runs.db")
    yield log
    await log.close()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLERK_FOLDER", str(tmp_path))
    return tmp_path


@asynccontextmanager
async def served(log: EventLog, runner: Runner) -> AsyncGenerator[Engine]:
    engine: Engine = LocalEngine(LogRuns(log))
    advancer = RunAdvancer({"clerk": runner})
    serving = asyncio.create_task(engine.serve(advancer.advance, queues=["default"], concurrency=2))
    async with asyncio.timeout(HANG_SECONDS):
        yield engine
        advancer.pause()
        await engine.stop(HANG_SECONDS)
        await serving


async def approve_all(log: EventLog) -> None:
    """Wait until every run is over, after approving what is asked."""
    async with Inbox(log) as inbox:
        while True:
            seen = log.version()
            for question in await inbox.pending():
                with suppress(DecisionConflictError):  # the answer of the last round was on its way
                    await inbox.approve(question, by="ana")
            ledgers = [await inbox.load_ledger(run_id) for run_id in await log.run_ids()]
            if all(ledger.is_over for ledger in ledgers):
                return
            await log.wait_for_change(seen, 0.5)


async def test_submitted_runs_are_executed_once(log: EventLog, folder: Path) -> None:
    async with Runner(clerk(), log=log) as runner:
        await runner.submit("Do it.", run_id="before")
        async with served(log, runner):
            await runner.submit("Do it.", run_id="after")
            await approve_all(log)

    expected = [f"{run_id}:{number}" for run_id in ("after", "before") for number in (1, 2, 3)]
    assert sorted(effects_of(folder)) == expected


async def test_expired_question_is_looked_at_in_time(log: EventLog, folder: Path) -> None:
    async with Runner(clerk(), log=log, limits=Limits(approval_seconds=0.2)) as runner, served(log, runner):
        await runner.submit("Do it.", run_id="run")
        async with Inbox(log) as inbox:
            while not (await inbox.load_ledger("run")).is_over:
                await log.wait_for_change(log.version(), 0.2)

    assert effects_of(folder) == ["run:1", "run:3"]
