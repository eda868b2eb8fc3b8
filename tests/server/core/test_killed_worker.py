"""A server is killed in the middle of many runs with approvals: after the next start nothing is lost or run twice."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from interlock import SqliteLog, verify
from interlock.domain.event import ApprovalGranted, CallObserved, RunCompleted
from interlock.server.core.index.rows import ActionQuery, ActionRow, RunQuery, RunRow
from interlock.server.core.index.run_index import RunIndex
from tests.patience import HANG_SECONDS
from tests.runs.support import facts
from tests.soak.budget import Budget

from .killed_server import effects_in

ROOT = Path(__file__).parents[3]


class Life:
    """One process of the server, until it ends by itself or is killed after so many lines."""

    def __init__(self, folder: Path, runs: int) -> None:
        self.said: list[str] = []
        words = [sys.executable, "-m", "tests.server.core.killed_server", str(folder), str(runs)]
        self._process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def live(self, until: int | None = None) -> int:
        """The exit code."""
        assert self._process.stdout
        with self._process:
            try:
                for line in self._process.stdout:
                    self.said.append(line.strip())
                    if until is not None and len(self.said) >= until:
                        break
                else:
                    return self._process.wait(HANG_SECONDS)
            finally:
                self._process.kill()
        return self._process.returncode


async def check(folder: Path, runs: int, said: list[str]) -> None:
    """What the log, the effects and the index say after the last life."""
    approved = {line.split()[2] for line in said if line.startswith("approved")}
    effects = Counter(effects_in(folder))
    async with SqliteLog(folder / "runs.db") as log:
        known = await log.run_ids()
        assert len(known) == runs
        assert {line.split()[1] for line in said if line.startswith("made")} <= set(known)
        granted: set[str] = set()
        for run_id in known:
            assert verify(await log.read(run_id), run_id).ok
            told = await facts(log, run_id)
            granted |= {fact.action_id for fact in told if isinstance(fact, ApprovalGranted)}
            outcomes = [fact.observation for fact in told if isinstance(fact, CallObserved)]
            paid = next(each for each in outcomes if each.tool == "pay")
            unknown = paid.failure is not None and paid.failure.code == "outcome_unknown"
            assert isinstance(told[-1], RunCompleted)
            assert paid.ok or unknown
            done = effects[f"{run_id}:{paid.call_id}"]
            assert done == 1 or (unknown and done == 0)
        assert approved <= granted
        assert await _rows(folder / "state" / "index.db", log) == await _rows(folder / "anew.db", log)
    assert max(effects.values()) == 1


async def _rows(path: Path, log: SqliteLog) -> tuple[list[RunRow], list[ActionRow]]:
    index = RunIndex(path, log)
    try:
        runs = await index.list_runs(RunQuery(include_child_runs=True, limit=1_000))
        return list(runs.rows), list((await index.list_actions(ActionQuery(limit=1_000))).rows)
    finally:
        await index.close()


def test_a_server_is_killed_during_many_runs_and_nothing_is_lost_or_run_twice(tmp_path: Path) -> None:
    runs, said = 80, list[str]()
    for lines in (88, 104):
        life = Life(tmp_path, runs)
        assert life.live(until=lines) == -signal.SIGKILL
        said += life.said

    last = Life(tmp_path, runs)
    assert last.live() == 0
    assert last.said[-1] == "done"
    asyncio.run(check(tmp_path, runs, [*said, *last.said]))


@pytest.mark.soak
def test_a_server_is_killed_again_and_again_at_any_moment(tmp_path: Path, budget: Budget) -> None:
    for seed in budget.rounds():
        (tmp_path / str(seed)).mkdir()
        kill_often(tmp_path / str(seed), Random(seed))


def kill_often(folder: Path, random: Random) -> None:
    runs, said, code = 20, list[str](), -signal.SIGKILL
    while code == -signal.SIGKILL:
        life = Life(folder, runs)
        code = life.live(until=random.randrange(10, 60))
        said += life.said

    assert code == 0
    asyncio.run(check(folder, runs, said))
