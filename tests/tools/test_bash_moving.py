"""Files and links that move while a command is on its way: it sees no more, and may do no more, than was decided."""

from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.domain.errors import SandboxSetupError
from interlock.domain.event import InvocationStarted, WarningRaised
from interlock.sandbox.interface import CommandSpec, OutputHandler, RunningCommand
from tests.support import facts
from tests.tools.shell import Play, PlayedSandbox, Terminal, over, terminal


class CarefulSandbox(PlayedSandbox):
    """Asks `still` before a command begins, as every backend does. `meanwhile` is called before it asks."""

    def __init__(self, meanwhile: Callable[[int], None], play: Play | None = None) -> None:
        super().__init__(play)
        self._meanwhile = meanwhile
        self.asked = 0

    async def start(self, command: CommandSpec, on_output: OutputHandler) -> RunningCommand:
        self.asked += 1
        self._meanwhile(self.asked)
        if command.is_still_valid is None or not command.is_still_valid():
            raise SandboxSetupError("it is not as it was")
        return await super().start(command, on_output)


@pytest.mark.requirement("R232")
@pytest.mark.parametrize("background", [False, True])
async def test_a_secret_that_comes_before_the_start_is_hidden_in_the_next_try(tmp_path: Path, background: bool) -> None:
    def meanwhile(asked: int) -> None:
        if asked == 1:
            (tmp_path / ".env").touch()

    commands = CarefulSandbox(meanwhile)
    async with terminal(tmp_path, commands) as shell:
        said = await shell.run("touch x", background=background)

    assert said.ok
    assert [command.profile.hidden for command in commands.started] == [(f"{tmp_path}/.env",)]


@pytest.mark.requirement("R232")
@pytest.mark.parametrize("background", [False, True])
async def test_a_secret_that_moves_all_the_time_is_no_command(tmp_path: Path, background: bool) -> None:
    def meanwhile(asked: int) -> None:
        (tmp_path / f".env.{asked}").touch()

    commands = CarefulSandbox(meanwhile)
    async with terminal(tmp_path, commands) as shell:
        said = await shell.run("touch x", background=background)

    assert not said.ok
    assert "move all the time." in said.summary
    assert (commands.asked, commands.started) == (3, [])


async def test_a_sandbox_that_cannot_be_made_is_tried_once(tmp_path: Path) -> None:
    def fail(asked: int) -> None:
        raise SandboxSetupError("there is no sandbox")

    commands = CarefulSandbox(fail)
    async with terminal(tmp_path, commands) as shell:
        said = await shell.run("touch x")

    assert (said.ok, commands.asked) == (False, 1)


@pytest.mark.requirement("R232")
@pytest.mark.parametrize("background", [False, True])
async def test_a_command_that_was_let_through_because_it_reads_never_gets_to_write(
    tmp_path: Path, background: bool
) -> None:
    """A link that changed since may make the same script one that does more than read."""
    answers = iter([True])

    def is_read_only(script: str, cwd: str) -> bool:
        return next(answers, False)

    commands = PlayedSandbox()
    async with terminal(tmp_path, commands, is_read_only=is_read_only) as shell:
        await shell.run("cat link", background=background)
        (started,) = [fact for fact in await facts(shell.runtime) if isinstance(fact, InvocationStarted)]

    assert started.profile == "read-only"
    assert [command.profile.writable for command in commands.started] == [False]


# What a task in the background leaves behind.


def plant(root: Path) -> None:
    (root / ".envrc").touch()


async def warnings(shell: Terminal) -> list[str]:
    return [fact.message for fact in await facts(shell.runtime) if isinstance(fact, WarningRaised)]


@pytest.mark.requirement("P13")
@pytest.mark.parametrize("teller", ["wait_task", "read_task", "stop_task", "list_tasks"])
async def test_the_first_call_that_tells_of_the_end_of_a_task_warns_of_what_it_planted(
    tmp_path: Path, teller: str
) -> None:
    async with terminal(tmp_path, PlayedSandbox(Play(changes=plant))) as shell:
        started = await shell.run("direnv", background=True)
        task_id = started.facts["task"]["id"]
        await over(task_id)
        assert await warnings(shell) == []
        told = await shell.call(teller, **({} if teller == "list_tasks" else {"task_id": task_id}))
        report = told.facts["tasks"][0] if teller == "list_tasks" else told.facts["task"]
        await shell.call("read_task", task_id=task_id)
        (warning,) = await warnings(shell)

    assert "what other programs obey: .envrc." in warning
    assert report["guarded"] == [".envrc"]


async def test_a_task_that_only_reads_is_not_looked_after(tmp_path: Path) -> None:
    async with terminal(tmp_path, PlayedSandbox(Play(changes=plant))) as shell:
        started = await shell.run("ls", background=True)
        told = await shell.call("wait_task", task_id=started.facts["task"]["id"])

        assert await warnings(shell) == []
    assert "guarded" not in told.facts["task"]
