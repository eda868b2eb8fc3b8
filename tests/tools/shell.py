"""A shell for tests: with commands that are played, so that a test says how they end, or in a real sandbox."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from interlock import MemoryLog, Observation, RulePolicy, ToolRuntime
from interlock.policy.engine.call_parts import is_read_only_script, list_script_commands
from interlock.sandbox.interface import (
    CAPABILITIES,
    CommandExit,
    CommandSandbox,
    CommandSpec,
    Confinement,
    EndReason,
    OutputHandler,
    OutputStream,
    RunningCommand,
)
from interlock.sandbox.workspace.hidden_files import HiddenFileScanner, WorkspaceScan
from interlock.sandbox.workspace.protected_names import is_secret
from interlock.sandbox.workspace.workspace import Workspace
from interlock.tools.shell.bash import ShellTools
from interlock.tools.shell.profile import ShellConfig
from tests.support import call

FULL = Confinement(backend="played", capabilities=tuple(CAPABILITIES), degraded=False)


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """What a command does, and how it ends. `hangs`: not by itself."""

    output: tuple[tuple[OutputStream, bytes], ...] = ()
    reason: EndReason = "exited"
    exit_code: int | None = 0
    signal: str = ""
    #: In the workspace.
    cwd: str = ""
    hangs: bool = False
    changes: Callable[[Path], None] | None = None


class PlayedSandbox:
    """Implements `CommandSandbox`, and remembers what it was asked for."""

    def __init__(self, play: Play | None = None, confinement: Confinement = FULL) -> None:
        self.play = play or Play()
        self.confinement = confinement
        self.started: list[CommandSpec] = []
        self.running: list[PlayedCommand] = []

    async def start(self, command: CommandSpec, on_output: OutputHandler) -> RunningCommand:
        self.started.append(command)
        running = PlayedCommand(self.play, command)
        self.running.append(running)
        for stream, chunk in self.play.output:
            on_output(stream, chunk)
        if self.play.changes is not None:
            self.play.changes(Path(command.profile.workspace))
        return running


class PlayedCommand:
    def __init__(self, play: Play, command: CommandSpec) -> None:
        self._play = play
        self._cwd = f"{command.profile.workspace}/{play.cwd}".rstrip("/") if play.cwd else command.cwd
        self._cwd = self._cwd or command.profile.workspace
        self.waited = asyncio.Event()
        self.timeout: float | None = None
        self.stopped = asyncio.Event()

    async def wait(self, timeout_seconds: float | None = None) -> CommandExit:
        self.timeout = timeout_seconds
        self.waited.set()
        if not self._play.hangs:
            play = self._play
            return self._ended(play.reason, play.exit_code, play.signal)
        try:
            await asyncio.wait_for(self.stopped.wait(), timeout_seconds)
        except TimeoutError:
            return self._ended("timeout", None, "SIGTERM")
        finally:
            self.stopped.set()
        return self._ended("stopped", None, "SIGTERM")

    async def stop(self) -> CommandExit:
        self.stopped.set()
        return self._ended("stopped", None, "SIGTERM")

    def _ended(self, reason: EndReason, exit_code: int | None, signal: str) -> CommandExit:
        return CommandExit(reason=reason, exit_code=exit_code, signal=signal, duration_seconds=0.25, cwd=self._cwd)


class Terminal:
    """A run with the shell's tools: `await terminal.run("ls")`."""

    def __init__(self, shell: ShellTools, runtime: ToolRuntime, calls: int = 0) -> None:
        self.shell = shell
        self.runtime = runtime
        self._calls = calls

    async def run(self, command: str, **arguments: Any) -> Observation:
        return await self.call("bash", command=command, **arguments)

    async def call(self, tool_name: str, **arguments: Any) -> Observation:
        self._calls += 1
        result = await self.runtime.execute([call(f"{self.runtime.run_id}-{self._calls}", tool_name, **arguments)])
        return result.observations[0]


async def over(task_id: str) -> None:
    """Wait until a task has come to its end, without a call that tells of it."""
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == task_id))


def shell_in(root: Path, commands: CommandSandbox, **options: Any) -> ShellTools:
    workspace = Workspace(root)
    folder = workspace.open_root()
    files = HiddenFileScanner(folder.fd, is_secret, lambda path: False)

    def find(_open: object = folder) -> WorkspaceScan:
        return files.scan()

    def reads(script: str, cwd: str) -> bool:
        return is_read_only_script(script, cwd, workspace.root)

    fields = {name: options.pop(name) for name in ShellConfig.__struct_fields__ if name in options}
    config = ShellConfig(workspace=workspace, parse_script=list_script_commands, is_read_only=reads, hidden=find)
    return ShellTools(msgspec.structs.replace(config, **fields), commands, **options)


@asynccontextmanager
async def terminal(root: Path, commands: CommandSandbox, **options: Any) -> AsyncGenerator[Terminal]:
    """`run` has options of the run, `calls` is how many it had before; the others are the shell's."""
    run_options: dict[str, Any] = {
        "mode": "trusted",
        "policy": RulePolicy(),
        "log": MemoryLog(),
        **options.pop("run", {}),
    }
    calls: int = options.pop("calls", 0)
    outside: CommandSandbox | None = options.pop("outside", None)
    shell = shell_in(root, commands, **options)
    tools = [shell.bash_tool(), *shell.task_tools(), *([shell.bash_outside_tool(outside)] if outside else [])]
    runtime = ToolRuntime(tools=tools, workspace=root, **run_options)
    try:
        yield Terminal(shell, runtime, calls)
    finally:
        await shell.close()
        await runtime.close()
