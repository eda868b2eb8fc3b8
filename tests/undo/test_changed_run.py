"""What a run changed, for its undo: by its own calls, by its child runs, and by undos since."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from interlock import Answer, CallbackInteractionProvider, MemoryLog, RulePolicy, tool
from interlock.agent.agent import Agent
from interlock.domain.errors import ConfigurationError
from interlock.local import LocalTools
from interlock.runs.runner import Runner
from interlock.storage.event_log import EventLog
from interlock.undo import UndoReport, find_undone_run, load_changed_run, select_calls, undo_calls
from tests.runs.support import agent_of, calls

ALLOW = RulePolicy([], default="allow")
YES = CallbackInteractionProvider(lambda question: Answer(approved=True, by="ada"))

READ = calls(("look", "read_file", {"path": "shared.txt"}))


def write(call_id: str, path: str, content: str) -> tuple[str, str, dict[str, str]]:
    return call_id, "write_file", {"path": path, "content": content}


class Scene:
    """A run that writes, lets a child run write, and writes again; all with the same call ids."""

    def __init__(self, folder: Path) -> None:
        self.changes, self.workspace = folder / "changes", folder / "workspace"
        self.workspace.mkdir()
        self.log: EventLog = MemoryLog()
        self.run_id = ""

    def boss(self) -> Agent:
        asked = calls(("ask", "ask_helper", {"task": "Help."}))
        turns = (
            calls(write("c1", "shared.txt", "boss 1\n")),
            asked,
            READ,
            calls(write("c3", "shared.txt", "boss 2\n")),
        )
        helper = agent_of(
            READ,
            calls(write("c1", "shared.txt", "helper\n")),
            calls(write("c2", "helped.txt", "helper\n")),
            "Helped.",
            tools=[*self.tools()],
            name="helper",
            policy=ALLOW,
        )
        return agent_of(*turns, "Done.", tools=[*self.tools(), helper.as_tool()], name="boss", policy=ALLOW)

    def tools(self) -> LocalTools:
        return LocalTools(self.workspace, changes=self.changes)

    async def undo(self, run_id: str = "", after: int | None = None, call: str = "") -> UndoReport:
        run = await load_changed_run(self.log, run_id or self.run_id)
        calls = select_calls(run, after, call)
        return await undo_calls(self.log, run, calls, self.changes, YES, requester="ada")

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.workspace.iterdir()}


@pytest_asyncio.fixture
async def scene(tmp_path: Path) -> AsyncGenerator[Scene]:
    made = Scene(tmp_path)
    async with Runner(made.boss(), log=made.log) as runner:
        made.run_id = (await runner.run("Write it.")).run_id
    assert made.files() == {"shared.txt": "boss 2\n", "helped.txt": "helper\n"}
    yield made


@pytest.mark.requirement("P28")
async def test_changes_of_child_runs_are_undone_too(scene: Scene) -> None:
    report = await scene.undo()

    assert report.is_done
    assert [call.rpartition("/")[2] for call in report.calls] == ["c1", "c1", "c2", "c3"]
    assert scene.files() == {}


async def test_child_changes_after_an_event_are_undone(scene: Scene) -> None:
    own = [change for change in (await load_changed_run(scene.log, scene.run_id)).changes if "/" not in change.call_id]

    await scene.undo(after=own[0].seq)

    assert scene.files() == {"shared.txt": "boss 1\n"}


async def test_a_later_call_of_the_parent_keeps_a_file(scene: Scene) -> None:
    child = (await load_changed_run(scene.log, scene.run_id)).changes[1].call_id

    report = await scene.undo(call=child)

    assert [(change.kind, change.detail) for change in report.preview.changes] == [
        ("skipped", "call c3 changed it later")
    ]
    assert scene.files()["shared.txt"] == "boss 2\n"


async def test_undos_of_a_run_are_named_and_undone(scene: Scene) -> None:
    first = await scene.undo()
    await scene.undo(first.undo_run_id)
    assert scene.files() == {"shared.txt": "boss 2\n", "helped.txt": "helper\n"}

    assert len((await load_changed_run(scene.log, scene.run_id)).undo_run_ids) == 2
    assert (await scene.undo()).is_done
    assert scene.files() == {}


async def test_an_undo_of_many_calls_is_found_again(scene: Scene) -> None:
    run = await load_changed_run(scene.log, scene.run_id)
    many = [*select_calls(run), *(f"{scene.run_id}/{number}" for number in range(3_000))]

    done = await undo_calls(scene.log, run, many, scene.changes, YES, requester="ada")

    assert (await load_changed_run(scene.log, scene.run_id)).undo_run_ids == (done.undo_run_id,)


async def test_an_undone_child_is_known_to_its_parent(scene: Scene) -> None:
    child, _, call = (await load_changed_run(scene.log, scene.run_id)).changes[2].call_id.rpartition("/")
    await scene.undo(child, call=call)
    assert "helped.txt" not in scene.files()

    assert (await scene.undo()).is_done
    assert scene.files() == {}


async def test_a_served_agent_of_that_name_is_no_undo() -> None:
    """Whoever may see the run that an undo names may see the undo."""

    @tool(risk="read")
    def undo(run_id: str) -> str:
        return run_id

    log = MemoryLog()
    agent = agent_of(calls(("c1", "undo", {"run_id": "run_of_others"})), "Done.", tools=[undo], name="undo")
    async with Runner(agent, log=log) as runner:
        handle = await runner.start("Undo.", created_by="key:bot")
        await handle.result()

    assert await find_undone_run(log, handle.run_id) == ""


async def test_a_workspace_that_is_gone_is_refused(scene: Scene, tmp_path: Path) -> None:
    scene.workspace.rename(tmp_path / "elsewhere")

    with pytest.raises(ConfigurationError, match="The workspace of the run is gone"):
        await scene.undo()
