"""The writer thread and the leases of a SQLite log, at their edges."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import SqliteLog
from interlock.domain.errors import LogError, LogFencedError, LogWriteError
from interlock.storage.event_log import Lease, QueuedCommand
from interlock.storage.leases import this_process
from interlock.storage.sqlite import leases, writer
from tests.patience import HANG_SECONDS

from .runs import append, chained
from .watched import Gate, watched

HERE = this_process()


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def log(tmp_path: Path, gate: Gate) -> AsyncIterator[SqliteLog]:
    log = SqliteLog(tmp_path / "log", factory=gate.connections)
    yield log
    gate.open()
    await log.close()


@pytest.mark.parametrize(("seconds", "problem"), [(-1.0, "the disk does not confirm a write"), (3600.0, "")])
async def test_a_slow_disk_is_a_problem_while_it_lasts(
    log: SqliteLog, gate: Gate, monkeypatch: pytest.MonkeyPatch, seconds: float, problem: str
) -> None:
    monkeypatch.setattr(writer, "DISK_STALL_SECONDS", seconds)
    gate.shut()
    written = asyncio.ensure_future(append(log, "run", chained("run", 1)))
    assert await asyncio.to_thread(gate.reached.wait, HANG_SECONDS)

    assert log.problem == problem
    gate.open()
    await written
    assert log.problem == ""


@pytest.mark.parametrize(("seconds", "problem"), [(-1.0, "another process holds the write lock"), (3600.0, "")])
async def test_a_foreign_lock_is_a_problem_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, problem: str
) -> None:
    monkeypatch.setattr(writer, "STALL_SECONDS", seconds)
    found: list[str] = []

    def see(connection: sqlite3.Connection, sql: str) -> None:
        if sql == "BEGIN IMMEDIATE" and logs:
            found.append(logs[0].problem)

    logs: list[SqliteLog] = []
    logs.append(SqliteLog(tmp_path / "log", factory=watched(see)))
    await append(logs[0], "run", chained("run", 1))
    await logs[0].close()

    assert found == [problem]


async def test_a_transaction_that_cannot_begin_ends_the_log(tmp_path: Path) -> None:
    """It is not a lock of another process, so nothing is tried again."""
    begun: list[str] = []

    def see(connection: sqlite3.Connection, sql: str) -> None:
        if sql == "BEGIN IMMEDIATE" and logs:
            begun.append(sql)
            raise sqlite3.OperationalError("disk I/O error")

    logs: list[SqliteLog] = []
    logs.append(SqliteLog(tmp_path / "log", factory=watched(see)))

    with pytest.raises(LogWriteError, match="disk I/O error") as raised:
        await append(logs[0], "run", chained("run", 1))
    assert isinstance(raised.value.__cause__, sqlite3.OperationalError)
    assert (len(begun), "disk I/O error" in logs[0].problem) == (1, True)
    await logs[0].close()
    assert "disk I/O error" in logs[0].problem


async def test_text_that_is_not_unicode_is_refused(log: SqliteLog) -> None:
    run = chained("run", 2)
    await append(log, "run", run[:1])
    with pytest.raises(LogError, match="this cannot be written in UTF-8") as raised:
        await log.enqueue("run", QueuedCommand("\ud800", b"{}"))

    assert not isinstance(raised.value, LogWriteError)
    await append(log, "run", run[1:])


async def test_only_so_many_heads_are_remembered(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_HEADS", 2)
    heads, remembered = log._writer._heads, list[int]()  # pyright: ignore[reportPrivateUsage]
    for number in range(5):
        await append(log, f"run_{number}", chained(f"run_{number}", 1))
        remembered.append(len(heads))

    assert remembered == [1, 2, 3, 1, 2]


async def test_heads_are_read_again_after_another_log_wrote(log: SqliteLog, tmp_path: Path) -> None:
    run = chained("run", 4)
    async with SqliteLog(tmp_path / "log") as other:
        await append(log, "run", run[:1])
        await append(other, "run", run[1:2])
        with pytest.raises(LogFencedError, match="whose next event is 2"):
            await append(log, "run", run[1:2])
        await append(log, "run", run[2:])
        assert await other.read("run") == run


async def test_an_event_of_another_run_is_not_written(log: SqliteLog) -> None:
    with pytest.raises(LogFencedError, match="event 0 of other does not continue run"):
        await append(log, "run", chained("other", 1))

    assert await log.run_ids() == []


async def test_the_thread_of_a_log_is_a_daemon_with_a_name(log: SqliteLog) -> None:
    """A script that forgets to close a log still ends."""
    thread = log._writer._thread  # pyright: ignore[reportPrivateUsage]

    assert (thread.name, thread.daemon) == ("interlock-log", True)


async def test_a_connection_that_cannot_be_closed_stops_nobody(tmp_path: Path) -> None:
    class Stuck(sqlite3.Connection):
        def close(self) -> None:
            super().close()
            if threading.current_thread().name == "interlock-log":
                raise sqlite3.OperationalError("disk I/O error")

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql == "COMMIT" and written:
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(sql, parameters)

    written: list[str] = []
    log = SqliteLog(tmp_path / "log", factory=Stuck)
    await append(log, "run", chained("run", 1))
    written.append("run")
    with pytest.raises(LogWriteError, match="a write failed"):
        await append(log, "other", chained("other", 1))
    await log.close()


async def test_a_lock_file_that_is_a_link_gives_no_lease(log: SqliteLog, tmp_path: Path) -> None:
    await append(log, "run", chained("run", 1))
    (tmp_path / "log-lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(LogError, match="cannot be shown to other processes"):
        await log.acquire("run")
    assert (await log.lease_holders(), (tmp_path / "elsewhere").exists()) == ({}, False)


async def test_a_released_lease_is_forgotten(log: SqliteLog) -> None:
    await log.release(await log.acquire("run"))

    assert log._leases.claims == set()  # pyright: ignore[reportPrivateUsage]


def test_locks_that_are_closed_twice_close_nothing_else(tmp_path: Path) -> None:
    locks = leases.HolderLocks(tmp_path / "lock")
    locks.hold(HERE)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    locks.close()
    with (tmp_path / "other").open("wb") as other:
        locks.close()
        os.fstat(other.fileno())


def test_a_holder_without_a_boot_is_looked_for(tmp_path: Path) -> None:
    held = leases.OpenLeases(tmp_path / "log")
    parent = msgspec.structs.replace(HERE, boot="", pid=os.getppid(), started=0)

    assert held.is_held(Lease("run", 1), parent, HERE)
    assert held.is_held(
        Lease("run", 1), msgspec.structs.replace(parent, boot="b"), msgspec.structs.replace(HERE, boot="")
    )
    held.close()


def test_a_lock_file_that_cannot_be_opened_shows_nobody(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    locks = leases.HolderLocks(tmp_path / "lock")

    assert [locks.is_held(HERE, otherwise=each) for each in (True, False)] == [True, False]


def test_without_locks_only_strangers_count_as_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_OFD_LOCKS", False)
    held = leases.OpenLeases(tmp_path / "log")
    gone = msgspec.structs.replace(HERE, pid=2**22 + 1)

    assert not held.is_held(Lease("run", 1), gone, HERE)
    assert held.is_held(Lease("run", 1), msgspec.structs.replace(gone, host="elsewhere"), HERE)
    held.close()


async def test_queued_command_keeps_an_append_out(log: SqliteLog) -> None:
    """A queued command keeps the append out until it is acknowledged; one under another key does not."""
    first, second = chained("run", 2)
    await append(log, "run", [first])
    await log.enqueue("run", QueuedCommand("answer:a", b"yes"))

    assert not await log.append_unless_queued("run", [second], None, "answer:a")
    assert await log.read("run") == [first]
    assert await log.append_unless_queued("run", [second], None, "answer:b")
    assert await log.read("run") == [first, second]


async def test_conditional_append_needs_the_lease(log: SqliteLog) -> None:
    first, second = chained("run", 2)
    await append(log, "run", [first])
    await log.acquire("run")

    with pytest.raises(LogFencedError):
        await log.append_unless_queued("run", [second], None, "answer:a")


@pytest.mark.parametrize("count", [63, 64, 200])
async def test_few_and_many_rows_read_the_same(log: SqliteLog, count: int) -> None:
    entries = chained("run", count)
    for entry in entries:
        await append(log, "run", [entry])

    assert await log.read("run") == entries
    assert await log.read("run", 5, 40) == entries[6:46]
    assert (await log.load("run")).entries == entries
    assert (await log.load("run", 10)).entries == entries[:10]
