"""A process that holds a run in a log in Postgres: `python -m tests.storage.cut_off_process URL SCHEMA`.

It says "held", waits for a line on its standard input, appends, and says what became of that.
"""

import asyncio
import sys

from interlock.domain.errors import LogFencedError
from interlock.storage import PostgresLog

from .runs import append, chained

LEASE_SECONDS = 3.0


async def hold(url: str, schema: str) -> None:
    run = chained("run", 2)
    async with PostgresLog(url, schema=schema, lease_seconds=LEASE_SECONDS, patience_seconds=60) as log:
        lease = await log.acquire("run")
        await append(log, "run", run[:1], lease)
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        try:
            await append(log, "run", run[1:], lease)
        except LogFencedError:
            print("fenced", flush=True)
        else:
            print("written", flush=True)


if __name__ == "__main__":
    asyncio.run(hold(*sys.argv[1:]))
