"""Background tasks of a served agent survive a restart of the server, and end with their run."""

from collections.abc import Generator
from pathlib import Path

import pytest

from interlock import Agent, LocalTools, SqliteLog
from interlock.domain.event import CallObserved
from tests.runs.support import calls, facts
from tests.sandbox.tasks.runs import find_supervisors, no_supervisor, task_folder

from .serving import ASK_CHANGE, World, approve, asked, create, scripted, serving, status


@pytest.fixture
def folder(tmp_path: Path) -> Generator[Path]:
    (tmp_path / "workspace").mkdir()
    with task_folder(tmp_path / "state"):
        yield tmp_path


def make_agent(folder: Path, world: World) -> Agent:
    """Start a task, ask a person, and look at the task."""
    turns = (
        calls(("c1", "bash", {"command": "sleep 1000", "background": True})),
        calls(("c2", "change", {"what": "x"})),
        calls(("c3", "list_tasks", {})),
        "Done.",
    )
    return scripted("one", *turns, tools=[*LocalTools(folder / "workspace"), world.change], policy=ASK_CHANGE)


async def test_a_task_survives_a_restart_of_the_server(folder: Path) -> None:
    world = World()
    async with SqliteLog(folder / "runs.db") as log:
        async with serving(folder, make_agent(folder, world), log=log) as service:
            run_id = await create(service, "one")
            await asked(service, run_id)
        (identity,) = find_supervisors(folder / "state")
        async with serving(folder, make_agent(folder, world), log=log) as service:
            await approve(service, (await asked(service, run_id))[0])
            await status(service, run_id, "COMPLETED")
            seen = [fact.observation for fact in await facts(log, run_id) if isinstance(fact, CallObserved)]
        await no_supervisor(folder / "state")

    (task,) = seen[-1].facts["tasks"]
    assert (task["status"], task["supervisor"]) == ("running", identity.ref)
