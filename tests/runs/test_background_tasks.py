"""When a run ends, nothing that it started in the background is left."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from interlock import Agent, LocalTools, MemoryLog, RulePolicy, Runner
from interlock.models.scripted import ScriptedModel, tool_call
from interlock.sandbox.host.process_tree import list_descendants
from tests.patience import eventually
from tests.sandbox.tasks.runs import find_supervisors, no_supervisor, task_folder


@pytest.fixture
def folder(tmp_path: Path) -> Generator[Path]:
    (tmp_path / "workspace").mkdir()
    with task_folder(tmp_path) as folder:
        yield folder


def list_sleepers() -> list[int]:
    """Return the processes of tasks below this one."""
    return [pid for pid in list_descendants(os.getpid()) if "sleep" in read_name(pid)]


def read_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def make_runner(tools: LocalTools, *turns: str, chat: bool = False) -> Runner:
    first = tool_call("bash", command="sleep 1000", background=True)
    model = ScriptedModel([first, *turns])
    return Runner(Agent(provider=model, tools=tools, policy=RulePolicy()), log=MemoryLog(), mode="trusted", chat=chat)


@pytest.mark.parametrize("is_supervised", [True, False])
@pytest.mark.parametrize("end", ["completed", "failed"])
async def test_the_end_of_a_run_stops_its_tasks(folder: Path, is_supervised: bool, end: str) -> None:
    tools = LocalTools(folder / "workspace", task_folder=folder / "tasks" if is_supervised else None)
    async with make_runner(tools, *(["Done."] if end == "completed" else [])) as runner:
        result = await runner.run("Serve it.")

        assert (result.state.value, list_sleepers()) == (end, [])
        await no_supervisor(folder)
        assert not list((folder / "tasks").glob("*/task_*"))


async def test_a_cancelled_run_stops_its_tasks(folder: Path) -> None:
    tools = LocalTools(folder / "workspace", task_folder=folder / "tasks")
    async with make_runner(tools, "Done.", chat=True) as runner:
        handle = await runner.start("Serve it.")
        await handle.result()
        assert find_supervisors(folder)
        await handle.cancel()

        await no_supervisor(folder)


async def test_a_closed_runner_leaves_tasks_of_open_runs(folder: Path) -> None:
    tools = LocalTools(folder / "workspace", task_folder=folder / "tasks")
    async with make_runner(tools, "Done.", chat=True) as runner:
        handle = await runner.start("Serve it.")
        await handle.result()

    (identity,) = find_supervisors(folder)
    await eventually(lambda: any("sleep" in read_name(pid) for pid in list_descendants(identity.pid)))
