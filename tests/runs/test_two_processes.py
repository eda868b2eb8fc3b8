"""Several processes and one run: one of them moves it on, the others can answer and stop it, and a dead one is followed
at once."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from interlock import Answer, MemoryArtifacts
from interlock.domain.errors import DecisionConflictError, RunClaimedError
from interlock.runs.inbox import Inbox
from interlock.runs.runner import Runner
from tests.crash.points import Points
from tests.crash.scripted import World
from tests.logs import open_log, wait_until_free
from tests.patience import HANG_SECONDS
from tests.sandbox.ordinary_user import pytest_as_ordinary_user

from .moving import holding
from .story import EFFECTS, LOG, RUN_ID

ROOT = Path(__file__).parents[2]


class Holder:
    """Another process that moves the run on, in the middle of an effect."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.runs.moving", str(folder)],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.heard() == "held"

    def heard(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def release(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.kill()
        self.process.wait(HANG_SECONDS)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def holder(tmp_path: Path, log_backend: str) -> Iterator[Holder]:
    holder = Holder(tmp_path)
    yield holder
    holder.close()


@asynccontextmanager
async def runner_in(folder: Path) -> AsyncGenerator[Runner]:
    async with open_log(folder / LOG) as log, Runner(holding(World(folder, Points()), waits=False), log=log) as runner:
        yield runner


def effects_in(folder: Path) -> list[str]:
    return (folder / EFFECTS).read_text().split()


async def answer_and_finish(runner: Runner, action_id: str) -> None:
    handle = await runner.open(RUN_ID)
    await handle.result()
    await handle.decide(action_id, approved=True)
    await handle.resume()
    result = await handle.result()
    assert (result.status, result.text) == ("COMPLETED", "Done.")
    assert [seen.code for seen in result.observations] == ["outcome_unknown", "ok", "ok"]


@pytest.mark.requirement("D15", "P07")
async def test_a_run_belongs_to_one_living_process_and_is_followed_at_once_when_that_is_killed(
    holder: Holder, tmp_path: Path
) -> None:
    async with runner_in(tmp_path) as runner:
        with pytest.raises(RunClaimedError, match="which is running"):
            await runner.open(RUN_ID)
        assert await runner.recover() == []

        os.kill(holder.process.pid, signal.SIGKILL)
        holder.process.wait(HANG_SECONDS)
        await wait_until_free(runner.log, RUN_ID)
        (question,) = await runner.inbox.pending(RUN_ID)
        await answer_and_finish(runner, question.action_id)

    assert effects_in(tmp_path) == ["hold-1", "change-1", "send-1"]


async def test_a_process_that_was_asleep_while_its_run_was_taken_can_do_nothing_more(
    holder: Holder, tmp_path: Path
) -> None:
    os.kill(holder.process.pid, signal.SIGSTOP)
    async with runner_in(tmp_path) as runner:
        with pytest.raises(RunClaimedError, match="which is running"):
            await runner.open(RUN_ID)
        handle = await runner.open(RUN_ID, force=True)
        (question,) = (await handle.result()).questions
        await answer_and_finish(runner, question.action_id)

        holder.release()
        os.kill(holder.process.pid, signal.SIGCONT)

        assert holder.heard() == "fenced"
        assert effects_in(tmp_path) == ["hold-1", "change-1", "send-1"]
        audit = [entry.seq for entry in await runner.log.read(RUN_ID)]
        assert audit == list(range(len(audit)))


async def test_another_process_answers_while_the_run_is_moved_on(holder: Holder, tmp_path: Path) -> None:
    async with open_log(tmp_path / LOG) as log:
        desk = Inbox(log, MemoryArtifacts())
        (question,) = await desk.pending(RUN_ID)

        delivery = await desk.deliver(RUN_ID, question.action_id, Answer(approved=True, by="ann"))
        assert delivery in ("queued", "recorded")  # the other process may be quick
        with pytest.raises(DecisionConflictError, match="approved, by ann"):
            await desk.deliver(RUN_ID, question.action_id, Answer(approved=False, by="bob"))
        await desk.close()
    holder.release()

    assert holder.heard() == "COMPLETED"
    assert sorted(effects_in(tmp_path)) == ["change-1", "hold-1", "send-1"]


async def test_another_process_cancels_a_run_that_is_moved_on(holder: Holder, tmp_path: Path) -> None:
    async with open_log(tmp_path / LOG) as log:
        desk = Inbox(log, MemoryArtifacts())

        assert await desk.cancel(RUN_ID, "Enough.") in ("queued", "recorded")  # the other process may be quick

        assert holder.heard() == "FAILED"
        assert (await desk.load_ledger(RUN_ID)).message == "Enough."
        await desk.close()
    assert effects_in(tmp_path) == ["hold-1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="this suite is run by an ordinary user already")
def test_all_of_this_holds_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user("tests/runs/test_two_processes.py")
