"""One thread commits for everybody who waits."""

import asyncio
import gc
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.domain.errors import LogError, LogFencedError
from interlock.storage.event_log import Lease, Snapshot
from interlock.storage.sqlite import writer
from interlock.storage.sqlite.log import SqliteLog
from tests.patience import eventually

from .runs import append, chained
from .watched import Gate, watched


async def hold_first_commit(log: SqliteLog, gate: Gate) -> asyncio.Future[None]:
    """An append whose commit is under way until the gate opens."""
    gate.shut()
    first = asyncio.ensure_future(append(log, "first", chained("first", 1)))
    assert await asyncio.to_thread(gate.reached.wait, 20)
    return first


async def test_all_that_queue_during_a_commit_share_the_next_one(tmp_path: Path) -> None:
    gate = Gate()
    log = SqliteLog(tmp_path / "log", factory=gate.connections)
    first = await hold_first_commit(log, gate)

    others = asyncio.gather(*(append(log, f"run {n}", chained(f"run {n}", 3)) for n in range(99)))
    snapshot = asyncio.ensure_future(log.save_snapshot("run 0", Snapshot(2, b"hash", b"state")))
    await asyncio.wait({snapshot}, timeout=0)
    gate.open()
    await asyncio.gather(first, others, snapshot)

    assert gate.commits == 2
    assert len(await log.run_ids()) == 100
    await log.close()


async def test_a_fenced_append_does_not_hurt_the_others_of_its_commit(tmp_path: Path) -> None:
    gate = Gate()
    log = SqliteLog(tmp_path / "log", factory=gate.connections)
    first = await hold_first_commit(log, gate)
    run = chained("run", 3)

    group = asyncio.gather(
        append(log, "run", run[:1]),
        append(log, "run", run[:1]),
        append(log, "run", run[1:]),
        append(log, "other", chained("other", 1)),
        return_exceptions=True,
    )
    await asyncio.wait({group}, timeout=0)
    gate.open()

    assert [type(outcome) for outcome in await group] == [type(None), LogFencedError, type(None), type(None)]
    assert await log.read("run") == run
    assert gate.commits == 2
    await first
    await log.close()


async def test_appends_before_and_after_a_claim_share_a_commit(tmp_path: Path) -> None:
    gate = Gate()
    log = SqliteLog(tmp_path / "log", factory=gate.connections)
    run = chained("run", 3)
    first = await hold_first_commit(log, gate)

    before = asyncio.ensure_future(append(log, "run", run[:2]))
    claiming = asyncio.ensure_future(log.acquire("run"))
    after = [asyncio.ensure_future(append(log, "run", run[2:], claim)) for claim in (None, Lease("run", 1))]
    await asyncio.wait({claiming}, timeout=0)
    gate.open()
    outcomes = await asyncio.gather(first, before, *after, return_exceptions=True)

    assert await claiming == Lease("run", 1)
    assert [type(outcome) for outcome in outcomes] == [type(None), type(None), LogFencedError, type(None)]
    assert await log.read("run") == run
    assert gate.commits == 2
    await log.close()


async def test_the_event_loop_goes_on_and_readers_see_only_what_is_committed(tmp_path: Path) -> None:
    gate = Gate()
    log = SqliteLog(tmp_path / "log", factory=gate.connections)

    first = await hold_first_commit(log, gate)
    seen_before = await log.read("first")
    gate.open()
    await first

    assert seen_before == []
    assert await log.read("first") == chained("first", 1)
    await log.close()


async def test_heads_that_were_forgotten_are_read_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MAX_HEADS", 1)
    log = SqliteLog(tmp_path / "log")
    runs = {name: chained(name, 5) for name in ("a", "b", "c")}

    for seq in range(5):
        for name, run in runs.items():
            await append(log, name, run[seq : seq + 1])

    assert {name: await log.read(name) for name in runs} == runs
    await log.close()


def test_one_log_serves_several_event_loops_one_after_the_other(tmp_path: Path) -> None:
    log, run = SqliteLog(tmp_path / "log"), chained("run", 3)

    for entry in run:
        asyncio.run(append(log, "run", [entry]))

    assert asyncio.run(log.read("run")) == run
    asyncio.run(log.close())


def test_one_log_serves_several_event_loops_at_the_same_time(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log")
    runs = {name: chained(name, 50) for name in ("a", "b", "c")}

    async def append_all(name: str) -> None:
        for entry in runs[name]:
            await append(log, name, [entry])

    threads = [threading.Thread(target=asyncio.run, args=(append_all(name),)) for name in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {name: asyncio.run(log.read(name)) for name in runs} == runs
    asyncio.run(log.close())


def test_an_append_whose_event_loop_is_gone_is_written_and_the_log_goes_on(tmp_path: Path) -> None:
    gate = Gate()
    log = SqliteLog(tmp_path / "log", factory=gate.connections)

    async def leave_during_the_commit() -> None:
        first = await hold_first_commit(log, gate)
        first.cancel()

    asyncio.run(leave_during_the_commit())
    gate.open()
    asyncio.run(append(log, "second", chained("second", 1)))

    assert asyncio.run(log.run_ids()) == ["first", "second"]
    asyncio.run(log.close())


def writing_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "interlock-log"}


@pytest.fixture
def writers() -> Callable[[], set[threading.Thread]]:
    """The threads of the logs that this test opens."""
    others = writing_threads()
    return lambda: writing_threads() - others


async def test_closing_ends_the_thread_and_leaves_one_file(
    tmp_path: Path, writers: Callable[[], set[threading.Thread]]
) -> None:
    log = SqliteLog(tmp_path / "log")
    await append(log, "run", chained("run", 1))
    assert len(writers()) == 1

    await log.close()

    assert writers() == set()
    assert os.listdir(tmp_path) == ["log"]


async def test_a_log_that_is_dropped_writes_what_was_handed_in_and_ends_its_thread(
    tmp_path: Path, writers: Callable[[], set[threading.Thread]]
) -> None:
    log = SqliteLog(tmp_path / "log")
    caller = asyncio.ensure_future(append(log, "run", chained("run", 1)))
    await asyncio.wait({caller}, timeout=0)
    caller.cancel()
    await asyncio.wait({caller})

    del log, caller
    gc.collect()

    assert writers() == set()
    reopened = SqliteLog(tmp_path / "log")
    assert await reopened.run_ids() == ["run"]
    await reopened.close()


async def test_a_log_that_is_dropped_in_its_own_thread_ends_it_too(
    tmp_path: Path, writers: Callable[[], set[threading.Thread]]
) -> None:
    kept: list[SqliteLog] = []

    def drop(connection: sqlite3.Connection, sql: str) -> None:
        if sql == "COMMIT" and kept:
            kept.clear()
            gc.collect()

    kept.append(SqliteLog(tmp_path / "log", factory=watched(drop)))
    written = kept[0].append("run", chained("run", 1))
    assert written
    await written

    for thread in writers():
        await asyncio.to_thread(thread.join, 20)
    assert writers() == set()


async def test_an_append_waits_for_another_process_that_writes(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log")
    other = sqlite3.connect(tmp_path / "log", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    caller = asyncio.ensure_future(append(log, "run", chained("run", 1)))
    done, _ = await asyncio.wait({caller}, timeout=0.05)
    assert not done
    other.execute("COMMIT")
    await caller

    assert await log.run_ids() == ["run"]
    other.close()
    await log.close()


async def test_an_append_does_not_wait_for_ever_for_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SqliteLog(tmp_path / "log")
    other = sqlite3.connect(tmp_path / "log", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(writer, "BUSY_SECONDS", 0.02)

    with pytest.raises(LogError, match=r"database is locked.*Nothing was written") as refused:
        await append(log, "run", chained("run", 1))

    assert type(refused.value) is LogError, "nothing was written, so the log did not fail"
    assert log.problem == ""
    other.close()
    await append(log, "run", chained("run", 1))
    await log.close()


async def test_a_locked_log_is_a_problem_while_it_lasts(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log")
    other = sqlite3.connect(tmp_path / "log", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    waiting = asyncio.ensure_future(append(log, "run", chained("run", 1)))
    await eventually(lambda: log.problem != "")
    assert "another process holds the write lock" in log.problem
    other.execute("COMMIT")
    await waiting

    assert log.problem == ""
    other.close()
    await log.close()


async def test_a_lease_that_could_not_be_released_is_free_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SqliteLog(tmp_path / "log")
    await append(log, "run", chained("run", 1))
    lease = await log.acquire("run")
    other = sqlite3.connect(tmp_path / "log", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(writer, "BUSY_SECONDS", 0.02)
    with pytest.raises(LogError, match="locked"):
        await log.release(lease)
    monkeypatch.undo()
    other.close()

    assert await log.lease_holders() == {}
    assert (await log.acquire("run")).token > lease.token
    await log.close()
