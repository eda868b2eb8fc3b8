"""The log of a test, and the database of its server: files, or a schema in Postgres. Processes that a test starts find
the same ones.

A test that uses the fixture `log_backend` or `database_backend` runs with each of them.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from interlock import EventLog, SqliteLog
from interlock.server.core.database.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from interlock.server.core.database.interface import Database
    from interlock.storage import PostgresLog
    from tests.postgres.server import PostgresServer

StoredLog: TypeAlias = "SqliteLog | PostgresLog"

#: Beside the place of the log: which database has it.
_DATABASE = ".postgres"
#: A killed process is followed after this, and a busy machine delays heartbeats.
_LEASE_SECONDS = 4.0


def keep_in_postgres(folder: Path, server: "PostgresServer", url: str = "") -> None:
    """Let `open_log` and `open_database` open an empty schema in Postgres for the paths in this folder."""
    (folder / _DATABASE).write_text(f"{url or server.worker_url}\n{server.empty_schema()}")


def find_postgres(path: str | Path) -> tuple[str, str] | None:
    """The URL and the schema of what would else be at this path; None: it is a file."""
    database = Path(path).parent / _DATABASE
    if not database.exists():
        return None
    url, schema = database.read_text().split()
    return url, schema


def open_database(path: str | Path) -> "Database":
    """The database of a server."""
    found = find_postgres(path)
    if found is None:
        return SqliteDatabase(path)
    database: Database = import_module("interlock.server.core.database.postgres").PostgresDatabase(*found)
    return database


def open_log(path: str | Path) -> StoredLog:
    found = find_postgres(path)
    if found is None:
        return SqliteLog(path)
    url, schema = found
    log: PostgresLog = import_module("interlock.storage.postgres.log").PostgresLog(
        url, schema=schema, lease_seconds=_LEASE_SECONDS
    )
    return log


async def wait_until_free(log: EventLog, run_id: str) -> None:
    """Wait until the process that had a run is known to be gone: at once in a file, after its lease in Postgres."""
    while await log.lease_holder(run_id):
        await log.wait_for_change(log.version(), 0.1)
