"""Runs of a log in Postgres that worker processes execute."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGQUIT, SIGSTOP
from time import time
from typing import Any

import pytest

from interlock import Limits, Runner
from interlock.domain.event import decode_event
from interlock.engine.advance import RunAdvancer
from interlock.engine.postgres import PostgresEngine
from interlock.storage.postgres.log import PostgresLog
from tests.patience import HANG_SECONDS
from tests.postgres.server import PostgresServer

from .clerk import HOLD, clerk
from .workers import LEASE_SECONDS, ROOT, Office, approve, wait_until_over


@pytest.fixture
def office(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    monkeypatch.setenv("CLERK_FOLDER", str(tmp_path))
    return Office(postgres, tmp_path)


async def finish(log: PostgresLog, *run_ids: str) -> list[str]:
    """Approve what the runs ask, and return how they ended."""
    async with asyncio.timeout(HANG_SECONDS):
        await asyncio.gather(*(approve(log, run_id) for run_id in run_ids))
        return [await wait_until_over(log, run_id) for run_id in run_ids]


def once(*run_ids: str) -> list[str]:
    return sorted(f"{run_id}:{number}" for run_id in run_ids for number in (1, 2, 3))


async def test_submitted_run_is_executed_once_by_workers(office: Office) -> None:
    async with office.open_log() as log:
        await office.submit(log, "first")
        with office.worker("--name", "one") as one, office.worker("--name", "one"):
            assert one.greeting == "Worker one serves clerk on default.\n"
            await office.submit(log, "second", "third")
            assert await finish(log, "first", "second", "third") == ["completed"] * 3
            assert one.stop() == 0

    assert office.effects() == once("first", "second", "third")


IN_TIME = pytest.param(LEASE_SECONDS + 1, marks=pytest.mark.soak)


@pytest.mark.parametrize("seconds", [HANG_SECONDS, IN_TIME], ids=["at all", "in time"])
async def test_killed_worker_is_followed_after_its_lease(office: Office, seconds: float) -> None:
    """In time: where the machine does nothing else."""
    hold = office.folder / HOLD
    hold.touch()
    async with office.open_log() as log, asyncio.timeout(HANG_SECONDS):
        with office.worker() as doomed, office.worker("--queue", "default", "--queue", "other") as heir:
            await office.submit(log, "run")
            while not office.effects():
                await log.wait_for_change(log.version(), 0.05)
            holder = await log.lease_holder("run")
            hold.unlink()
            (killed,) = (each for each in (doomed, heir) if f"process {each.process.pid} " in holder)
            before, killed_at = len(await log.read("run")), time()
            killed.stop(SIGKILL)
            while len(await log.read("run")) == before:
                await log.wait_for_change(log.version(), 0.1)
            assert time() - killed_at < seconds
            assert await finish(log, "run") == ["completed"]

    assert office.effects() == once("run")


async def test_worker_that_was_stopped_for_too_long_repeats_nothing(office: Office) -> None:
    hold = office.folder / HOLD
    hold.touch()
    async with office.open_log() as log, asyncio.timeout(HANG_SECONDS):
        with office.worker("--stop-seconds", "0") as late:
            await office.submit(log, "run")
            while not office.effects():
                await log.wait_for_change(log.version(), 0.05)
            late.process.send_signal(SIGSTOP)
            hold.unlink()
            with office.worker():
                assert await finish(log, "run") == ["completed"]
                recorded = await log.read("run")
                late.process.send_signal(SIGCONT)
                assert late.stop() == 0
            assert await log.read("run") == recorded

    assert office.effects() == once("run")


async def test_job_of_a_dead_worker_holds_nothing_up(office: Office) -> None:
    """A worker died with the job of a run, and behind it another one waits."""
    async with office.open_log() as log, asyncio.timeout(HANG_SECONDS):
        await office.submit(log, "run")
        office.server.execute(
            "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 hour');"
            "INSERT INTO procrastinate_jobs (queue_name, task_name, queueing_lock, args, status, worker_id) "
            "SELECT queue_name, task_name, queueing_lock, args, 'doing', (SELECT max(id) FROM procrastinate_workers) "
            "FROM procrastinate_jobs",
            office.schema,
        )
        with office.worker() as worker:
            assert await finish(log, "run") == ["completed"]
            while office.jobs():
                await log.wait_for_change(log.version(), 0.1)
            assert worker.stop() == 0

    assert office.effects() == once("run")


async def test_stopped_worker_leaves_its_runs_to_others(office: Office) -> None:
    runs = [f"run-{number}" for number in range(8)]
    async with office.open_log() as log, asyncio.timeout(HANG_SECONDS):
        await office.submit(log, *runs)
        with office.worker("--concurrency", "2") as first:
            await approve(log, runs[0])
            assert first.stop() == 0
        assert not await log.lease_holders()
        with office.worker():
            assert await finish(log, *runs[1:]) == ["completed"] * 7
            assert await wait_until_over(log, runs[0]) == "completed"

    assert office.effects() == once(*runs)


async def test_expired_question_is_looked_at_in_time(office: Office) -> None:
    async with office.open_log() as log, asyncio.timeout(HANG_SECONDS):
        async with Runner(clerk(), log=log, limits=Limits(approval_seconds=0.5)) as runner:
            await runner.submit("Do it.", run_id="run")
            engine, advancer = PostgresEngine(log), RunAdvancer({"clerk": runner})
            serving = asyncio.create_task(engine.serve(advancer.advance, queues=["default"], concurrency=1))
            ended = await wait_until_over(log, "run")
            await engine.stop(HANG_SECONDS)
            await serving
        expired = [
            event for entry in await log.read("run") if (event := decode_event(entry)).type == "approval.expired"
        ]

    assert (ended, len(expired)) == ("completed", 1)
    assert office.effects() == ["run:1", "run:3"]


async def test_runs_of_other_queues_are_left_alone(office: Office) -> None:
    async with office.open_log() as log:
        async with Runner(clerk(), log=log) as runner:
            await runner.submit("Do it.", run_id="elsewhere", queue="host-b")
        with office.worker():
            await office.submit(log, "here")
            assert await finish(log, "here") == ["completed"]
        assert await log.read("elsewhere", after_seq=1) == []

    assert office.effects() == once("here")


async def test_worker_has_the_settings_of_its_servers(office: Office) -> None:
    settings = office.folder / "serve.toml"
    settings.write_text(f"""
        [database]
        schema = "{office.schema}"
        [agents.clerk]
        object = "tests.engine.clerk:clerk"
        [worker]
        queues = ["host-a"]
        lease_seconds = {LEASE_SECONDS}
    """)
    async with office.open_log() as log:
        async with Runner(clerk(), log=log) as runner:
            await runner.submit("Do it.", run_id="run", queue="host-a")
        with office.start("worker", "--config", str(settings), "--name", "one") as worker:
            assert worker.greeting == "Worker one serves clerk on host-a.\n"
            assert await finish(log, "run") == ["completed"]

    assert office.effects() == once("run")


@pytest.fixture
def own_office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    """With a server to stop."""
    monkeypatch.setenv("CLERK_FOLDER", str(tmp_path))
    server = PostgresServer()
    try:
        yield Office(server.start(), tmp_path)
    finally:
        server.close()


async def test_restarted_database_delays_runs_and_changes_nothing(own_office: Office) -> None:
    async with own_office.open_log() as log:
        with own_office.worker() as worker:
            await own_office.submit(log, "before")
            async with asyncio.timeout(HANG_SECONDS):
                await approve(log, "before")
            own_office.server.stop(SIGQUIT)
            own_office.server.start()
            await own_office.submit(log, "after")
            assert await finish(log, "after") == ["completed"]
            assert await wait_until_over(log, "before") == "completed"
            assert worker.stop() == 0

    assert own_office.effects() == once("before", "after")


def test_worker_exits_when_the_database_is_gone(own_office: Office) -> None:
    with own_office.worker("--patience", "1") as worker:
        own_office.server.stop()

        assert worker.process.wait(HANG_SECONDS) == 75


def test_worker_without_the_packages_of_a_server_says_so() -> None:
    program = "import sys; sys.modules['httpx2'] = None; from interlock.cli.main import main; main()"
    said = subprocess.run(
        [sys.executable, "-c", program, "worker"], check=False, capture_output=True, text=True, timeout=HANG_SECONDS
    )

    assert (said.returncode, "pip install 'interlock[server,postgres]'" in said.stderr) == (2, True)


async def test_documented_program_hands_over_a_run(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "workers.md").read_text()
    program: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], program)  # noqa: S102 - our own page
    monkeypatch.setenv("INTERLOCK_DATABASE_URL", office.server.url)
    schema = {"schema": office.schema}
    program |= {name: partial(program[name], **schema) for name in ("PostgresLog", "PostgresArtifacts")}

    run_id = await program["hand_over"](clerk(), "Do it.")

    assert [(status, args["run_id"]) for status, args in office.jobs()] == [("todo", run_id)]
