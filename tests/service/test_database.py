"""The server's own file: what cannot be used is left alone, in words, and nothing is half written."""

import sqlite3
from pathlib import Path

import pytest

from interlock.domain.errors import ConfigurationError
from interlock.server.core import database
from interlock.server.core.database import DATABASE_VERSION, Database
from interlock.server.core.errors import UnavailableError

TABLES = ("CREATE TABLE IF NOT EXISTS things (name TEXT PRIMARY KEY)",)


def names(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM things")]


def test_a_file_of_a_newer_version_is_not_opened_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "server.db"
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version = {DATABASE_VERSION + 1}")
    newer.close()
    before = path.read_bytes()

    with pytest.raises(ConfigurationError, match=r"newer than 1: use a newer Interlock\. Nothing was changed"):
        Database(path, TABLES)
    assert path.read_bytes() == before


def test_a_file_says_which_version_wrote_it(tmp_path: Path) -> None:
    for _ in range(2):
        made = Database(tmp_path / "server.db", TABLES)
        assert made.run_now(lambda connection: connection.execute("PRAGMA user_version").fetchone()) == (
            DATABASE_VERSION,
        )
        made.close()


async def test_while_another_process_has_the_file_whoever_asks_is_told_and_nothing_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_BUSY_SECONDS", 0.01)
    path = tmp_path / "server.db"
    ours, other = Database(path, TABLES), sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(UnavailableError, match=r"database is locked\. Nothing was changed"):
        await ours.run(lambda connection: connection.execute("INSERT INTO things VALUES ('one')"))
    other.execute("ROLLBACK")
    await ours.run(lambda connection: connection.execute("INSERT INTO things VALUES ('two')"))

    assert await ours.run(names) == ["two"]
    ours.close()
    other.close()


async def test_on_a_full_disk_nothing_is_changed_and_it_goes_on_when_there_is_room(tmp_path: Path) -> None:
    ours = Database(tmp_path / "server.db", TABLES)
    ours.run_now(lambda connection: connection.execute("INSERT INTO things VALUES ('one')"))
    await _limit_pages(ours, 1)

    with pytest.raises(UnavailableError, match=r"full\. Nothing was changed"):
        await ours.run(lambda connection: connection.execute("INSERT INTO things VALUES (?)", ("x" * 100_000,)))
    await _limit_pages(ours, 1_000_000)

    assert await ours.run(names) == ["one"]
    ours.close()


async def test_a_mistake_in_a_statement_is_not_taken_for_a_busy_file(tmp_path: Path) -> None:
    ours = Database(tmp_path / "server.db", TABLES)

    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await ours.run(lambda connection: connection.execute("SELECT * FROM missing"))
    ours.close()


async def _limit_pages(ours: Database, pages: int) -> None:
    await ours.run(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchone())
