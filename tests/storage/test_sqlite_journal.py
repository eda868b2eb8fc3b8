"""Space that is reserved in the write-ahead log."""

import os
import sqlite3
from pathlib import Path

import pytest

from interlock import SqliteLog
from interlock.storage.sqlite import journal
from interlock.storage.sqlite.journal import MIN_BYTES, JournalSpace

from .runs import append, chained
from .watched import watched


async def test_commits_do_not_grow_the_file(tmp_path: Path) -> None:
    sizes: set[int] = set()
    log, run = SqliteLog(tmp_path / "log"), chained("run", 12)
    for entry in run:
        await append(log, "run", [entry])
        sizes.add((tmp_path / "log-wal").stat().st_size)

    assert len(sizes) <= 3
    await log.close()
    assert not (tmp_path / "log-wal").exists()


async def test_another_process_reads_up_to_the_last_frame(tmp_path: Path) -> None:
    """As after a crash: the index of the journal is rebuilt from the file."""
    log, run = SqliteLog(tmp_path / "log"), chained("run", 12)
    for entry in run:
        await append(log, "run", [entry])
    for ending in ("", "-wal"):
        (tmp_path / f"copy{ending}").write_bytes((tmp_path / f"log{ending}").read_bytes())
    await log.close()

    copy = SqliteLog(tmp_path / "copy")
    assert await copy.read("run") == run
    await append(copy, "run", chained("run", 13)[12:])
    await copy.close()


async def test_space_is_reserved_while_the_lock_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing: list[sqlite3.Connection] = []
    in_transaction: list[bool] = []

    def see(connection: sqlite3.Connection, sql: str) -> None:
        if sql == "BEGIN IMMEDIATE":
            writing[:] = [connection]

    def extend(space: JournalSpace, size: int) -> int:
        in_transaction.append(writing[0].in_transaction)
        return size

    log = SqliteLog(tmp_path / "log", factory=watched(see))
    monkeypatch.setattr(JournalSpace, "_extend", extend)
    for entry in chained("run", 3):
        await append(log, "run", [entry])

    assert in_transaction
    assert all(in_transaction)
    await log.close()


@pytest.mark.parametrize("written", [None, MIN_BYTES // 2])
def test_full_disk_keeps_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int | None
) -> None:
    path = tmp_path / "log-wal"
    path.write_bytes(b"frames")
    tries: list[int] = []
    pwrite = os.pwrite

    def fail(file: int, content: bytes, place: int) -> int:
        tries.append(place)
        if written is None:
            raise OSError
        return pwrite(file, content[:written], place)

    monkeypatch.setattr(journal.os, "pwrite", fail)
    space = JournalSpace(str(path))
    space.reserve()
    space.reserve()
    space.close()

    assert (path.read_bytes(), tries) == (b"frames", [6])


def test_missing_or_linked_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for name in ("none", "link"):
        space = JournalSpace(str(tmp_path / name))
        space.reserve()
        space.close()

    assert (tmp_path / "target").read_bytes() == b"x"
    assert not (tmp_path / "none").exists()


async def test_truncated_journal_is_reserved_again(tmp_path: Path) -> None:
    log, run = SqliteLog(tmp_path / "log"), chained("run", 8)
    await append(log, "run", run[:2])
    await append(log, "run", run[2:4])
    with sqlite3.connect(tmp_path / "log") as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    assert (tmp_path / "log-wal").stat().st_size == 0

    for entry in run[4:]:
        await append(log, "run", [entry])

    assert (tmp_path / "log-wal").stat().st_size > MIN_BYTES
    assert await log.read("run") == run
    await log.close()
