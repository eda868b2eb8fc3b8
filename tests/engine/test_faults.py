"""Twenty runs on workers whose process, host, network or database fails: every effect once, and in time."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from signal import SIGCONT, SIGINT, SIGKILL, SIGQUIT, SIGSTOP, Signals
from time import monotonic

import pytest

from interlock.domain.event import CallObserved, decode_event
from interlock.storage.postgres.log import PostgresLog
from tests.patience import HANG_SECONDS
from tests.postgres.network import Host
from tests.postgres.server import PostgresServer

from .clerk import HOLD, SLOW
from .workers import Office, Worker, approve, wait_until_over

pytestmark = pytest.mark.soak

LEASE_SECONDS = 6.0
#: The first event of a run by another worker, after the fault.
TAKEOVER_SECONDS = LEASE_SECONDS + 1
RUNS = [f"run-{number:02}" for number in range(20)]
ONCE = sorted(f"{run_id}:{number}" for run_id in RUNS for number in (1, 2, 3))


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    """With a server to stop."""
    monkeypatch.setenv("CLERK_FOLDER", str(tmp_path))
    server = PostgresServer()
    try:
        yield Office(server.start(), tmp_path, LEASE_SECONDS)
    finally:
        server.close()


@pytest.fixture
def far_office(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    """With a server that another host reaches."""
    monkeypatch.setenv("CLERK_FOLDER", str(tmp_path))
    server = PostgresServer()
    try:
        yield Office(server.start_for(host.server_address), tmp_path, LEASE_SECONDS)
    finally:
        server.close()


async def begin(office: Office, log: PostgresLog, stack: ExitStack, worker: AbstractContextManager[Worker]) -> Worker:
    """Start a worker, and return when the first step of every run has had its effect and did not return."""
    started = stack.enter_context(worker)
    await office.submit(log, *RUNS)
    while len(office.effects()) < len(RUNS):
        await log.wait_for_change(log.version(), 0.05)
    return started


async def finish(log: PostgresLog) -> list[str]:
    """Approve what the runs ask, and return those that completed."""
    await asyncio.gather(*(approve(log, run_id) for run_id in RUNS))
    return [run_id for run_id in RUNS if await wait_until_over(log, run_id) == "completed"]


async def wait_for_takeover(log: PostgresLog, since: float) -> float:
    """Return the seconds until another process recorded something."""
    before = {run_id: len(await log.read(run_id)) for run_id in RUNS}
    while True:
        for run_id, count in before.items():
            if len(await log.read(run_id)) > count:
                return monotonic() - since
        await log.wait_for_change(log.version(), 0.05)


async def count_unknown(log: PostgresLog) -> int:
    facts = [decode_event(entry).fact for run_id in RUNS for entry in await log.read(run_id)]
    codes = [fact.observation.failure for fact in facts if isinstance(fact, CallObserved)]
    return sum(failure is not None and failure.code == "outcome_unknown" for failure in codes)


@pytest.mark.parametrize("fault", [SIGKILL, SIGSTOP], ids=["killed", "stopped and continued"])
async def test_failing_worker_is_followed_in_time(office: Office, fault: Signals) -> None:
    (office.folder / HOLD).touch()
    async with office.open_log() as log, asyncio.timeout(2 * HANG_SECONDS):
        with ExitStack() as stack:
            failing = await begin(office, log, stack, office.worker("--stop-seconds", "0"))
            (office.folder / HOLD).unlink()
            stack.enter_context(office.worker())
            failing.process.send_signal(fault)
            seconds = await wait_for_takeover(log, monotonic())
            completed = await finish(log)
            if fault is SIGSTOP:
                failing.process.send_signal(SIGCONT)
                assert failing.stop() == 0
        unknown = await count_unknown(log)

    assert completed == RUNS
    assert office.effects() == ONCE
    assert unknown == len(RUNS)
    assert seconds <= TAKEOVER_SECONDS


async def test_host_that_is_cut_off_is_followed_in_time(far_office: Office, host: Host) -> None:
    office = far_office
    (office.folder / HOLD).touch()
    async with office.open_log() as log, asyncio.timeout(2 * HANG_SECONDS):
        with ExitStack() as stack:
            far = await begin(office, log, stack, office.worker("--stop-seconds", "0", host=host))
            (office.folder / HOLD).unlink()
            stack.enter_context(office.worker())
            host.cut_off()
            seconds = await wait_for_takeover(log, monotonic())
            completed = await finish(log)
            host.connect()
            assert far.stop() in (0, 75)
        unknown = await count_unknown(log)

    assert completed == RUNS
    assert office.effects() == ONCE
    assert unknown == len(RUNS)
    assert seconds <= TAKEOVER_SECONDS


@pytest.mark.parametrize(("how", "seconds"), [(SIGINT, 3.0), (SIGQUIT, 1.0)], ids=["stopped", "crashed"])
async def test_database_that_comes_back_leaves_no_unknown_outcome(office: Office, how: Signals, seconds: float) -> None:
    (office.folder / SLOW).touch()
    async with office.open_log() as log, asyncio.timeout(2 * HANG_SECONDS):
        with ExitStack() as stack:
            worker = await begin(office, log, stack, office.worker())
            began = monotonic()
            office.server.stop(how)
            (office.folder / SLOW).unlink()  # the calls return, and cannot be recorded
            await asyncio.sleep(seconds)  # noqa: TID251 - so long the database is away
            office.server.start()
            completed = await finish(log)
            elapsed = monotonic() - began
            assert worker.stop() == 0
        unknown = await count_unknown(log)

    assert completed == RUNS
    assert office.effects() == ONCE
    assert unknown == 0
    assert elapsed <= 10


async def test_database_gone_for_longer_than_patience_ends_the_worker(office: Office) -> None:
    (office.folder / HOLD).touch()
    async with asyncio.timeout(2 * HANG_SECONDS):
        with ExitStack() as stack:
            async with office.open_log() as log:
                worker = await begin(office, log, stack, office.worker("--patience", "2"))
            office.server.stop()
            assert await asyncio.to_thread(worker.process.wait, HANG_SECONDS) == 75
            (office.folder / HOLD).unlink()
            office.server.start()
            began = monotonic()
            stack.enter_context(office.worker())
            async with office.open_log() as log:
                completed = await finish(log)
                elapsed = monotonic() - began

    assert completed == RUNS
    assert office.effects() == ONCE
    assert elapsed <= LEASE_SECONDS + 10
