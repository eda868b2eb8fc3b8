"""A yes is for what was shown: when the file, script, folder or sandbox is another one, it is asked again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import (
    AnswerRefusedError,
    BatchResult,
    CallbackInteractionProvider,
    MemoryLog,
    Question,
    Rule,
    RulePolicy,
)
from interlock.domain.event import InvocationStarted
from interlock.sandbox.commands.unconfined import UnconfinedSandbox
from interlock.sandbox.interface import CommandSandbox, CommandSpec, Confinement, OutputHandler, RunningCommand
from tests.support import call, facts

from .toolbox import Box, box, commands_of

NOBODY_YET = CallbackInteractionProvider(lambda question: None)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace" / "sub").mkdir(parents=True)
    (tmp_path / "workspace" / "run.sh").write_text("echo good > done\n")
    (tmp_path / "workspace" / "main.py").write_text("x = 1\n")
    return tmp_path / "workspace"


class Swapped:
    """Another backend by its words, the same by its work."""

    def __init__(self, commands: CommandSandbox, **confinement: Any) -> None:
        self._commands = commands
        self._confinement = confinement

    @property
    def confinement(self) -> Confinement:
        return msgspec.structs.replace(self._commands.confinement, **self._confinement)

    async def start(self, command: CommandSpec, on_output: OutputHandler) -> RunningCommand:
        return await self._commands.start(command, on_output)


async def ask(run: Box, tool: str, **arguments: Any) -> Question:
    result = await run.runtime.execute([call("asked", tool, **arguments)])
    return result.questions[0]


async def approve(run: Box, question: Question) -> BatchResult:
    await run.runtime.decide(question.action_id, approved=True, payload_hash=question.payload_hash)
    return await run.runtime.resume()


def _swap_script(root: Path) -> None:
    (root / "run.sh").write_text("echo evil > done\n")


def _link_script(root: Path) -> None:
    (root / "run.sh").rename(root / "other.sh")
    (root / "evil.sh").write_text("echo evil > done\n")
    (root / "run.sh").symlink_to("evil.sh")


@pytest.mark.parametrize("swap", [_swap_script, _link_script])
async def test_a_script_that_changed_after_the_yes_does_not_run(workspace: Path, swap: Callable[[Path], None]) -> None:
    options = {"commands": commands_of("bubblewrap"), "mode": "default", "interaction": NOBODY_YET}
    async with box(workspace, **options) as run:
        question = await ask(run, "bash", command="bash run.sh")
        swap(workspace)
        after = await approve(run, question)

    assert after.questions or not after.observations[0].ok
    assert not (workspace / "done").exists()


async def test_a_script_that_did_not_change_runs(workspace: Path) -> None:
    options = {"commands": commands_of("bubblewrap"), "mode": "default", "interaction": NOBODY_YET}
    async with box(workspace, **options) as run:
        await approve(run, await ask(run, "bash", command="bash run.sh"))

    assert (workspace / "done").read_text() == "good\n"


async def test_a_file_that_changed_after_the_yes_is_not_edited(workspace: Path) -> None:
    options = {"commands": commands_of("bubblewrap"), "mode": "default", "interaction": NOBODY_YET}
    async with box(workspace, **options) as run:
        await run.call("read_file", path="main.py")
        edits = [{"old_string": "x = 1", "new_string": "x = 2"}]
        question = await ask(run, "edit_file", path="main.py", edits=edits)
        (workspace / "main.py").write_text("x = 1\ny = 3\n")
        after = await approve(run, question)

    assert after.questions or not after.observations[0].ok
    assert (workspace / "main.py").read_text() == "x = 1\ny = 3\n"


async def test_a_folder_that_became_a_link_after_the_yes_is_not_started_in(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    options = {"commands": commands_of("bubblewrap"), "mode": "default", "interaction": NOBODY_YET}
    async with box(workspace, **options) as run:
        question = await ask(run, "bash", command="pwd > done", cwd="sub")
        (workspace / "sub").rmdir()
        (workspace / "sub").symlink_to(tmp_path / "outside")
        after = await approve(run, question)

    assert after.questions or not after.observations[0].ok
    assert list((tmp_path / "outside").iterdir()) == []


async def test_a_folder_that_became_a_link_inside_after_the_yes_is_asked_again(workspace: Path) -> None:
    (workspace / "other").mkdir()
    options = {"commands": commands_of("bubblewrap"), "mode": "default", "interaction": NOBODY_YET}
    async with box(workspace, **options) as run:
        question = await ask(run, "bash", command="rm -rf x; touch done", cwd="sub")
        (workspace / "sub").rmdir()
        (workspace / "sub").symlink_to("other")
        after = await approve(run, question)

    assert after.questions or not after.observations[0].ok
    assert not (workspace / "other" / "done").exists()


@pytest.mark.parametrize("weaker", [{"backend": "landlock"}, {"backend": "none", "degraded": True}])
async def test_a_command_is_asked_about_again_when_another_sandbox_would_hold_it(
    workspace: Path, weaker: dict[str, Any]
) -> None:
    log, commands = MemoryLog(), commands_of("bubblewrap")
    options = {"mode": "default", "interaction": NOBODY_YET, "log": log, "run_id": "run_x"}
    async with box(workspace, commands=commands, **options) as run:
        question = await ask(run, "bash", command="touch done")
        await run.runtime.decide(question.action_id, approved=True)
    async with box(workspace, commands=Swapped(commands, **weaker), **options) as run:
        after = await run.runtime.resume()

    assert not (workspace / "done").exists()
    assert after.questions


async def test_a_command_is_asked_about_again_when_its_sandbox_lost_an_ability(workspace: Path) -> None:
    """The network is on now, or secrets cannot be hidden any more: a person said yes to something else."""
    log, commands = MemoryLog(), commands_of("bubblewrap")
    options = {"mode": "default", "interaction": NOBODY_YET, "log": log, "run_id": "run_x"}
    async with box(workspace, commands=commands, **options) as run:
        question = await ask(run, "bash", command="touch done")
        await run.runtime.decide(question.action_id, approved=True)
    async with box(workspace, commands=commands, network=True, **options) as run:
        after = await run.runtime.resume()

    assert not (workspace / "done").exists()
    assert after.questions


async def test_a_command_with_the_network_is_not_said_to_be_without_it(workspace: Path) -> None:
    async with box(workspace, commands=commands_of("bubblewrap"), network=True) as run:
        await run.bash("touch done")
        started = [fact for fact in await facts(run.runtime) if isinstance(fact, InvocationStarted)]

    assert "network_off" not in started[0].capabilities


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "trusted"},
        {"policy": RulePolicy([Rule(id="all", verdict="allow")])},
        {"policy": RulePolicy([Rule(id="all", verdict="allow", tools="bash_outside", command="touch")])},
        {"policy": RulePolicy(default="allow"), "mode": "trusted"},
        {"mode": "accept_edits"},
    ],
)
async def test_a_command_outside_is_never_run_without_a_person(workspace: Path, options: dict[str, Any]) -> None:
    given = {"interaction": NOBODY_YET, **options}
    async with box(workspace, commands=commands_of("bubblewrap"), allow_unsandboxed=True, **given) as run:
        question = await ask(run, "bash_outside", command="touch done", reason="because")

    assert "without the sandbox" in repr(question)
    assert not (workspace / "done").exists()


@pytest.mark.parametrize("scope", ["run", "window", "rule"])
async def test_a_yes_to_a_command_outside_is_for_once(workspace: Path, scope: str) -> None:
    async with box(
        workspace, commands=commands_of("bubblewrap"), allow_unsandboxed=True, interaction=NOBODY_YET
    ) as run:
        question = await ask(run, "bash_outside", command="touch done", reason="because")
        answer: dict[str, Any] = {"approved": True, "scope": scope, "until": 2**62, "rule": "allow: bash_outside"}
        with pytest.raises(AnswerRefusedError):
            await run.runtime.decide(question.action_id, **answer)
        await approve(run, question)
        (workspace / "done").unlink()
        again = await run.runtime.execute([call("again", "bash_outside", command="touch done", reason="because")])

    assert again.questions
    assert not (workspace / "done").exists()


async def test_a_rule_that_denies_holds_outside_as_well(workspace: Path) -> None:
    policy = RulePolicy([Rule(id="no", verdict="deny", command="touch")])
    async with box(workspace, commands=commands_of("bubblewrap"), allow_unsandboxed=True, policy=policy) as run:
        said = await run.call("bash_outside", command="touch done", reason="because")

    assert said.code in ("policy_denied", "user_denied")
    assert not (workspace / "done").exists()


async def test_without_a_sandbox_every_command_and_search_is_a_question(workspace: Path) -> None:
    asked: list[str] = []
    interaction = CallbackInteractionProvider(lambda question: bool(asked.append(question.tool_name)))
    policy = RulePolicy([Rule(id="all", verdict="allow")])
    async with box(workspace, commands=UnconfinedSandbox(), policy=policy, interaction=interaction) as run:
        for tool, arguments in (
            ("bash", {"command": "ls"}),
            ("bash", {"command": "touch done", "background": True}),
            ("grep", {"pattern": "x"}),
            ("glob", {"pattern": "*"}),
        ):
            await run.call(tool, **arguments)

    assert asked == ["bash", "bash", "grep", "glob"]
    assert not (workspace / "done").exists()
