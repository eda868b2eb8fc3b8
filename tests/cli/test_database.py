"""`interlock database`: the schema of a log in Postgres."""

import json

from interlock.storage.postgres.migrate import MIGRATIONS, SCHEMA_VERSION
from tests.postgres.server import PostgresServer

from .conftest import Run


async def test_migrate_creates_the_schema_once(cli: Run, postgres: PostgresServer) -> None:
    where = ("--url", postgres.url, "--database-schema", "of_the_command")
    assert "no log; this Interlock uses version" in cli("database", "status", *where).stdout

    first = json.loads(cli("database", "migrate", *where, "--json").stdout)

    assert first["applied"] == [migration.stem for migration in MIGRATIONS]
    assert first["version"] == first["needed_version"] == SCHEMA_VERSION
    assert "nothing to do" in cli("database", "migrate", *where).stdout
    assert f"version {SCHEMA_VERSION}; this" in cli("database", "status", *where).stdout
    await postgres.open_log("of_the_command").close()


def test_unreachable_database_is_one_sentence(cli: Run) -> None:
    result = cli("database", "status", "--url", "postgresql://ann:hunter2@127.0.0.1:1/runs")

    assert (result.exit_code, "cannot open the database runs on 127.0.0.1" in result.stderr) == (2, True)
    assert "hunter2" not in result.stderr
