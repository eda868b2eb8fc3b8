"""A run with the tools that search, in a real sandbox, for the tests of each."""

from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from interlock import Observation, ToolRuntime
from interlock.sandbox.commands.probe import choose_sandbox
from interlock.sandbox.host.programs import find_ripgrep
from interlock.sandbox.interface import (
    CommandExit,
    CommandSandbox,
    CommandSpec,
    Confinement,
    OutputHandler,
    OutputStream,
    RunningCommand,
)
from interlock.sandbox.workspace.workspace import Workspace
from interlock.tools.files.edit_file import edit_file_tool
from interlock.tools.files.list_dir import list_dir_tool
from interlock.tools.files.read_file import read_file_tool
from interlock.tools.search.glob import glob_tool
from interlock.tools.search.grep import grep_tool
from tests.support import call


@cache
def sandbox() -> CommandSandbox:
    """The best that this host allows."""
    return choose_sandbox()


def rg() -> str:
    found = find_ripgrep()
    assert found is not None
    return found.path


NOTHING_HOLDS = Confinement(backend="none", capabilities=(), degraded=True)


class PlayedSearch:
    """Implements `CommandSandbox` and `Running`: prints what it is told to, and remembers what it was asked."""

    def __init__(
        self,
        *printed: tuple[OutputStream, bytes],
        ended: CommandExit | None = None,
        confinement: Confinement | None = None,
    ) -> None:
        self.confinement = confinement or Confinement(backend="played", capabilities=(), degraded=False)
        self.started: list[CommandSpec] = []
        self._printed = printed
        self._ended = ended or CommandExit(reason="exited", exit_code=0, duration_seconds=0)

    async def start(self, command: CommandSpec, on_output: OutputHandler) -> RunningCommand:
        self.started.append(command)
        for stream, chunk in self._printed:
            on_output(stream, chunk)
        return self

    async def wait(self, timeout_seconds: float | None = None) -> CommandExit:
        assert timeout_seconds is not None
        return self._ended

    async def stop(self) -> CommandExit:
        return self._ended


class SearchRun:
    """One run in one workspace. `hidden` are paths from its root on that rules close."""

    def __init__(self, root: Path, commands: CommandSandbox | None = None, **options: Any) -> None:
        self.root = root
        self.hidden: tuple[str, ...] = ()
        self.workspace = Workspace(root, extra_hidden=lambda path, _writing: path in self.hidden)
        parts = (self.workspace, commands or sandbox(), rg())
        tools = [
            grep_tool(*parts, self._closed),
            glob_tool(*parts),
            list_dir_tool(self.workspace),
            read_file_tool(self.workspace),
        ]
        tools.append(edit_file_tool(self.workspace))
        self.runtime = ToolRuntime(tools=tools, workspace=root, **options)
        self._ids = count(1)

    def _closed(self) -> tuple[str, ...]:
        return tuple(f"{self.workspace.root}/{path}" for path in self.hidden)

    def write(self, path: str, content: str | bytes = "") -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)

    async def do(self, tool_name: str, /, **arguments: object) -> Observation:
        result = await self.runtime.execute([call(f"c{next(self._ids)}", tool_name, **arguments)])
        return result.observations[0]

    async def lines(self, tool_name: str, /, **arguments: object) -> list[str]:
        """What the model reads of a call that succeeds."""
        observation = await self.do(tool_name, **arguments)
        assert observation.ok, observation
        return text_of(observation).split("\n") if observation.content else []

    async def all_pages(self, tool_name: str, /, **arguments: object) -> list[str]:
        """Reading on as each page says."""
        lines = list[str]()
        following: Any = arguments
        while following is not None:
            observation = await self.do(tool_name, **following)
            lines += text_of(observation).split("\n")
            following = observation.next_tool.input_hint if observation.next_tool else None
        return lines


@pytest.fixture
def run(tmp_path: Path) -> Iterator[SearchRun]:
    root = tmp_path / "ws"
    root.mkdir()
    run = SearchRun(root)
    yield run
    run.workspace.close()


def text_of(observation: Observation) -> str:
    return observation.content.text if observation.content is not None else ""
