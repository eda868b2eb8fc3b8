"""Background tasks that a run left behind: `interlock doctor` shows them, `interlock runs cancel` ends them."""

import asyncio
import json
from collections.abc import Generator
from pathlib import Path

import pytest

from interlock.cli.config.user_paths import UserPaths
from tests.sandbox.tasks.runs import find_supervisors, open_run, task_folder

from .conftest import Run


@pytest.fixture
def left(places: UserPaths, tmp_path: Path) -> Generator[Path]:
    """Return the folder of a run that no process drives, and that left a task."""

    async def leave() -> None:
        async with open_run(tmp_path, task_folder=places.tasks) as run:
            await run.start("sleep 1000")

    assert places.state is not None
    with task_folder(places.state):
        asyncio.run(leave())
        yield tmp_path


def test_doctor_shows_running_tasks(left: Path, places: UserPaths, cli: Run) -> None:
    assert places.state is not None
    (identity,) = find_supervisors(places.state)

    (found,) = json.loads(cli("doctor", "--json").stdout)["supervisors"]
    lines = cli("doctor").stdout.splitlines()

    assert (found["workspace"], found["pid"]) == (str(left / "workspace"), identity.pid)
    assert [task["run_id"] for task in found["tasks"]] == ["run_tasks"]
    assert f"background tasks in {left / 'workspace'} (`kill {identity.pid}` ends them):" in lines
    assert "`interlock runs cancel run_tasks` ends the run and its tasks" in lines[-1]


def test_a_cancelled_run_leaves_no_tasks(left: Path, places: UserPaths, cli: Run) -> None:
    cancelled = cli("runs", "cancel", "run_tasks", "--log", left / "log.db")

    assert cancelled.exit_code == 0, cancelled.output
    assert places.tasks is not None
    assert not list(places.tasks.glob("*/task_*"))
