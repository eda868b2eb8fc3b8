"""A log of an older schema keeps what it has and gets the rest."""

import asyncio
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from interlock.domain.errors import LogError, LogVersionError
from interlock.storage.event_log import QueuedCommand, RunSummary, Snapshot
from interlock.storage.sqlite import database
from interlock.storage.sqlite.database import SCHEMA_VERSION
from interlock.storage.sqlite.log import SqliteLog
from tests.patience import HANG_SECONDS

from .child import start
from .runs import append, chained
from .watched import watched

#: What version 1 made, word for word.
VERSION_1 = """
    PRAGMA journal_mode = WAL;
    CREATE TABLE runs (number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE);
    CREATE TABLE events (
        run INTEGER NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (run, seq)
    );
    CREATE TABLE snapshots (
        run_id TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash BLOB NOT NULL, state BLOB NOT NULL
    ) WITHOUT ROWID;
    PRAGMA user_version = 1;
"""

RUN = chained("run", 4)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A log of version 1 with three events."""
    connection = sqlite3.connect(tmp_path / "log", isolation_level=None)
    connection.executescript(VERSION_1)
    connection.execute("INSERT INTO runs (run_id) VALUES ('run')")
    rows = [(1, entry.seq, entry.body, entry.hash) for entry in RUN[:3]]
    connection.executemany("INSERT INTO events (run, seq, body, hash) VALUES (?, ?, ?, ?)", rows)
    connection.execute("INSERT INTO snapshots VALUES ('run', 2, ?, ?)", (RUN[2].hash, b"state"))
    connection.close()
    return tmp_path / "log"


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return found


async def test_a_log_of_version_1_keeps_its_events_and_can_be_claimed(old: Path) -> None:
    async with SqliteLog(old) as log:
        claim = await log.acquire("run")
        await append(log, "run", RUN[3:], claim)

        assert await log.enqueue("run", QueuedCommand("stop", b""))
        assert await log.read("run") == RUN
        assert await log.list_runs() == [RunSummary(RUN[0], RUN[3])]
        assert await log.load_snapshot("run") == Snapshot(2, RUN[2].hash, b"state")

    assert version(old) == SCHEMA_VERSION
    async with SqliteLog(old) as log:
        assert await log.read("run") == RUN


def schema(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    connection.close()
    return [" ".join(sql.split()) for (sql,) in found]


def test_two_processes_that_upgrade_at_once_both_find_everything(old: Path) -> None:
    with start("upgrade", old) as one, start("upgrade", old) as other:
        for child in (one, other):
            assert child.stdout
            child.stdout.readline()
        for child in (one, other):
            assert child.stdin
            child.stdin.write("go\n")
            child.stdin.flush()
        said = [child.communicate(timeout=HANG_SECONDS)[0] for child in (one, other)]
        assert (one.returncode, other.returncode) == (0, 0)

    assert said == ["3\n", "3\n"]
    assert version(old) == SCHEMA_VERSION


def test_a_log_that_somebody_else_upgrades_in_the_last_moment_is_left_as_it_is(old: Path) -> None:
    def upgrade_first(connection: sqlite3.Connection, sql: str) -> None:
        if sql == "BEGIN IMMEDIATE" and version(old) == 1:
            asyncio.run(SqliteLog(old).close())

    asyncio.run(SqliteLog(old, factory=watched(upgrade_first)).close())

    assert version(old) == SCHEMA_VERSION


def test_an_upgrade_that_breaks_off_leaves_the_old_log(old: Path) -> None:
    def fail(connection: sqlite3.Connection, sql: str) -> None:
        if "CREATE TABLE notes" in sql:
            raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(LogError, match="disk I/O error"):
        SqliteLog(old, factory=watched(fail))

    assert version(old) == 1
    assert not any("claims" in sql for sql in schema(old))
    asyncio.run(SqliteLog(old).close())
    assert version(old) == SCHEMA_VERSION


def test_an_older_interlock_refuses_the_upgraded_log_in_words(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(SqliteLog(old).close())
    monkeypatch.setattr(database, "SCHEMA_VERSION", 1)

    with pytest.raises(
        LogVersionError, match=f"newer version of Interlock: its schema is {SCHEMA_VERSION}, .* up to 1"
    ):
        SqliteLog(old)


def test_a_new_log_that_another_process_makes_meanwhile_is_not_taken_for_somebody_elses(tmp_path: Path) -> None:
    """The version says 0, and before the tables are looked at the other one is done."""
    path = tmp_path / "log"
    tries: list[str] = []

    def make_it_first(connection: sqlite3.Connection, sql: str) -> None:
        if sql == "SELECT 1 FROM sqlite_master" and not tries:
            tries.append(sql)
            with closing(sqlite3.connect(path, timeout=0)) as other, suppress(sqlite3.OperationalError):
                other.executescript(f"BEGIN IMMEDIATE; {VERSION_1.replace('PRAGMA journal_mode = WAL;', '')} COMMIT;")

    asyncio.run(SqliteLog(path, factory=watched(make_it_first)).close())

    assert tries
    assert version(path) == SCHEMA_VERSION


def test_processes_that_make_a_new_log_at_once_all_have_it(tmp_path: Path) -> None:
    children = [start("upgrade", tmp_path / "log") for _ in range(4)]
    for child in children:
        assert child.stdout
        child.stdout.readline()
    for child in children:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()

    said = [child.communicate(timeout=HANG_SECONDS)[0] for child in children]

    assert said == ["0\n"] * 4
    assert version(tmp_path / "log") == SCHEMA_VERSION
