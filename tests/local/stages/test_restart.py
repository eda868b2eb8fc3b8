"""A run that another process goes on with: what it knows of files, tasks, questions, and of a command cut off."""

import os
import select
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock import FileArtifacts, LocalTools, SqliteLog, ToolRuntime
from interlock.domain.event import InvocationStarted
from tests.patience import HANG_SECONDS
from tests.sandbox.ordinary_user import ROOT
from tests.support import call, facts

from .killed_process import RUN_ID, runtime_in
from .runs import OPEN, QUICK, LocalRun, soon, text_of
from .signals import Pipe, ended

pytestmark = pytest.mark.usefixtures("confined")
EDIT = {"path": "notes.txt", "old_string": "two", "new_string": "2"}


class Store:
    """The log and the artifacts of a run, and one process after another that works on it."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        folder.mkdir()
        self._calls = 1

    @asynccontextmanager
    async def process(self, **options: Any) -> AsyncGenerator[LocalRun]:
        log = SqliteLog(self.folder / "log.db")
        box = LocalTools(self.root, limits=QUICK)
        given: dict[str, Any] = {"mode": "trusted", "run_id": "run_1", **options}
        runtime = ToolRuntime(tools=box, log=log, artifacts=FileArtifacts(self.folder / "artifacts"), **given)
        yield LocalRun(self.root, box, runtime, self._calls)
        self._calls += 100
        await runtime.close()
        await log.close()


@pytest.fixture
def store(root: Path, tmp_path: Path) -> Store:
    return Store(root, tmp_path / "state")


@pytest.mark.requirement("R272")
async def test_a_file_that_was_read_before_the_restart_can_be_edited_after_it(root: Path, store: Store) -> None:
    async with store.process() as run:
        await run.do("read_file", path="notes.txt")
    async with store.process() as run:
        shown = await run.do("read_file", path="notes.txt")
        edited = await run.do("edit_file", **EDIT)
        audit = await run.runtime.verify()

    assert (edited.ok, (root / "notes.txt").read_text()) == (True, "one\n2\nthree\n")
    assert shown.facts["code"] == "file_unchanged"
    assert audit.ok


@pytest.mark.requirement("R204")
async def test_a_file_that_changed_between_two_processes_is_stale(root: Path, store: Store) -> None:
    async with store.process() as run:
        await run.do("read_file", path="notes.txt")
    (root / "notes.txt").write_text("one\ntwo\nTHREE\n")
    async with store.process() as run:
        stale = await run.do("edit_file", **EDIT)

    assert (stale.code, (root / "notes.txt").read_text()) == ("stale_file_baseline", "one\ntwo\nTHREE\n")


@pytest.mark.requirement("R202")
async def test_what_another_run_has_read_is_not_known_to_this_one(store: Store) -> None:
    async with store.process() as run:
        await run.do("read_file", path="notes.txt")
    async with store.process(run_id="run_2") as run:
        refused = await run.do("edit_file", **EDIT)

    assert refused.code == "runtime_precondition_failed"


@pytest.mark.requirement("R226")
async def test_a_task_of_a_process_that_is_gone_is_unknown_and_never_running(
    root: Path, store: Store, pipe: Callable[[str], Pipe]
) -> None:
    begun = pipe("begun")

    async with store.process() as run:
        cut_off = (await run.bash("echo x > begun; sleep 60", background=True)).facts["task"]["id"]
        seen = (await run.bash("echo said; exit 5", background=True)).facts["task"]["id"]
        await run.do("wait_task", task_id=seen)
        await begun.received()
    async with store.process() as run:
        listed = await run.do("list_tasks")
        waited = await run.do("wait_task", task_id=cut_off)
        stopped = await run.do("stop_task", task_id=cut_off)
        read = await run.do("read_task", task_id=seen)

    status = {task["id"]: task["status"] for task in listed.facts["tasks"]}
    assert status == {cut_off: "unknown", seen: "exited"}
    assert (waited.facts["task"]["status"], stopped.facts["task"]["status"]) == ("unknown", "unknown")
    assert "said" in text_of(read)


@pytest.mark.requirement("R246", "R247")
async def test_an_artifact_of_the_first_process_is_read_by_the_second(store: Store) -> None:
    async with store.process() as run:
        long = await run.bash("seq 1 50000")
    async with store.process() as run:
        text = await run.text_of_artifact(long.artifacts[0].id, offset=0, limit=100)

    assert text.startswith("1\n2\n3\n")


@pytest.mark.requirement("R131", "D15")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("edit_file", EDIT), ("bash", {"command": "sed -i s/two/2/ notes.txt"})],
)
async def test_what_was_asked_before_the_restart_runs_after_it_once_it_is_approved(
    root: Path, store: Store, tool: str, arguments: dict[str, str]
) -> None:
    options: dict[str, Any] = {"mode": "default", "interaction": OPEN}
    async with store.process(**options) as run:
        await run.do("read_file", path="notes.txt")
        asked = await run.propose((tool, arguments))
    before = (root / "notes.txt").read_text()
    async with store.process(**options) as run:
        [question] = await run.runtime.questions()
        await run.runtime.decide(question.action_id, approved=True, by="ada", payload_hash=question.payload_hash)
        [done] = (await soon(run.runtime.resume())).observations
        again = await soon(run.runtime.resume())
        started = await run.facts(InvocationStarted, "c2")

    assert (asked.questions[0].action_id, before) == (question.action_id, "one\ntwo\nthree\n")
    assert (done.call_id, done.ok) == ("c2", True)
    assert (root / "notes.txt").read_text() == "one\n2\nthree\n"
    assert ([fact.action_id for fact in started], again.observations) == ([question.action_id], ())


async def test_an_approved_edit_of_a_file_that_changed_meanwhile_is_not_made(root: Path, store: Store) -> None:
    options: dict[str, Any] = {"mode": "default", "interaction": OPEN}
    async with store.process(**options) as run:
        await run.do("read_file", path="notes.txt")
        await run.propose(("edit_file", EDIT))
    (root / "notes.txt").write_text("mine\ntwo\n")
    async with store.process(**options) as run:
        [question] = await run.runtime.questions()
        await run.runtime.decide(question.action_id, approved=True)
        result = await soon(run.runtime.resume())

    assert [observation.code for observation in result.observations if observation.ok] == []
    assert (root / "notes.txt").read_text() == "mine\ntwo\n"


# A process that is killed.


def kill_while_it_runs(root: Path, state: Path, how: str) -> bytes:
    """What the command said until it was over; it comes back when nothing of it is left."""
    alive = ended(root / "alive")
    words = [sys.executable, "-m", "tests.local.stages.killed_process", str(root), str(state), how]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        said = _read(alive, 20)
        if how == "background":
            assert process.stdout.readline() == b"started\n"
        process.kill()
        process.wait(HANG_SECONDS)
        rest = _read(alive, 20)
    finally:
        process.stdout.close()
        process.kill()
        process.wait(HANG_SECONDS)
        os.close(alive)
    assert rest == b"", "somebody still holds the pipe"
    return said


def _read(pipe: int, seconds: float) -> bytes:
    """What is in it, or nothing when its other end is closed by everybody."""
    readable, _, _ = select.select([pipe], [], [], seconds)
    assert readable, "nothing happened"
    return os.read(pipe, 1_000)


@pytest.mark.requirement("D15", "P07")
async def test_a_command_of_a_process_that_was_killed_has_an_unknown_outcome_and_is_not_run_again(
    root: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    said = kill_while_it_runs(root, state, "foreground")

    log = SqliteLog(state / "log.db")
    async with runtime_in(root, state, log) as runtime:
        [cut_off] = (await soon(runtime.resume())).observations
        [repeated] = (await soon(runtime.execute([call("c2", "bash", command="touch other")]))).observations
        edit = await soon(runtime.execute([call("c3", "edit_file", **EDIT)]))
        starts = [fact for fact in await facts(runtime) if isinstance(fact, InvocationStarted) and fact.call_id == "c2"]
        audit = await runtime.verify()
    await log.close()

    assert (said, RUN_ID) == (b"begun\n", runtime.run_id)
    assert (cut_off.call_id, cut_off.code, cut_off.side_effects) == ("c2", "outcome_unknown", "unknown")
    assert ((root / "ran").read_text(), len(starts)) == ("once\n", 1)
    assert (repeated.code, (root / "other").exists()) == ("call_id_conflict", False)
    assert (edit.observations[0].ok, audit.ok) == (True, True)


@pytest.mark.requirement("R226")
async def test_a_task_of_a_process_that_was_killed_is_gone_and_unknown(root: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    kill_while_it_runs(root, state, "background")

    log = SqliteLog(state / "log.db")
    async with runtime_in(root, state, log) as runtime:
        result = await soon(runtime.execute([call("c3", "list_tasks")]))
    await log.close()

    [task] = result.observations[0].facts["tasks"]
    assert task["status"] == "unknown"
    assert (root / "ran").read_text() == "once\n"
