"""Workers as processes, and people who answer their runs from another process."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from signal import SIGTERM, Signals
from typing import Any

from interlock import Inbox, Runner
from interlock.storage.postgres.log import PostgresLog
from tests.patience import HANG_SECONDS
from tests.postgres.network import Host
from tests.postgres.server import PostgresServer

from .clerk import clerk, effects_of

ROOT = Path(__file__).parents[2]
LEASE_SECONDS = 3.0


class Worker:
    """A worker that takes jobs."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout
        self.greeting = process.stdout.readline()

    def stop(self, how: Signals = SIGTERM) -> int:
        """The exit code."""
        self.process.send_signal(how)
        return self.process.wait(HANG_SECONDS)


class Office:
    """A log in Postgres, and the folder with the effects of its runs."""

    def __init__(self, server: PostgresServer, folder: Path, lease_seconds: float = LEASE_SECONDS) -> None:
        self.server, self.folder, self.lease_seconds = server, folder, lease_seconds
        self.schema = server.new_schema()

    def worker(self, *options: str, agent: str = "clerk", host: Host | None = None) -> AbstractContextManager[Worker]:
        named = ("--agent", f"tests.engine.clerk:{agent}", "--database-schema", self.schema)
        return self.start("worker", *named, "--lease", str(self.lease_seconds), *options, host=host)

    @contextmanager
    def start(self, *options: str, host: Host | None = None) -> Generator[Worker]:
        words = [
            *([] if host is None else ["ip", "netns", "exec", host.name]),
            sys.executable,
            "-c",
            "from interlock.cli.main import main; main()",
            *options,
        ]
        url = self.server.url if host is None else f"postgresql://postgres@{host.server_address}/postgres"
        environ = os.environ | {"CLERK_FOLDER": str(self.folder), "INTERLOCK_DATABASE_URL": url}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "cwd": ROOT, "env": environ}
        with subprocess.Popen(words, **pipes) as process:
            try:
                yield Worker(process)
            finally:
                process.kill()

    def open_log(self) -> PostgresLog:
        return self.server.open_log(self.schema, lease_seconds=self.lease_seconds)

    async def submit(self, log: PostgresLog, *run_ids: str) -> None:
        async with Runner(clerk(), log=log) as runner:
            for run_id in run_ids:
                assert await runner.submit("Do it.", run_id=run_id) == run_id

    def effects(self) -> list[str]:
        return sorted(effects_of(self.folder))

    def jobs(self) -> list[Any]:
        """The jobs that are left."""
        return self.server.query("SELECT status, args FROM procrastinate_jobs", self.schema)


async def approve(log: PostgresLog, run_id: str) -> None:
    """Wait until the run asks, and approve."""
    async with Inbox(log) as inbox:
        while not (questions := await inbox.pending(run_id)):
            await log.wait_for_change(log.version(), 0.2)
        await inbox.approve(questions[0], by="ana")


async def wait_until_over(log: PostgresLog, run_id: str) -> str:
    """The state in which the run ended."""
    async with Inbox(log) as inbox:
        while not (ledger := await inbox.load_ledger(run_id)).is_over:
            await log.wait_for_change(log.version(), 0.2)
    return ledger.state.value
