"""A process of its own that forwards: `python -m tests.server.core.forward_child FOLDER PORT [DIE_AT [after]]`. With
DIE_AT it kills itself right before, or after, that transaction is committed."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from interlock.server.core.audit_sinks.forwarder import ForwarderOptions, Forwarders
from interlock.server.core.database.interface import Connection
from interlock.server.core.database.sqlite import SqliteDatabase
from interlock.storage.sqlite.log import SqliteLog

from .forwarded import ENVIRON, render, webhook

T = TypeVar("T")


class Dying(SqliteDatabase):
    def __init__(self, path: Path, die_at: int, after: bool) -> None:
        super().__init__(path)
        self._left = die_at
        self._after = after

    def run_now(self, change: Callable[[Connection], T]) -> T:
        self._left -= 1
        if self._left == 0 and not self._after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = super().run_now(change)
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


async def main(folder: Path, port: int, die_at: int, after: bool) -> None:
    log, db = SqliteLog(folder / "runs.db"), Dying(folder / "server.db", die_at, after)
    pace = ForwarderOptions(batch_events=5, first_wait_seconds=0.01, max_wait_seconds=0.05)
    forwarders = Forwarders(log, db, [webhook(port)], {"interlock": render}, environ=ENVIRON, options=pace)
    forwarders.start()
    asked_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_stop.set)
    await asked_to_stop.wait()
    await forwarders.stop()
    db.close()
    await log.close()


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[2:4]]
    asyncio.run(main(Path(sys.argv[1]), numbers[0], numbers[1] if len(numbers) > 1 else 0, "after" in sys.argv))
