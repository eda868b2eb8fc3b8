"""What holds between commands of one process holds between a command and the tasks of a supervisor."""

import asyncio
import os
from pathlib import Path

from interlock import CallbackInteractionProvider, Rule, RulePolicy
from interlock.sandbox.host.process_tree import is_stopped, list_children, list_descendants
from interlock.sandbox.tasks.client import list_workspaces
from interlock.sandbox.tasks.protocol import Connection, Done, PrepareCommand, RequestMessage, TaskReply
from tests.patience import eventually

from .runs import find_supervisor, open_run, text_of

YES = {
    "policy": RulePolicy([Rule(id="ask", verdict="ask", tools="bash")]),
    "interaction": CallbackInteractionProvider(lambda question: True),
    "mode": "default",
}
TICKS = "while true; do touch clock; sleep 0.01; done"


def ticked(folder: Path) -> bool:
    return (folder / "workspace" / "clock").exists()


async def test_tasks_stop_while_an_approved_command_runs(folder: Path) -> None:
    script = folder / "workspace" / "deploy.sh"
    script.parent.mkdir()
    script.write_text("echo $(stat -c %Y.%y clock) > one; sleep 0.1; echo $(stat -c %Y.%y clock) > two")
    async with open_run(folder, run=YES) as run:
        task_id = await run.start(TICKS)
        await eventually(lambda: ticked(folder))
        said = await run.call("bash", command="bash deploy.sh")
        before = (folder / "workspace" / "clock").stat().st_mtime_ns
        await eventually(lambda: (folder / "workspace" / "clock").stat().st_mtime_ns != before)
        await run.call("stop_task", task_id=task_id)

    assert said.ok, said
    assert (script.parent / "one").read_text() == (script.parent / "two").read_text()


async def test_stopped_tasks_continue_when_the_client_is_gone(folder: Path) -> None:
    async with open_run(folder) as run:
        task_id = await run.start(TICKS)
        await eventually(lambda: ticked(folder))
        identity = find_supervisor(folder)
        (files,) = list_workspaces(str(folder / "tasks"))
        connection = Connection(*await asyncio.open_unix_connection(sock=files.open_socket()))
        await connection.send(RequestMessage(identity.token, PrepareCommand(is_exclusive=True)))
        assert isinstance(await connection.receive(TaskReply), Done)
        (launched,) = [pid for pid in list_children(identity.pid) if "bwrap" in name_of(pid)]
        assert all(map(is_stopped, list_descendants(launched)))
        connection.close()
        await eventually(lambda: not all(map(is_stopped, list_descendants(launched))))
        await run.call("stop_task", task_id=task_id)


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


async def test_a_file_that_appears_later_is_hidden_from_tasks(folder: Path) -> None:
    async with open_run(folder) as run:
        task_id = await run.start("while [ ! -e go ]; do sleep 0.01; done; cat .env; echo read")
        (folder / "workspace" / ".env").write_text("teal is the colour\n")
        await run.call("bash", command="true")
        (folder / "workspace" / "go").touch()
        said = await run.call("wait_task", task_id=task_id)

    assert "teal" not in text_of(said)
    assert "read\n" in text_of(said)


async def test_an_approved_task_starts_with_its_files_or_not(folder: Path) -> None:
    script = folder / "workspace" / "serve.sh"
    script.parent.mkdir()
    script.write_text("echo approved")

    def swap(question: object) -> bool:
        os.replace(script.with_suffix(".new"), script)
        return True

    script.with_suffix(".new").write_text("echo swapped")
    asked = {**YES, "interaction": CallbackInteractionProvider(swap)}
    async with open_run(folder, run=asked) as run:
        said = await run.call("bash", command="bash serve.sh", background=True)

    assert not said.ok
    assert not list((folder / "tasks").glob("*/task_*"))
