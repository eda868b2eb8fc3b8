"""What came of a command in the background: told once, as a verification where it tested, and from its start on."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interlock import BatchResult, MemoryArtifacts, MemoryLog, Observation
from interlock.domain.event import InvocationStarted
from interlock.domain.state.ledger import Ledger
from interlock.domain.state.verification import Verification
from interlock.sandbox.interface import CommandExit, CommandSpec, OutputHandler, RunningCommand
from interlock.tools.shell.tasks import MAX_ENDED
from tests.patience import eventually_read
from tests.support import call, facts
from tests.tools.shell import Play, PlayedSandbox, Terminal, over, terminal

PASSED = Play(output=(("stdout", b"2 passed in 0.01s\n"),))
FAILED = Play(output=(("stdout", b"1 failed, 1 passed in 0.01s\n"),), exit_code=1)
SLOW = Play(hangs=True, output=PASSED.output)
VIEWS = ("wait_task", "read_task", "stop_task")


class Gate(PlayedSandbox):
    """The first command ends when somebody opens it, in the way that was played when it started."""

    def __init__(self, play: Play) -> None:
        super().__init__(play)
        self.is_open = asyncio.Event()

    async def start(self, command: CommandSpec, on_output: OutputHandler) -> RunningCommand:
        running = await super().start(command, on_output)
        return Gated(running, self.is_open) if len(self.started) == 1 else running


class Gated(NamedTuple):
    running: RunningCommand
    is_open: asyncio.Event

    async def wait(self, timeout_seconds: float | None = None) -> CommandExit:
        await self.is_open.wait()
        return await self.running.wait(timeout_seconds)

    async def stop(self) -> CommandExit:
        self.is_open.set()
        return await self.running.stop()


def writes(*names: str) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        for name in names:
            (root / name).write_text("x\n")

    return write


async def start(shell: Terminal, command: str = "pytest -q") -> str:
    said = await shell.run(command, background=True)
    (found,) = re.findall(r"task_[0-9a-f]{8}", said.summary)
    return found


async def begins(shell: Terminal, call_id: str) -> None:
    async def has_begun() -> bool:
        started = [fact.call_id for fact in await facts(shell.runtime) if isinstance(fact, InvocationStarted)]
        return call_id in started

    await eventually_read(has_begun)


async def verdict(shell: Terminal) -> Verification:
    """What the log says of the run: folded anew."""
    ledger = Ledger(run_id=shell.runtime.run_id)
    for step in await shell.runtime.replay():
        ledger.apply(step.event)
    return ledger.checks.summarize()


@pytest.mark.requirement("R183")
@pytest.mark.parametrize("tool_name", VIEWS)
async def test_the_end_of_tests_in_the_background_is_the_verification_that_it_would_be_in_the_foreground(
    tmp_path: Path, tool_name: str
) -> None:
    async with terminal(tmp_path, PlayedSandbox(FAILED)) as shell:
        foreground = await shell.run("pytest -q")
        started = await shell.run("pytest -q", background=True)
        await over(task_id := started.facts["task"]["id"])
        seen = await shell.call(tool_name, task_id=task_id)

    told = dict(seen.facts["verification"])
    assert (seen.kind, seen.ok, seen.exit_code, started.kind) == ("verification", True, 1, "tool")
    assert told.pop("started_call") == started.call_id
    assert (told, seen.facts["report"]) == (foreground.facts["verification"], foreground.facts["report"])
    assert seen.facts["cwd"] == foreground.facts["cwd"]
    assert seen.summary.endswith(": pytest failed: 1 failed, 1 passed")


@pytest.mark.requirement("R183")
async def test_what_came_of_a_task_is_told_by_the_first_view_and_not_again(tmp_path: Path) -> None:
    commands = PlayedSandbox(SLOW)

    async with terminal(tmp_path, commands) as shell:
        task_id = await start(shell)
        views = [await shell.call("read_task", task_id=task_id)]
        views += [await shell.call("list_tasks")]
        commands.running[0].stopped.set()
        await over(task_id)
        views += [await shell.call("list_tasks")]
        views += [await shell.call(name, task_id=task_id) for name in (*VIEWS, *VIEWS)]

    assert [view.kind for view in views] == ["tool"] * 3 + ["verification"] + ["tool"] * 5
    assert "[wait_task reports its result]" in str(views[2].content)
    assert [len(view.artifacts) for view in views] == [0, 0, 0, 1, 0, 0, 0, 0, 0]


async def at_once(shell: Terminal, *calls: tuple[str, dict[str, Any]]) -> BatchResult:
    intents = [call(f"at-once-{number}", name, **arguments) for number, (name, arguments) in enumerate(calls)]
    return await shell.runtime.execute(intents)


async def test_of_several_who_wait_for_one_task_one_is_told(tmp_path: Path) -> None:
    commands = PlayedSandbox(SLOW)

    async with terminal(tmp_path, commands) as shell:
        task_id = await start(shell)
        wait = ("wait_task", {"task_id": task_id})
        waiting = asyncio.ensure_future(at_once(shell, wait, wait, ("list_tasks", {}), wait))
        await begins(shell, "at-once-3")
        commands.running[0].stopped.set()
        result = await waiting
        after = await shell.call("read_task", task_id=task_id)

    kinds = [observation.kind for observation in (*result.observations, after)]
    assert kinds.count("verification") == 1


async def test_a_view_that_came_to_nothing_leaves_the_end_to_the_next_one(tmp_path: Path) -> None:
    commands = PlayedSandbox(SLOW)

    async with terminal(tmp_path, commands) as shell:
        task_id = await start(shell)
        waiting = asyncio.ensure_future(at_once(shell, ("wait_task", {"task_id": task_id})))
        await begins(shell, "at-once-0")
        shell.runtime.cancel_call("at-once-0")
        [cancelled] = (await waiting).observations
        commands.running[0].stopped.set()
        seen = await shell.call("wait_task", task_id=task_id)

    assert (cancelled.ok, cancelled.kind, seen.kind) == (False, "tool", "verification")


async def test_the_end_of_an_old_task_is_held_until_it_was_told(tmp_path: Path) -> None:
    async with terminal(tmp_path, PlayedSandbox(PASSED)) as shell:
        tasks: list[str] = []
        for _ in range(MAX_ENDED + 2):
            tasks.append(await start(shell))
            await over(tasks[-1])
        await shell.call("list_tasks")
        await start(shell)
        seen = [await shell.call("wait_task", task_id=task_id) for task_id in tasks]

    assert {view.kind for view in seen} == {"verification"}


@pytest.mark.requirement("R183", "P14")
async def test_tests_in_the_background_that_passed_have_passed(tmp_path: Path) -> None:
    async with terminal(tmp_path, PlayedSandbox(PASSED)) as shell:
        await shell.call("wait_task", task_id=await start(shell))
        told = await verdict(shell)

    assert (told.status, [one.check.command for one in told.evidence]) == ("passed", ["pytest -q"])


async def change_while_it_tests(shell: Terminal, gate: Gate) -> Observation:
    """The state of things at the end is not the one that was tested."""
    task_id = await start(shell)
    gate.play = Play(changes=writes("shop.py"))
    await shell.run("touch shop.py")
    gate.is_open.set()
    return await shell.call("wait_task", task_id=task_id)


@pytest.mark.requirement("P14")
async def test_a_change_while_tests_run_in_the_background_makes_them_stale(tmp_path: Path) -> None:
    async with terminal(tmp_path, gate := Gate(PASSED)) as shell:
        seen = await change_while_it_tests(shell, gate)
        told = await verdict(shell)

    assert (seen.facts["verification"]["ok"], seen.facts["verification"]["changed_during"]) == (True, True)
    assert (told.status, told.evidence[0].change and told.evidence[0].change.tool) == ("stale", "bash")


@pytest.mark.requirement("P14")
async def test_a_later_check_of_the_same_files_does_not_renew_tests_during_which_they_changed(tmp_path: Path) -> None:
    async with terminal(tmp_path, gate := Gate(PASSED)) as shell:
        seen = await change_while_it_tests(shell, gate)
        gate.play = Play(output=(("stdout", b"All checks passed!\n"),))
        linted = await shell.run("ruff check .")
        told = await verdict(shell)

    assert seen.facts["verification"]["workspace"] == linted.facts["verification"]["workspace"]
    assert (told.status, [one.change is None for one in told.evidence]) == ("stale", [False, True])


@pytest.mark.requirement("P14")
@pytest.mark.parametrize(("changes", "status"), [(False, "passed"), (True, "stale")])
async def test_a_look_of_the_foreground_and_one_of_the_background_are_held_against_each_other(
    tmp_path: Path, changes: bool, status: str
) -> None:
    """A person may have changed a file, and no call told of it."""
    commands = PlayedSandbox(PASSED)

    async with terminal(tmp_path, commands) as shell:
        await shell.run("pytest -q")
        if changes:
            (tmp_path / "shop.py").write_text("x = 2\n")
        commands.play = Play(output=(("stdout", b"All checks passed!\n"),))
        await shell.call("wait_task", task_id=await start(shell, "ruff check ."))
        told = await verdict(shell)

    assert (told.status, [one.change is None for one in told.evidence]) == (status, [not changes, True])


@pytest.mark.requirement("P14")
async def test_an_edit_after_tests_in_the_background_were_told_makes_them_stale(tmp_path: Path) -> None:
    commands = PlayedSandbox(PASSED)

    async with terminal(tmp_path, commands) as shell:
        await shell.call("wait_task", task_id=await start(shell))
        commands.play = Play(changes=writes("shop.py"))
        await shell.run("touch shop.py")
        told = await verdict(shell)

    assert told.status == "stale"


async def test_tests_that_were_stopped_have_neither_passed_nor_failed(tmp_path: Path) -> None:
    async with terminal(tmp_path, PlayedSandbox(SLOW)) as shell:
        seen = await shell.call("stop_task", task_id=await start(shell))
        told = await verdict(shell)

    assert (seen.kind, seen.facts["verification"]["ok"], told.status) == ("verification", None, "none")


async def test_tests_in_the_background_that_took_too_long_have_failed(tmp_path: Path) -> None:
    async with terminal(tmp_path, PlayedSandbox(SLOW), max_task_seconds=0.01) as shell:
        seen = await shell.call("wait_task", task_id=await start(shell))

    assert (seen.facts["task"]["status"], seen.facts["verification"]["ok"]) == ("timed_out", False)


# What it changed.


async def test_what_changed_while_a_task_ran_is_told_with_its_end(tmp_path: Path) -> None:
    commands = PlayedSandbox(Play(changes=writes("made.txt"), exit_code=3))

    async with terminal(tmp_path, commands) as shell:
        task_id = await start(shell, "make all")
        first, again = [await shell.call("wait_task", task_id=task_id) for _ in range(2)]

    [effect] = first.side_effects
    assert not isinstance(effect, str)
    assert (effect.kind, effect.target) == ("modified", "workspace")
    assert effect.detail == "while it ran, 1 changed: created made.txt"
    assert again.side_effects == ()


@pytest.mark.parametrize(
    ("command", "play"), [("make all", Play()), ("cat file", Play()), ("cat file", Play(changes=writes("by-others")))]
)
async def test_a_task_during_which_nothing_changed_or_that_only_reads_changed_nothing(
    tmp_path: Path, command: str, play: Play
) -> None:
    async with terminal(tmp_path, PlayedSandbox(play)) as shell:
        seen = await shell.call("wait_task", task_id=await start(shell, command))

    assert seen.side_effects == ()


@pytest.mark.requirement("P14")
async def test_tests_that_passed_beside_a_server_stay_so_when_it_is_stopped(tmp_path: Path) -> None:
    """What changed before the tests is not told as if it had changed after them."""
    commands = PlayedSandbox(Play(hangs=True))

    async with terminal(tmp_path, commands) as shell:
        server = await start(shell, "npm start")
        commands.play = Play(changes=writes("shop.py"))
        await shell.run("touch shop.py")
        commands.play = PASSED
        await shell.run("pytest -q")
        stopped = await shell.call("stop_task", task_id=server)
        told = await verdict(shell)

    assert (stopped.side_effects, told.status) == ((), "passed")


@pytest.mark.requirement("P14")
async def test_tests_that_passed_beside_a_task_that_wrote_later_are_stale(tmp_path: Path) -> None:
    commands = PlayedSandbox(Play(hangs=True))

    async with terminal(tmp_path, commands) as shell:
        task_id = await start(shell, "make all")
        commands.play = PASSED
        await shell.run("pytest -q")
        before = await verdict(shell)
        (tmp_path / "made.txt").write_text("by the task")
        commands.running[0].stopped.set()
        await shell.call("wait_task", task_id=task_id)
        told = await verdict(shell)

    assert (before.status, told.status) == ("passed", "stale")


async def test_where_nobody_could_look_a_task_may_have_changed_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hindered(_: object) -> object:
        raise OSError("no more files")

    async with terminal(tmp_path, PlayedSandbox(SLOW)) as shell:
        task_id = await start(shell)
        monkeypatch.setattr("interlock.tools.shell.command_effects.fingerprint_workspace", hindered)
        seen = await shell.call("stop_task", task_id=task_id)

    [effect] = seen.side_effects
    assert not isinstance(effect, str)
    assert "may have changed" in effect.detail
    assert (seen.kind, seen.facts["verification"]["workspace"]) == ("verification", "unknown")


async def after_a_restart(tmp_path: Path, command: str, *, listed: bool) -> list[Observation]:
    """What another process says of a task, twice; the first one may have listed that it is over."""
    run = {"log": MemoryLog(), "artifacts": MemoryArtifacts(), "run_id": "run_tasks"}
    commands = PlayedSandbox(PASSED if listed else SLOW)
    async with terminal(tmp_path, commands, run=run) as shell:
        task_id = await start(shell, command)
        if listed:
            await over(task_id)
            await shell.call("list_tasks")
    async with terminal(tmp_path, commands, run=run, calls=100) as later:
        return [await later.call("wait_task", task_id=task_id) for _ in range(2)]


@pytest.mark.parametrize(("listed", "status"), [(False, "unknown"), (True, "exited")])
async def test_a_task_whose_end_was_not_told_may_have_changed_something_after_a_restart(
    tmp_path: Path, listed: bool, status: str
) -> None:
    first, again = await after_a_restart(tmp_path, "pytest -q", listed=listed)

    assert (first.kind, first.facts["task"]["status"], again.facts["task"]["status"]) == ("tool", status, status)
    assert (len(first.side_effects), again.side_effects) == (1, ())


async def test_a_task_that_could_only_read_changed_nothing_whoever_saw_its_end(tmp_path: Path) -> None:
    first, _ = await after_a_restart(tmp_path, "cat file", listed=False)

    assert first.side_effects == ()
