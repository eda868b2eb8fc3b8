"""A process that cancels a run, and is killed before it releases it: `python -m ... RUN LOG [SCHEMA]`."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from interlock import Inbox
from interlock.storage import PostgresLog, SqliteLog
from interlock.storage.event_log import Lease


class _KilledAtRelease:
    async def release(self, lease: Lease) -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it is dead")


class KilledSqliteLog(_KilledAtRelease, SqliteLog):
    """A log in a file."""


class KilledPostgresLog(_KilledAtRelease, PostgresLog):
    """A log in Postgres."""


async def cancel_and_be_killed(run_id: str, *log: str) -> None:
    """Start the process, and wait for its end."""
    command = (sys.executable, "-m", __name__, run_id, *log)
    process = await asyncio.create_subprocess_exec(*command, cwd=Path(__file__).parents[3])
    assert await process.wait() == -signal.SIGKILL


async def _cancel(run_id: str, log: str, schema: str = "") -> None:
    opened = KilledPostgresLog(log, schema=schema) if schema else KilledSqliteLog(log)
    async with opened, Inbox(opened) as inbox:
        await inbox.cancel(run_id, "Not this way.")


if __name__ == "__main__":
    asyncio.run(_cancel(*sys.argv[1:]))
