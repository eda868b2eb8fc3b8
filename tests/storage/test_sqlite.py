"""The SQLite log keeps every promise; and how it opens its file."""

import sqlite3
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.domain.errors import LogError, LogVersionError
from interlock.storage.sqlite.database import SCHEMA_VERSION
from interlock.storage.sqlite.log import SqliteLog
from interlock.testing.conformance import DurableEventLogConformance, LeasingAppendConformance

from .runs import append, chained
from .watched import watched


@pytest.mark.requirement("R138")
class TestSqliteLog(DurableEventLogConformance, LeasingAppendConformance):
    @pytest.fixture
    async def open_log(self, tmp_path: Path) -> AsyncIterator[Callable[[], SqliteLog]]:
        opened: list[SqliteLog] = []

        def open_() -> SqliteLog:
            opened.append(SqliteLog(tmp_path / "log"))
            return opened[-1]

        yield open_
        for log in opened:
            await log.close()


async def test_the_writing_connection_uses_wal_and_full_synchronous(tmp_path: Path) -> None:
    connections: list[sqlite3.Connection] = []

    def remember(connection: sqlite3.Connection, sql: str) -> None:
        if sql == "COMMIT":
            connections.append(connection)

    log = SqliteLog(tmp_path / "log", factory=watched(remember))
    await append(log, "run", chained("run", 1))

    writing = connections[-1]
    assert sqlite3.Connection.execute(writing, "PRAGMA synchronous").fetchone() == (2,)
    assert sqlite3.Connection.execute(writing, "PRAGMA journal_mode").fetchone() == ("wal",)
    await log.close()


@pytest.mark.parametrize("ignored", ["PRAGMA synchronous = FULL", "PRAGMA journal_mode = WAL"])
def test_a_log_that_would_not_be_durable_is_refused(tmp_path: Path, ignored: str) -> None:
    weaker = {"PRAGMA synchronous = FULL": "PRAGMA synchronous", "PRAGMA journal_mode = WAL": "PRAGMA journal_mode"}

    class Careless(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql == ignored:
                super().execute("PRAGMA synchronous = NORMAL")
            return super().execute(weaker[sql] if sql == ignored else sql, parameters)

    with pytest.raises(LogError, match="would not be durable"):
        SqliteLog(tmp_path / "log", factory=Careless)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


async def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log")
    await append(log, "run", chained("run", 1))

    assert modes(tmp_path) == {"log": 0o600, "log-wal": 0o600, "log-shm": 0o600}
    await log.close()


async def test_a_log_can_be_opened_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")

    await SqliteLog(tmp_path / "link").close()

    assert modes(tmp_path)["target"] == 0o600


def test_a_newer_schema_is_refused_in_words(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "log") as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()

    with pytest.raises(LogVersionError, match="Use a newer Interlock"):
        SqliteLog(tmp_path / "log")


def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "log") as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
    before = (tmp_path / "log").read_bytes()

    with pytest.raises(LogError, match="not a log"):
        SqliteLog(tmp_path / "log")

    assert (tmp_path / "log").read_bytes() == before
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("customers",)]
    connection.close()


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"Dear diary, " * 500)

    with pytest.raises(LogError, match="cannot open the log"):
        SqliteLog(tmp_path / "log")

    assert (tmp_path / "log").read_bytes() == b"Dear diary, " * 500


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="No such file"):
        SqliteLog(tmp_path / "nowhere" / "log")


async def test_a_closed_log_says_that_it_cannot_be_read(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log")
    await log.close()

    with pytest.raises(LogError, match="cannot read the log"):
        await log.read("run")


async def test_an_event_costs_its_bytes_its_hash_and_little_more(tmp_path: Path) -> None:
    run = chained("run_0123456789abcdef0123456789abcdef", 3000, message="x" * 200)
    log = SqliteLog(tmp_path / "log")
    for start in range(0, len(run), 100):
        await append(log, run[0].run_id, run[start : start + 100])
    await log.close()

    kept = sum(len(entry.body) + len(entry.hash) for entry in run)
    assert (tmp_path / "log").stat().st_size < 1.2 * kept
