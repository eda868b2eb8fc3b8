"""A run with the real local tools for tests that attack it: `await box.bash("...")`, and what it left behind."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock import CallbackInteractionProvider, LocalTools, Observation, RulePolicy, ToolRuntime
from interlock.sandbox.commands.landlock import find_unavailable_reason
from interlock.sandbox.commands.probe import choose_sandbox
from interlock.sandbox.commands.unconfined import UnconfinedSandbox
from interlock.sandbox.interface import CommandSandbox
from tests.support import call

#: What must never leave its place. A program puts it together, so that no message that quotes the program holds it.
CANARY = "sword-fish-7261"
#: An attack prints this when it worked.
REACHED = "it-was-reached"
SAY_REACHED = "printf 'it-%s' was-reached"
#: Of LocalTools; all else is of the run.
_LOCAL_OPTIONS = ("commands", "extra_read_paths", "environment", "network", "limits", "allow_unsandboxed")


class Box:
    """One run. Everything is allowed, or approved where it has to be asked, unless a test says otherwise."""

    def __init__(self, root: Path, **options: Any) -> None:
        local = {name: options.pop(name) for name in _LOCAL_OPTIONS if name in options}
        self.said: list[str] = []
        given: dict[str, Any] = {
            "mode": "trusted",
            "policy": RulePolicy(),
            "interaction": CallbackInteractionProvider(lambda question: True),
            "on_progress": self._hear,
            **options,
        }
        self.root = root
        self.tools = LocalTools(root, **local)
        self.runtime = ToolRuntime(tools=self.tools, **given)
        self._calls = 0

    def _hear(self, call_id: str, message: str) -> None:
        self.said.append(message)

    async def bash(self, command: str, **arguments: Any) -> Observation:
        return await self.call("bash", command=command, **arguments)

    async def call(self, tool_name: str, **arguments: Any) -> Observation:
        self._calls += 1
        result = await self.runtime.execute([call(f"call-{self._calls}", tool_name, **arguments)])
        return result.observations[0]

    async def logged(self) -> str:
        return (await self.runtime.export()).decode(errors="replace")

    async def everything_told(self, observation: Observation) -> str:
        """What a model, a person and a log have of a call."""
        return "\n".join((text_of(observation), repr(observation), *self.said, await self.logged()))


@asynccontextmanager
async def box(root: Path, **options: Any) -> AsyncGenerator[Box]:
    made = Box(root, **options)
    try:
        yield made
    finally:
        await made.runtime.close()


def text_of(observation: Observation) -> str:
    return observation.content.text if observation.content else ""


def commands_of(backend: str) -> CommandSandbox:
    """The backend, or the test is skipped where it cannot work."""
    if backend == "none":
        return UnconfinedSandbox()
    if backend == "landlock" and (problem := find_unavailable_reason()):
        pytest.skip(f"Landlock: {problem}")
    return choose_sandbox("landlock" if backend == "landlock" else "bubblewrap")


def processes_with(word: str) -> list[str]:
    """Command lines of processes that have the word in them, beside this one."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if word in words and folder.name != str(os.getpid()):
            found.append(words)
    return found


def snapshot(*folders: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below, with its mode and content."""
    return {
        str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() and not path.is_symlink() else b"")
        for folder in folders
        for path in sorted(folder.rglob("*"))
    }
