"""A run with background tasks in a folder: in this process, or in one that can be killed.

`python -m tests.sandbox.tasks.runs FOLDER RUN` carries out the calls that it reads as lines of JSON, and prints what
they returned.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from select import poll
from typing import Any

from interlock import FileArtifacts, LocalTools, Observation, RulePolicy, SqliteLog, ToolRuntime
from interlock.sandbox.host.process_tree import list_descendants
from interlock.sandbox.tasks.client import list_workspaces
from interlock.sandbox.tasks.protocol import SupervisorIdentity
from tests.patience import HANG_SECONDS, eventually, eventually_read

ROOT = Path(__file__).parents[3]
RUN_ID = "run_tasks"


class TaskRun:
    """Calls tools for one run."""

    def __init__(self, tools: LocalTools, runtime: ToolRuntime) -> None:
        self.tools = tools
        self.runtime = runtime

    async def call(self, tool_name: str, **arguments: Any) -> Observation:
        call = {"id": token_hex(8), "name": tool_name, "arguments": arguments}
        return (await self.runtime.execute([call])).observations[0]

    async def start(self, command: str, **arguments: Any) -> str:
        said = await self.call("bash", command=command, background=True, **arguments)
        assert said.ok, said
        return said.facts["task"]["id"]

    async def status(self, task_id: str) -> str:
        return (await self.call("read_task", task_id=task_id)).facts["task"]["status"]

    async def printed(self, task_id: str, text: str) -> None:
        """Wait until a task has printed this."""

        async def is_there() -> bool:
            return text in text_of(await self.call("read_task", task_id=task_id))

        await eventually_read(is_there)


def text_of(said: Observation) -> str:
    return said.content.text if said.content else ""


@asynccontextmanager
async def open_run(folder: Path, run_id: str = RUN_ID, **options: Any) -> AsyncGenerator[TaskRun]:
    """A runtime in this process. What a supervisor runs continues afterwards."""
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    run_options: dict[str, Any] = {"mode": "trusted", "policy": RulePolicy(), **options.pop("run", {})}
    chosen: dict[str, Any] = {"task_folder": folder / "tasks", **options}
    tools = LocalTools(workspace, **chosen)
    async with SqliteLog(folder / "log.db") as log:
        runtime = ToolRuntime(
            tools=tools, log=log, artifacts=FileArtifacts(folder / "artifacts"), run_id=run_id, **run_options
        )
        async with runtime:
            yield TaskRun(tools, runtime)


class RunProcess:
    """A run in another process."""

    def __init__(self, folder: Path, *prefix: str, run_id: str = RUN_ID) -> None:
        words = [*prefix, sys.executable, "-m", "tests.sandbox.tasks.runs", str(folder), run_id]
        self._process = subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def call(self, tool_name: str, **arguments: Any) -> dict[str, Any]:
        self.send(tool_name, **arguments)
        return self.receive()

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())

    def send(self, tool_name: str, **arguments: Any) -> None:
        assert self._process.stdin
        print(json.dumps([tool_name, arguments]), file=self._process.stdin, flush=True)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(HANG_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            with suppress(BrokenPipeError):
                stream.close()


def find_supervisors(folder: Path) -> list[SupervisorIdentity]:
    found = [workspace.read_identity() for workspace in list_workspaces(str(folder / "tasks"))]
    return [identity for identity in found if identity is not None]


def find_supervisor(folder: Path) -> SupervisorIdentity:
    (found,) = find_supervisors(folder)
    return found


async def no_supervisor(folder: Path) -> None:
    await eventually(lambda: not find_supervisors(folder))


def kill_supervisor(folder: Path, number: int = signal.SIGKILL) -> list[int]:
    """End the supervisor and wait until it is dead. Return what was below it."""
    identity = find_supervisor(folder)
    below = list_descendants(identity.pid)
    _end(identity.pid, number)
    return below


def is_dead(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    return True


@contextmanager
def task_folder(folder: Path) -> Generator[Path]:
    """Yield the folder. Afterwards no supervisor is left."""
    try:
        yield folder
    finally:
        for identity in find_supervisors(folder):
            _end(identity.pid, signal.SIGTERM)


def _end(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        opened = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(opened, number)
            waiting = poll()
            waiting.register(opened)
            assert waiting.poll(HANG_SECONDS * 1000), "the supervisor does not end"
        finally:
            os.close(opened)


async def _live(folder: Path, run_id: str) -> None:
    async with open_run(folder, run_id) as run:
        while line := await asyncio.to_thread(sys.stdin.readline):
            tool_name, arguments = json.loads(line)
            said = await run.call(tool_name, **arguments)
            print(json.dumps({"facts": said.facts, "text": text_of(said), "ok": said.ok}), flush=True)


if __name__ == "__main__":
    asyncio.run(_live(Path(sys.argv[1]), sys.argv[2]))
