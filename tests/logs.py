"""The log of a test: a file, or a schema in Postgres. Processes that a test starts find the same one.

A test that uses the fixture `log_backend` runs with each of them.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from interlock import EventLog, SqliteLog

if TYPE_CHECKING:
    from interlock.storage import PostgresLog
    from tests.postgres.server import PostgresServer

StoredLog: TypeAlias = "SqliteLog | PostgresLog"

#: Beside the place of the log: which database has it.
_DATABASE = ".postgres"
#: A killed process is followed after this, and a busy machine delays heartbeats.
_LEASE_SECONDS = 4.0


def keep_in_postgres(folder: Path, server: "PostgresServer") -> None:
    """Let `open_log` open an empty log in Postgres for the paths in this folder."""
    (folder / _DATABASE).write_text(f"{server.worker_url}\n{server.empty_schema()}")


def open_log(path: str | Path) -> StoredLog:
    database = Path(path).parent / _DATABASE
    if not database.exists():
        return SqliteLog(path)
    url, schema = database.read_text().split()
    log: PostgresLog = import_module("interlock.storage.postgres.log").PostgresLog(
        url, schema=schema, lease_seconds=_LEASE_SECONDS
    )
    return log


async def wait_until_free(log: EventLog, run_id: str) -> None:
    """Wait until the process that had a run is known to be gone: at once in a file, after its lease in Postgres."""
    while await log.lease_holder(run_id):
        await log.wait_for_change(log.version(), 0.1)
