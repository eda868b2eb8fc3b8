"""What our logs say when they refuse a write. The conformance suite leaves the words to the implementation."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from interlock.domain.errors import LogError, LogFencedError, LogWriteError, RunClaimedError
from interlock.storage.event_log import EventLog, Lease, QueuedCommand
from interlock.storage.leases import this_process
from interlock.storage.memory import MemoryLog
from interlock.testing.conformance.leases import WRITES
from tests.logs import keep_in_postgres, open_log

from .runs import append, chained


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventLog]:
    if request.param == "postgres":
        keep_in_postgres(tmp_path, request.getfixturevalue("postgres"))
    log = MemoryLog() if request.param == "memory" else open_log(tmp_path / "log")
    yield log
    await log.close()


@pytest.mark.parametrize("seqs", [[1], [3], [2, 4], [2, 1]])
async def test_append_out_of_order(log: EventLog, seqs: list[int]) -> None:
    run = chained("run", 5)
    await append(log, "run", run[:2])

    with pytest.raises(LogFencedError, match="does not continue run"):
        await append(log, "run", [run[seq] for seq in seqs])
    lease = await log.acquire("run")
    with pytest.raises(LogFencedError, match="does not continue run"):
        await append(log, "run", [run[seq] for seq in seqs], lease)


async def test_append_with_a_lost_lease(log: EventLog) -> None:
    run = chained("run", 2)
    lost = await log.acquire("run", force=True)
    await append(log, "run", run[:1], lost)
    newest = await log.acquire("run", force=True)

    for lease in (lost, None, Lease("run", newest.token + 1), Lease("run", 0)):
        with pytest.raises(LogFencedError, match=r"run .*Nothing was written"):
            await append(log, "run", run[1:], lease)
    with pytest.raises(LogFencedError, match="taken over by process"):
        await append(log, "run", run[1:], lost)
    with pytest.raises(LogFencedError, match="is claimed by process"):
        await append(log, "run", run[1:])
    await log.release(newest)
    with pytest.raises(LogFencedError, match="given back"):
        await append(log, "run", run[1:], newest)


async def test_lease_of_another_run(log: EventLog) -> None:
    lease = await log.acquire("run")

    with pytest.raises(LogFencedError, match="a claim of run is none of other"):
        await append(log, "other", chained("other", 1), lease)


async def test_held_lease_names_its_process(log: EventLog) -> None:
    await log.acquire("run")

    with pytest.raises(RunClaimedError, match=r"owned by this process.*Nothing was written"):
        await log.acquire("run")
    assert await log.lease_holders() == {"run": str(this_process())}


async def test_command_for_an_unknown_run(log: EventLog) -> None:
    await log.acquire("leased")

    for run_id in ("unknown", "leased"):
        with pytest.raises(LogError, match=f"there is no run {run_id}"):
            await log.enqueue(run_id, QueuedCommand("answer", b"yes"))


async def test_closed_log(log: EventLog) -> None:
    await log.close()

    with pytest.raises(LogWriteError, match="closed"):
        await append(log, "run", chained("run", 1))
    for write in WRITES.values():
        with pytest.raises(LogWriteError, match="closed"):
            await write(log)
