"""Servers and a worker on one log in Postgres, each a process of its own."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.postgres.server import PostgresServer
from tests.server.core.serving import KEYS
from tests.server.story.agents import LEDGER
from tests.server.story.process import AGENT, Served, environ_in, serving

_COMMAND = [sys.executable, "-c", "from interlock.cli.main import main; main()"]


@contextmanager
def cluster(postgres: PostgresServer, folder: Path) -> Generator[tuple[Served, Served]]:
    """Two servers with `--no-worker`, which share accounts and keys, and one worker."""
    schema = postgres.new_schema()
    ledger = {LEDGER: str(folder / "ledger")}
    variables = {"INTERLOCK_DATABASE_URL": postgres.server_url, **KEYS, **ledger}
    with ExitStack() as stack:
        served: list[Served] = []
        for name in ("first", "second"):
            (folder / name).mkdir()
            options = ("--log", f"postgres:{schema}", "--no-worker")
            served.append(stack.enter_context(serving(folder / name, options=options, variables=variables)))
        served[0].settle()
        served[1].key = served[0].key
        words = [*_COMMAND, "worker", "--agent", AGENT, "--database-schema", schema]
        environ = environ_in(folder) | ledger | {"INTERLOCK_DATABASE_URL": postgres.worker_url}
        worker = stack.enter_context(
            subprocess.Popen(words, env=environ, cwd=folder, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(worker.kill)
        assert worker.stdout
        assert worker.stdout.readline().startswith("Worker ")
        yield served[0], served[1]
