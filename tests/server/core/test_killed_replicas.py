"""Two replicas and two workers on Postgres, each killed in turn: nothing is lost, stuck, or executed twice."""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock import verify
from interlock.domain.event import ApprovalGranted, CallObserved, RunCompleted
from tests.patience import HANG_SECONDS
from tests.postgres.server import PostgresServer
from tests.runs.support import facts

from .killed_server import effects_in

ROOT = Path(__file__).parents[3]


class Cluster:
    """The processes of one log. Each is started again when it was killed."""

    def __init__(self, server: PostgresServer, folder: Path, runs: int) -> None:
        self.schema = server.new_schema()
        self.said: list[str] = []
        program = ["-m", "tests.server.core.killed_replica", server.server_url, self.schema, str(folder), str(runs)]
        worker = ["-c", "from interlock.cli.main import main; main()", "worker", "--agent"]
        worker += ["tests.server.core.killed_server:payer", "--database-schema", self.schema, "--lease", "3"]
        self._programs = {"first": program, "second": program, "one": worker, "two": worker}
        self._environ = os.environ | {
            "PAYER_FOLDER": str(folder),
            "HOME": str(folder),
            "INTERLOCK_DATABASE_URL": server.worker_url,
        }
        self._processes: dict[str, subprocess.Popen[str]] = {}

    @contextmanager
    def running(self) -> Generator[None]:
        with ExitStack() as stack:
            stack.callback(self._end)
            for name in self._programs:
                self._start(name)
            yield

    def kill(self, name: str) -> None:
        """Kill a process in the middle of its work, and start it again."""
        process = self._processes[name]
        process.kill()
        self._read_rest(process)
        self._start(name)

    def read(self, name: str, count: int) -> None:
        """Wait until a replica has printed so many lines, or is done."""
        stdout = self._processes[name].stdout
        assert stdout
        for _ in range(count):
            line = stdout.readline()
            self.said.append(line.strip())
            if not line or line == "done\n":
                return

    def finish(self) -> None:
        for name in ("first", "second"):
            process = self._processes[name]
            self._read_rest(process)
            assert process.returncode == 0
        assert self.said.count("done") >= 2

    def _start(self, name: str) -> None:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "cwd": ROOT, "env": self._environ}
        self._processes[name] = subprocess.Popen([sys.executable, *self._programs[name]], **pipes)

    def _read_rest(self, process: "subprocess.Popen[str]") -> None:
        printed, _ = process.communicate(timeout=HANG_SECONDS * 4)
        self.said += printed.splitlines()

    def _end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.communicate()


async def check(server: PostgresServer, cluster: Cluster, folder: Path, runs: int) -> None:
    approved = {line.split()[2] for line in cluster.said if line.startswith("approved")}
    effects, granted = Counter(effects_in(folder)), set[str]()
    async with server.open_log(cluster.schema) as log:
        known = await log.run_ids()
        assert len(known) == runs
        for run_id in known:
            assert verify(await log.read(run_id), run_id).ok
            told = await facts(log, run_id)
            assert isinstance(told[-1], RunCompleted)
            granted |= {fact.action_id for fact in told if isinstance(fact, ApprovalGranted)}
            paid = next(
                fact.observation for fact in told if isinstance(fact, CallObserved) and fact.observation.tool == "pay"
            )
            done = effects[f"{run_id}:{paid.call_id}"]
            assert done == 1 if paid.ok else (paid.code, done) in {("outcome_unknown", 0), ("outcome_unknown", 1)}
        assert not await log.lease_holders()
    assert approved <= granted
    assert max(effects.values()) == 1


def kill_each(server: PostgresServer, folder: Path, runs: int, lines: int) -> None:
    cluster = Cluster(server, folder, runs)
    with cluster.running():
        for replica, doomed in (("first", "one"), ("second", "first"), ("first", "two"), ("second", "second")):
            cluster.read(replica, lines)
            cluster.kill(doomed)
        cluster.finish()
    asyncio.run(check(server, cluster, folder, runs))


def test_replicas_and_workers_are_killed_in_turn(postgres: PostgresServer, tmp_path: Path) -> None:
    kill_each(postgres, tmp_path, runs=24, lines=6)


@pytest.mark.soak
def test_replicas_and_workers_of_many_runs_are_killed_in_turn(postgres: PostgresServer, tmp_path: Path) -> None:
    kill_each(postgres, tmp_path, runs=200, lines=50)
