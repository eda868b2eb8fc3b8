"""A replica that is killed: it makes runs and approves what they ask, and workers of other processes continue them.

    python -m tests.server.core.killed_replica URL SCHEMA FOLDER COUNT

All replicas make the same runs, by their keys. Whoever kills one starts it again in the same way.
"""

import asyncio
import os
import sys
from pathlib import Path

from interlock.engine.postgres import PostgresEngine
from interlock.server.core.database.postgres import PostgresDatabase
from interlock.server.core.runs.served_agent import ServedAgent
from interlock.server.core.service import Service
from interlock.server.core.settings import ServerSettings
from interlock.storage.postgres.artifacts import PostgresArtifacts
from interlock.storage.postgres.log import PostgresLog

from .killed_server import approve_all, is_done, make_all, payer, written
from .serving import KEYS


async def _serve(url: str, schema: str, folder: Path, count: int) -> None:
    state = folder / f"state-{os.getpid()}"
    state.mkdir()
    database = PostgresDatabase(url, schema, 2)
    async with PostgresLog(url, schema=schema, lease_seconds=3) as log:
        service = Service(
            ServerSettings(),
            [ServedAgent(agent=payer())],
            log=log,
            artifacts=PostgresArtifacts(url, schema=schema),
            state_folder=state,
            database=database,
            environ=KEYS,
            engine=PostgresEngine(log),
            is_worker=False,
        )
        async with service:
            print("ready", flush=True)
            approving = asyncio.create_task(approve_all(service))
            await make_all(service, count)
            while not await is_done(service, count):
                await written(service)
            approving.cancel()
            await asyncio.gather(approving, return_exceptions=True)
            print("done", flush=True)
    database.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
