"""The steps of `docs/workers.md`, from an empty database to a killed worker, with the second host in a namespace."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, LiteralString, cast

import pytest

from interlock.domain.event import CallObserved, InvocationStarted
from interlock.storage.postgres.log import PostgresLog
from tests.patience import HANG_SECONDS
from tests.postgres.network import Host
from tests.postgres.server import PostgresServer
from tests.runs.support import facts

from .workers import ROOT, wait_until_over

PAGE = (ROOT / "docs" / "workers.md").read_text()
COMMAND = (sys.executable, "-c", "from interlock.cli.main import main; main()")


def read_block(language: str) -> str:
    return PAGE.partition(f"```{language}\n")[2].partition("```")[0]


class Reader:
    """Someone who follows the page on two hosts: this one, and one in a namespace."""

    def __init__(self, folder: Path, url: str, far: Host) -> None:
        self._folder, self._far = folder, far
        self._environ = os.environ | {"INTERLOCK_DATABASE_URL": url, "HOME": str(folder)}

    def start(self, *words: str, is_far: bool = False, **options: Any) -> "subprocess.Popen[str]":
        place = ("ip", "netns", "exec", self._far.name) if is_far else ()
        return subprocess.Popen([*place, *words], cwd=self._folder, env=self._environ, text=True, **options)

    def run(self, *words: str, is_far: bool = False) -> str:
        with self.start(*words, is_far=is_far, stdout=subprocess.PIPE) as process:
            printed, _ = process.communicate(timeout=HANG_SECONDS)
        assert process.returncode == 0
        return printed


@pytest.fixture
def server(host: Host) -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        yield server.start_for(host.server_address)
    finally:
        server.close()


async def test_the_page_leads_to_two_hosts(server: PostgresServer, host: Host, tmp_path: Path) -> None:
    for statement in read_block("sql").strip().split(";\n"):
        server.execute(cast(LiteralString, statement))
    # The reader has as much time as it takes to kill the worker.
    (tmp_path / "office.py").write_text(read_block("python").replace("time.sleep(10)", f"time.sleep({HANG_SECONDS})"))
    url = f"postgresql://interlock:change-me@{host.server_address}/runs"
    reader = Reader(tmp_path, url, host)
    reader.run(*COMMAND, "database", "migrate")
    with ExitStack() as stack:
        for is_far in (False, True):
            command = (*COMMAND, "worker", "--agent", "office:clerk")
            worker = stack.enter_context(reader.start(*command, is_far=is_far, stdout=subprocess.PIPE))
            stack.callback(worker.kill)
            assert worker.stdout
            assert "serves clerk on default" in worker.stdout.readline()
        async with PostgresLog(url) as log:
            run_id = reader.run(sys.executable, "office.py").strip()
            while "ApprovalRequested" not in [type(fact).__name__ for fact in await facts(log, run_id)]:
                await log.wait_for_change(log.version(), 0.2)
            (question,) = json.loads(reader.run(*COMMAND, "approvals", "list", "--log", "postgres:", "--json"))
            approved = reader.run(
                *COMMAND, "approvals", "approve", question["action_id"], "--log", "postgres:", is_far=True
            )
            assert "A worker continues run" in approved
            while not any(isinstance(fact, InvocationStarted) for fact in await facts(log, run_id)):
                await log.wait_for_change(log.version(), 0.2)
            holder = re.search(
                r"running, in process (\d+) on", reader.run(*COMMAND, "runs", "show", "last", "--log", "postgres:")
            )
            assert holder
            os.kill(int(holder[1]), signal.SIGKILL)
            async with asyncio.timeout(HANG_SECONDS):
                assert await wait_until_over(log, run_id) == "completed"
            written = await facts(log, run_id)

    assert len([fact for fact in written if isinstance(fact, InvocationStarted)]) == 1
    assert [fact.observation.code for fact in written if isinstance(fact, CallObserved)] == ["outcome_unknown"]
