"""A process that cancels a run, and is killed before it releases it: `python -m ...killed_canceller URL SCHEMA RUN`."""

import asyncio
import os
import signal
import sys

from interlock import Inbox
from interlock.storage import PostgresLog
from interlock.storage.event_log import Lease


class KilledLog(PostgresLog):
    """Its process dies when a lease is to be released."""

    async def release(self, lease: Lease) -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        return await super().release(lease)


async def cancel(url: str, schema: str, run_id: str) -> None:
    async with KilledLog(url, schema=schema) as log, Inbox(log) as inbox:
        await inbox.cancel(run_id, "Not this way.")


if __name__ == "__main__":
    asyncio.run(cancel(*sys.argv[1:]))
