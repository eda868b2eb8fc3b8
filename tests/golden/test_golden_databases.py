"""Files of every released schema are upgraded, and keep what they have."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from interlock import LogEntry, SqliteLog, verify
from interlock.storage.sqlite.database import MIGRATIONS, SCHEMA_VERSION

#: The number of events in each file, and the last hash.
LAST = (86, "b4884acbf69c63ff613c007bb1adcefd0156ea35976042c120e5ff194845d8a7")
DATABASES = sorted((Path(__file__).parent / "databases").glob("schema-*.db"))


def test_every_schema_has_its_file() -> None:
    assert [path.stem for path in DATABASES] == [f"schema-{number}" for number in range(1, SCHEMA_VERSION + 1)]


def test_migrations_are_numbered_from_one() -> None:
    assert [path.name[:5] for path in MIGRATIONS] == [f"{number:04}_" for number in range(1, SCHEMA_VERSION + 1)]


def test_the_wheel_has_the_sql_files() -> None:
    builder = WheelBuilder(str(Path(__file__).parents[2]))
    shipped = {file.distribution_path for file in builder.recurse_included_files()}

    assert {f"interlock/storage/sqlite/migrations/{path.name}" for path in MIGRATIONS} < shipped
    assert {f"interlock/storage/{name}" for name in ("sqlite/queries.sql", "event_dictionary.txt")} < shipped


@pytest.mark.parametrize("golden", DATABASES, ids=lambda path: path.stem)
@pytest.mark.requirement("P31")
def test_an_older_file_is_upgraded(golden: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(golden, tmp_path))

    entries = asyncio.run(upgrade(path))

    assert (len(entries), entries[-1].hash.hex()) == LAST
    assert verify(entries, entries[0].run_id).ok
    asyncio.run(SqliteLog(tmp_path / "new").close())
    assert describe(path) == describe(tmp_path / "new")


@pytest.mark.parametrize("golden", DATABASES, ids=lambda path: path.stem)
def test_an_older_file_is_packed(golden: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(golden, tmp_path))
    before = asyncio.run(upgrade(path))

    assert asyncio.run(upgrade(path, packs=True)) == before


async def upgrade(path: Path, *, packs: bool = False) -> list[LogEntry]:
    async with SqliteLog(path) as log:
        if packs:
            async for _ in log.pack_old_events():
                pass
            assert await log.count_old_events() == 0
        return [entry for run_id in await log.run_ids() for entry in await log.read(run_id)]


def describe(path: Path) -> tuple[int, list[str]]:
    """Return the version and the tables."""
    with closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    return version, [" ".join(sql.split()) for (sql,) in found]
