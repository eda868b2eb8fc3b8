"""The files that an approval is bound to: a command, or a tool of one's own, starts with them as they were, or not."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock import CallbackInteractionProvider, LocalTools, Rule, RulePolicy, ToolRuntime, tool
from interlock.sandbox.commands.workspace_lease import WorkspaceLease
from interlock.sandbox.handlers import executor
from interlock.sandbox.interface import CommandSpec, ExclusiveUntil
from tests.support import call

from .shell import PlayedSandbox, terminal

YES = CallbackInteractionProvider(lambda question: True)
ASK = RulePolicy([Rule(id="ask", verdict="ask", tools="*")])


async def start_approved(folder: Path, **arguments: Any) -> CommandSpec:
    """The command as the sandbox gets it after a person's approval."""
    commands = PlayedSandbox()
    run = {"policy": ASK, "interaction": YES, "mode": "default"}
    async with terminal(folder, commands, run=run) as shell:
        said = await shell.call("bash", **arguments)
    assert said.ok, said.summary
    return commands.started[0]


@pytest.mark.requirement("P20")
@pytest.mark.parametrize(("background", "alone"), [(False, "end"), (True, "start")])
async def test_an_approved_script_comes_with_its_digest(
    tmp_path: Path, background: bool, alone: ExclusiveUntil
) -> None:
    (tmp_path / "deploy.sh").write_text("echo deployed")

    command = await start_approved(tmp_path, command="bash deploy.sh", background=background)

    assert command.expected_environment is not None
    assert [file.path for file in command.expected_environment.files if file.sha256] == ["deploy.sh"]
    assert command.exclusive_until == alone


@pytest.mark.requirement("P20")
async def test_nothing_is_bound_without_an_approval(tmp_path: Path) -> None:
    commands = PlayedSandbox()
    async with terminal(tmp_path, commands) as shell:
        await shell.run("bash deploy.sh")

    assert (commands.started[0].expected_environment, commands.started[0].exclusive_until) == (None, "")


@pytest.mark.requirement("P19")
async def test_a_command_gets_its_folder_as_a_descriptor(tmp_path: Path) -> None:
    commands = PlayedSandbox()
    (tmp_path / "inner").mkdir()
    async with terminal(tmp_path, commands) as shell:
        await shell.run("true", cwd="inner")

    found = os.stat(tmp_path)
    assert commands.started[0].folder_fd >= 0
    assert commands.started[0].profile.identity == (found.st_dev, found.st_ino)


def publishing(folder: Path) -> tuple[Callable[..., str], list[str]]:
    published: list[str] = []

    @tool(risk="network", resources={"path": "path"})
    def publish(path: str) -> str:
        """Publish a file."""
        published.append((folder / path).read_text())
        return "published"

    return publish, published  # pyright: ignore[reportReturnType] a definition is called by the runtime


@pytest.mark.requirement("P20")
@pytest.mark.parametrize("is_changed", [False, True])
async def test_own_tools_find_the_approved_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_changed: bool
) -> None:
    """The file changes exactly between the last look of the gate and the handler."""
    page = tmp_path / "page.html"
    page.write_text("approved")
    publish, published = publishing(tmp_path)
    take_turn = executor.acquire_workspace

    async def attacked(workspace: str, alone: ExclusiveUntil) -> WorkspaceLease:
        if is_changed:
            page.write_text("changed")
        return await take_turn(workspace, alone)

    monkeypatch.setattr(executor, "acquire_workspace", attacked)
    tools: list[Any] = [publish, *LocalTools(tmp_path)]
    async with ToolRuntime(tools=tools, policy=ASK, interaction=YES, workspace=str(tmp_path)) as runtime:
        result = await runtime.execute([call("c", "publish", path="page.html")])

    codes = [observation.code for observation in result.observations]
    assert (codes, published) == ((["stale_file_baseline"], []) if is_changed else (["ok"], ["approved"]))
