"""A run with the file tools, for the tests of each."""

import os
import socket
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from interlock import Observation, ToolRuntime
from interlock.domain.state.ledger import Ledger
from interlock.domain.tool import CallContext, ToolContext
from interlock.pipeline.artifacts import LedgerArtifacts
from interlock.redaction.redactor import SecretRedactor
from interlock.sandbox.workspace.workspace import Workspace
from interlock.storage.memory_artifacts import MemoryArtifacts
from interlock.tools.files.edit_file import edit_file_tool
from interlock.tools.files.read_file import read_file_tool
from interlock.tools.files.write_file import write_file_tool
from interlock.tools.read_artifact import read_artifact
from tests.support import call


class FileRun:
    """One run in one workspace, where everything that is not refused is allowed."""

    def __init__(self, root: Path, *, first_call: int = 1, mode: str = "trusted", **options: Any) -> None:
        self.root = root
        self.workspace = Workspace(root)
        tools = [
            read_file_tool(self.workspace),
            write_file_tool(self.workspace),
            edit_file_tool(self.workspace),
            read_artifact,
        ]
        self.runtime = ToolRuntime(tools=tools, workspace=root, mode=mode, **options)
        self._ids = count(first_call)

    async def do(self, tool_name: str, /, **arguments: object) -> Observation:
        return (await self.batch((tool_name, arguments)))[0]

    async def batch(self, *calls: tuple[str, Mapping[str, object]]) -> tuple[Observation, ...]:
        intents = [call(f"c{next(self._ids)}", tool_name, **arguments) for tool_name, arguments in calls]
        return (await self.runtime.execute(intents)).observations

    async def read(self, path: str, **arguments: object) -> Observation:
        observation = await self.do("read_file", path=path, **arguments)
        assert observation.ok, observation
        return observation

    async def artifact(self, observation: Observation, kind: str) -> str:
        """What was kept under this kind."""
        kept = next(artifact.id for artifact in observation.artifacts if artifact.kind == kind)
        return text_of(await self.do("read_artifact", artifact_id=kept)).split("\n", 1)[1]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[FileRun]:
    root = tmp_path / "ws"
    root.mkdir()
    run = FileRun(root)
    yield run
    run.workspace.close()


def text_of(observation: Observation) -> str:
    return observation.content.text if observation.content is not None else ""


def context(tool_name: str, state: dict[str, Any] | None = None) -> ToolContext:
    """For a handler that is called by itself."""
    artifacts = LedgerArtifacts(MemoryArtifacts(), SecretRedactor(), Ledger(run_id="r"))
    made = ToolContext(CallContext(run_id="r"), "c1", tool_name, lambda _call_id, _message: None, artifacts)
    made.state = state or {}
    return made


def socket_at(path: Path) -> socket.socket:
    """A socket that has a name, however long the way to it is."""
    made = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    made.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)
    return made


def names(root: Path) -> list[str]:
    """Every path below, so that nothing that was left behind is missed."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))
