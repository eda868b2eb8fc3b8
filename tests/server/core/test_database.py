"""The server's database: older files are upgraded, newer ones refused, and an error says what became of the change."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from interlock.domain.errors import ConfigurationError
from interlock.server.core.audit.audit_log import AuditLog
from interlock.server.core.database import sqlite as database
from interlock.server.core.database.interface import Connection
from interlock.server.core.database.sqlite import DATABASE_VERSION, SqliteDatabase
from interlock.server.core.errors import StorageError
from interlock.server.core.identity.accounts import Accounts
from interlock.server.core.identity.api_keys import ApiKeys

RELEASED = Path(__file__).with_name("released")


def names(connection: Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM served_agents ORDER BY name")]


def add(connection: Connection, name: str = "one") -> None:
    connection.execute("INSERT INTO served_agents VALUES (?)", (name,))


def version(connection: Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


class Faulty(sqlite3.Connection):
    """Raises `code` at the statement `at`, after executing it if `late`."""

    at, code, late = "", 0, False

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == Faulty.at:
            if Faulty.late:
                super().execute(sql, parameters)
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = Faulty.code
            raise error
        return super().execute(sql, parameters)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What is set on `Faulty` is undone."""
    monkeypatch.setattr(Faulty, "at", "")
    monkeypatch.setattr(Faulty, "late", False)
    monkeypatch.setattr(Faulty, "code", sqlite3.SQLITE_IOERR_FSYNC)
    return monkeypatch


def test_newer_database_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "server.db"
    with closing(sqlite3.connect(path)) as newer:
        newer.execute(f"PRAGMA user_version = {DATABASE_VERSION + 1}")
    before = path.read_bytes()

    with pytest.raises(ConfigurationError, match=r"newer version of Interlock.*Nothing was changed"):
        SqliteDatabase(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("script", [path.read_text() for path in sorted(RELEASED.glob("server_*.sql"))], ids=["1"])
async def test_released_database_is_upgraded(tmp_path: Path, script: str) -> None:
    path = tmp_path / "server.db"
    with closing(sqlite3.connect(path)) as old, closing(SqliteDatabase(tmp_path / "new.db")) as new:
        old.executescript(script)
        fresh = new.read_now(_read_schema)

    for _ in range(2):
        with closing(SqliteDatabase(path)) as ours:
            assert ours.read_now(version) == DATABASE_VERSION
            assert ours.read_now(_read_schema) == fresh
            assert await Accounts(ours).authenticate("ada", "correct horse battery")
            assert [key.name for key in await ApiKeys(ours).list()] == ["bot"]
            check = await AuditLog(ours).verify()
            assert (check.count, check.problem) == (4, "")


def test_database_made_by_a_command_gets_all_tables(tmp_path: Path) -> None:
    """Version 1 files had only the tables that their maker needed."""
    with closing(sqlite3.connect(tmp_path / "server.db")) as old:
        old.executescript("CREATE TABLE accounts (name TEXT PRIMARY KEY); PRAGMA user_version = 1")

    with closing(SqliteDatabase(tmp_path / "server.db")) as ours:
        assert ours.read_now(lambda connection: connection.execute("SELECT count(*) FROM journal").fetchone()) == (0,)


async def test_locked_database_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_BUSY_SECONDS", 0.01)
    path = tmp_path / "server.db"
    ours, other = SqliteDatabase(path), sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StorageError, match=r"database is locked\. Nothing was changed") as refused:
        await ours.run(add)
    assert (refused.value.code, refused.value.details) == ("database_unavailable", {"changed": "no"})
    assert await ours.read(names) == [], "a read needs no lock"
    assert await ours.check() == ""
    other.execute("ROLLBACK")
    await ours.run(add)

    assert await ours.read(names) == ["one"]
    ours.close()
    other.close()


async def test_full_disk_has_its_own_code(tmp_path: Path) -> None:
    ours = SqliteDatabase(tmp_path / "server.db")
    ours.run_now(add)
    await _limit_pages(ours, 1)

    with pytest.raises(StorageError, match=r"full\. Nothing was changed") as refused:
        await ours.run(lambda connection: add(connection, "x" * 100_000))
    assert (refused.value.code, refused.value.details) == ("storage_full", {"changed": "no"})
    await _limit_pages(ours, 1_000_000)

    assert await ours.check() == ""
    assert await ours.read(names) == ["one"]
    ours.close()


@pytest.mark.parametrize("late", [False, True])
async def test_failed_commit_is_never_called_unchanged(tmp_path: Path, faulty: pytest.MonkeyPatch, late: bool) -> None:
    """After a failed sync the change may be there or not: the file is opened again, and decides."""
    ours = SqliteDatabase(tmp_path / "server.db", factory=Faulty)
    faulty.setattr(Faulty, "late", late)
    faulty.setattr(Faulty, "at", "COMMIT")

    with pytest.raises(StorageError, match="not known whether the change was made") as failed:
        await ours.run(add)
    assert failed.value.details == {"changed": "unknown"}
    assert "disk I/O error" in await ours.check()
    faulty.setattr(Faulty, "at", "")

    assert await ours.check() == ""
    assert await ours.read(names) == (["one"] if late else [])
    await ours.run(lambda connection: add(connection, "two"))
    ours.close()
    with closing(SqliteDatabase(tmp_path / "server.db")) as again:
        assert again.read_now(names) == (["one", "two"] if late else ["two"])


async def test_reads_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    ours = SqliteDatabase(tmp_path / "server.db")
    writing, go_on = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        add(connection)
        writing.set()
        assert go_on.wait(20)

    thread = threading.Thread(target=ours.run_now, args=(slow,))
    thread.start()
    assert writing.wait(20)

    assert ours.read_now(names) == []
    go_on.set()
    thread.join()
    assert ours.read_now(names) == ["one"]
    ours.close()


def test_a_read_cannot_write(tmp_path: Path) -> None:
    with closing(SqliteDatabase(tmp_path / "server.db")) as ours:
        with pytest.raises(StorageError, match="readonly"):
            ours.read_now(add)
        assert ours.read_now(names) == []


async def test_mistakes_in_statements_are_not_storage_errors(tmp_path: Path) -> None:
    ours = SqliteDatabase(tmp_path / "server.db")

    for attempt in (ours.run, ours.read):
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            await attempt(lambda connection: connection.execute("SELECT * FROM missing"))
    ours.close()


def _read_schema(connection: Connection) -> list[tuple[str, ...]]:
    found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()
    return [(kind, name, table, "".join(str(sql).split())) for kind, name, table, sql in found]


async def _limit_pages(ours: SqliteDatabase, pages: int) -> None:
    await ours.run(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchone())
