"""Servers and a worker on one log in Postgres, each a process of its own."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.postgres.server import PostgresServer
from tests.server.story.agents import LEDGER
from tests.server.story.process import AGENT, Served, environ_in, serving

_COMMAND = [sys.executable, "-c", "from interlock.cli.main import main; main()"]


@contextmanager
def cluster(postgres: PostgresServer, folder: Path) -> Generator[tuple[Served, Served]]:
    """Two servers with `--no-worker`, where the same people have accounts, and one worker."""
    schema = postgres.new_schema()
    variables = {"INTERLOCK_DATABASE_URL": postgres.worker_url, LEDGER: str(folder / "ledger")}
    with ExitStack() as stack:
        served: list[Served] = []
        for name in ("first", "second"):
            (folder / name).mkdir()
            options = ("--log", f"postgres:{schema}", "--no-worker")
            served.append(stack.enter_context(serving(folder / name, options=options, variables=variables)))
            served[-1].settle()
        words = [*_COMMAND, "worker", "--agent", AGENT, "--database-schema", schema]
        worker = stack.enter_context(
            subprocess.Popen(words, env=environ_in(folder) | variables, cwd=folder, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(worker.kill)
        assert worker.stdout
        assert worker.stdout.readline().startswith("Worker ")
        yield served[0], served[1]
