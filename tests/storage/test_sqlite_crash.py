"""Killed processes, full disks, failing syncs: what was acknowledged is there, and nobody goes on after a failure."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from interlock.domain.errors import LogError, LogWriteError
from interlock.domain.event import LogEntry, WarningRaised, decode_event, genesis_hash, next_hash
from interlock.storage.event_log import Snapshot
from interlock.storage.sqlite.log import SqliteLog
from tests.patience import HANG_SECONDS

from .child import EVENTS, start
from .runs import append, chained
from .watched import watched


def read(path: Path, run_id: str) -> list[LogEntry]:
    async def reopen_and_read() -> list[LogEntry]:
        log = SqliteLog(path)
        try:
            return await log.read(run_id)
        finally:
            await log.close()

    return asyncio.run(reopen_and_read())


def assert_chained(run_id: str, entries: list[LogEntry]) -> None:
    head = genesis_hash(run_id)
    for seq, entry in enumerate(entries):
        head = next_hash(head, entry.body)
        assert entry == LogEntry(run_id, seq, entry.body, head)


@pytest.mark.parametrize("acknowledged", [1, 7, 300])
def test_everything_acknowledged_survives_kill_9(tmp_path: Path, acknowledged: int) -> None:
    with start("append_until_killed", tmp_path / "log") as child:
        assert child.stdout
        said = [child.stdout.readline() for _ in range(acknowledged)]
        child.kill()
        said += child.stdout.readlines()

    counts = {name: int(count) for name, count in map(str.split, said)}
    for name, count in counts.items():
        entries = read(tmp_path / "log", name)
        assert_chained(name, entries)
        assert len(entries) >= count
        assert len(entries) % 2 == 0, "an append is written whole or not at all"


def test_a_file_that_cannot_grow_stops_the_log_and_loses_nothing(tmp_path: Path) -> None:
    with start("append_until_full", tmp_path / "log") as child:
        said = child.communicate(timeout=HANG_SECONDS)[0].splitlines()

    *counts, failure, refusal = said
    entries = read(tmp_path / "log", "run")
    assert "a write failed" in failure
    assert refusal == failure
    assert 0 < int(counts[-1]) <= len(entries) <= int(counts[-1]) + 1
    assert entries == chained("run", EVENTS, message="x" * 1000)[: len(entries)]
    assert read(tmp_path / "log", "other") == []


def test_the_interpreter_exits_without_close_and_writes_what_was_handed_in(tmp_path: Path) -> None:
    with start("append_and_leave", tmp_path / "log") as child:
        assert child.wait(HANG_SECONDS) == 0

    assert read(tmp_path / "log", "run") == chained("run", 2)
    assert [file.name for file in tmp_path.iterdir()] == ["log"]


def test_of_two_processes_that_race_for_a_run_one_wins_each_place(tmp_path: Path) -> None:
    with start("contend", tmp_path / "log") as ours, start("contend", tmp_path / "log") as theirs:
        said = ours.communicate(timeout=HANG_SECONDS)[0] + theirs.communicate(timeout=HANG_SECONDS)[0]
        assert (ours.returncode, theirs.returncode) == (0, 0)

    winners = {int(seq): f"from {process}" for seq, process in map(str.split, said.splitlines())}
    facts = [decode_event(entry).fact for entry in read(tmp_path / "log", "run")]
    assert len(said.splitlines()) == EVENTS
    assert facts == [WarningRaised(message=winners[seq]) for seq in range(EVENTS)]


class Fault:
    """A commit that fails once it is told to, and the statements that came after."""

    def __init__(self, fail: Callable[[sqlite3.Connection], None]) -> None:
        self.armed = False
        self.later: list[str] = []
        self._fail = fail
        self.connections = watched(self._see)

    def _see(self, connection: sqlite3.Connection, sql: str) -> None:
        if not self.armed:
            return
        self.later.append(sql)
        if sql == "COMMIT":
            self._fail(connection)


def sync_fails(connection: sqlite3.Connection) -> None:
    raise sqlite3.OperationalError("disk I/O error")


def committed_but_raised(connection: sqlite3.Connection) -> None:
    sqlite3.Connection.execute(connection, "COMMIT")
    raise sqlite3.OperationalError("disk I/O error")


def out_of_memory(connection: sqlite3.Connection) -> None:
    raise MemoryError("no memory")


@pytest.mark.parametrize(
    ("fail", "written"), [(sync_fails, False), (committed_but_raised, True), (out_of_memory, False)]
)
async def test_after_a_failed_commit_the_log_refuses_everything_and_reopening_decides(
    tmp_path: Path, fail: Callable[[sqlite3.Connection], None], written: bool
) -> None:
    fault, run = Fault(fail), chained("run", 3)
    log = SqliteLog(tmp_path / "log", factory=fault.connections)
    await append(log, "run", run[:1])
    fault.armed = True

    group = await asyncio.gather(
        append(log, "run", run[1:2]), append(log, "other", chained("other", 1)), return_exceptions=True
    )
    statements = list(fault.later)
    with pytest.raises(LogWriteError, match="reopen the run, the log decides"):
        await append(log, "third", chained("third", 1))
    with pytest.raises(LogWriteError, match="reopen the run, the log decides"):
        await log.save_snapshot("run", Snapshot(0, b"hash", b"state"))

    assert [type(outcome) for outcome in group] == [LogWriteError, LogWriteError]
    assert fault.later == statements, "nothing touched the file after the failure"
    reopened = SqliteLog(tmp_path / "log")
    assert await reopened.read("run") == run[: 2 if written else 1]
    await append(reopened, "run", run[2 if written else 1 :])
    assert await log.read("run") == run, "a log that stopped can still be read"
    await reopened.close()
    await log.close()


@pytest.mark.parametrize(
    ("fail", "written"), [(sync_fails, False), (committed_but_raised, True), (out_of_memory, False)]
)
async def test_a_failed_log_is_reopened_when_it_can_be_written(
    tmp_path: Path, fail: Callable[[sqlite3.Connection], None], written: bool
) -> None:
    fault, run = Fault(fail), chained("run", 3)
    log = SqliteLog(tmp_path / "log", factory=fault.connections)
    await append(log, "run", run[:1])
    before = log.version()
    fault.armed = True
    with pytest.raises(LogWriteError):
        await append(log, "run", run[1:2])
    problem = log.problem
    with pytest.raises((LogError, MemoryError)):
        await log.reopen()
    assert log.problem == problem != ""
    fault.armed = False

    await log.reopen()

    assert log.problem == ""
    assert log.version() != before
    assert await log.read("run") == run[: 2 if written else 1]
    await append(log, "run", run[2 if written else 1 :])
    assert await log.read("run") == run
    await log.close()
    with pytest.raises(LogError, match="closed"):
        await log.reopen()


async def test_what_queued_behind_a_failed_commit_is_refused_too(tmp_path: Path) -> None:
    reached, go = threading.Event(), threading.Event()

    def fail_when_told(connection: sqlite3.Connection) -> None:
        reached.set()
        assert go.wait(HANG_SECONDS)
        sync_fails(connection)

    fault = Fault(fail_when_told)
    log = SqliteLog(tmp_path / "log", factory=fault.connections)
    fault.armed = True
    first = asyncio.ensure_future(append(log, "first", chained("first", 1)))
    assert await asyncio.to_thread(reached.wait, HANG_SECONDS)

    behind = [asyncio.ensure_future(append(log, name, chained(name, 1))) for name in ("second", "third")]
    await asyncio.wait(behind, timeout=0)
    go.set()
    outcomes = await asyncio.gather(first, *behind, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [LogWriteError] * 3
    assert fault.later.count("COMMIT") == 1
    assert await log.run_ids() == []
    await log.close()


async def test_a_full_database_stops_the_log_and_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    class Small(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql == "BEGIN IMMEDIATE":
                super().execute("PRAGMA max_page_count = 20")
            return super().execute(sql, parameters)

    log, run = SqliteLog(tmp_path / "log", factory=Small), chained("run", 200, message=token_hex(2_000))
    outcomes = [(await asyncio.gather(append(log, "run", [entry]), return_exceptions=True))[0] for entry in run]
    acknowledged = outcomes.count(None)
    with pytest.raises(LogWriteError, match="full"):
        await append(log, "other", chained("other", 1))
    await log.close()

    reopened = SqliteLog(tmp_path / "log")
    assert 0 < acknowledged < len(run)
    assert await reopened.read("run") == run[:acknowledged]
    await reopened.close()


async def test_a_damaged_file_is_an_error_and_never_an_empty_run(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log")
    await append(log, "run", chained("run", 500))
    await log.close()
    with closing((tmp_path / "log").open("r+b")) as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 40 * 4096)

    log = SqliteLog(tmp_path / "log")
    with pytest.raises(LogError, match="cannot read the log"):
        await log.read("run")
    await log.close()
