"""Commands in the background: started, read, waited for, stopped, and what a later process says about them."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from interlock import MemoryArtifacts, MemoryLog
from interlock.domain.observation import Observation
from interlock.tools.shell.tasks import MAX_ENDED
from tests.patience import HANG_SECONDS
from tests.tools.shell import Play, PlayedSandbox, Terminal, terminal

HANGS = Play(hangs=True, output=(("stdout", b"listening on 8000\n"),))
ENDS = Play(output=(("stdout", b"built\n"), ("stderr", b"1 warning\n")), exit_code=3)


def text_of(observation: Observation) -> str:
    return observation.content.text if observation.content else ""


async def start(shell: Terminal, command: str = "npm start", **arguments: Any) -> str:
    said = await shell.run(command, background=True, **arguments)
    assert said.ok, said
    (found,) = re.findall(r"task_[0-9a-f]{8}", said.summary)
    return found


async def started_and_over(shell: Terminal) -> str:
    """A task that came to its end, and that the run was not told of."""
    task_id = await start(shell)
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == task_id))
    return task_id


@pytest.mark.requirement("R226")
async def test_a_task_starts_and_the_call_returns_at_once(tmp_path: Path) -> None:
    async with terminal(tmp_path, PlayedSandbox(HANGS)) as shell:
        task_id = await start(shell)
        said = await shell.call("read_task", task_id=task_id)

    assert said.facts["task"]["status"] == "running"
    assert text_of(said).endswith("[bytes 0-18 of 18; this is the end]\nlistening on 8000\n")


async def test_reading_goes_on_from_the_next_offset(tmp_path: Path) -> None:
    async with terminal(tmp_path, PlayedSandbox(HANGS)) as shell:
        task_id = await start(shell)
        first = await shell.call("read_task", task_id=task_id, limit=10)
        rest = await shell.call("read_task", task_id=task_id, offset=10)

    assert text_of(first).endswith("[bytes 0-10 of 18; next offset 10]\nlistening ")
    assert text_of(rest).endswith("\non 8000\n")


async def test_waiting_returns_when_the_task_is_over_and_its_output_is_an_artifact(tmp_path: Path) -> None:
    async with terminal(tmp_path, PlayedSandbox(ENDS)) as shell:
        task_id = await start(shell)
        said = await shell.call("wait_task", task_id=task_id)
        kept = await shell.call("read_artifact", artifact_id=said.facts["task"]["output"])

    task = said.facts["task"]
    assert (task["status"], task["exit_code"], said.exit_code) == ("exited", 3, 3)
    assert "built\n1 warning\n" in text_of(said)
    assert "built\n1 warning\n" in text_of(kept)


async def test_waiting_for_a_task_that_goes_on_ends_in_time_and_leaves_it_alone(tmp_path: Path) -> None:
    commands = PlayedSandbox(HANGS)

    async with terminal(tmp_path, commands) as shell:
        task_id = await start(shell)
        said = await shell.call("wait_task", task_id=task_id, timeout_seconds=0.01)

        assert (said.facts["task"]["status"], commands.running[0].stopped.is_set()) == ("running", False)
        assert "It is still running" in text_of(said)


async def test_the_end_of_a_task_wakes_who_waits_for_it(tmp_path: Path) -> None:
    commands = PlayedSandbox(HANGS)

    async with terminal(tmp_path, commands) as shell:
        task_id = await start(shell)
        waiting = asyncio.ensure_future(shell.call("wait_task", task_id=task_id, timeout_seconds=600))
        await asyncio.wait([waiting], timeout=0.01)
        commands.running[0].stopped.set()
        said = await asyncio.wait_for(waiting, HANG_SECONDS)

    assert said.facts["task"]["status"] == "stopped"


async def test_a_stopped_task_is_over(tmp_path: Path) -> None:
    commands = PlayedSandbox(HANGS)

    async with terminal(tmp_path, commands) as shell:
        task_id = await start(shell)
        said = await shell.call("stop_task", task_id=task_id)
        again = await shell.call("stop_task", task_id=task_id)

    assert commands.running[0].stopped.is_set()
    assert said.facts["task"]["status"] == again.facts["task"]["status"] == "stopped"
    assert said.summary.startswith(f"{task_id} stopped (after ")
    assert "listening on 8000" in text_of(said)


async def test_a_task_has_a_time_too(tmp_path: Path) -> None:
    commands = PlayedSandbox(HANGS)

    async with terminal(tmp_path, commands, max_task_seconds=0.01) as shell:
        task_id = await start(shell, timeout_seconds=5)
        said = await shell.call("wait_task", task_id=task_id)

    assert (commands.running[0].timeout, said.facts["task"]["status"]) == (0.01, "timed_out")


async def test_how_an_old_task_ended_is_held_until_it_was_told(tmp_path: Path) -> None:
    async with terminal(tmp_path, PlayedSandbox(ENDS)) as shell:
        tasks = [await started_and_over(shell) for _ in range(MAX_ENDED + 2)]
        await start(shell)
        told = [await shell.call(name, task_id=tasks[0]) for name in ("wait_task", "stop_task", "read_task")]
        await start(shell)
        later = await shell.call("read_task", task_id=tasks[0])

    assert {(each.facts["task"]["status"], each.exit_code) for each in (*told, later)} == {("exited", 3)}
    assert f"output in artifact {told[0].artifacts[0].id}" in text_of(told[0])
    assert all("built\n1 warning\n" in text_of(each) for each in (*told[1:], later))


async def test_closing_the_shell_stops_every_task(tmp_path: Path) -> None:
    commands = PlayedSandbox(HANGS)

    async with terminal(tmp_path, commands) as shell:
        for _ in range(3):
            await start(shell)
        await shell.shell.close()
        late = await shell.run("npm start", background=True)

    assert all(running.stopped.is_set() for running in commands.running)
    assert late.code == "runtime_precondition_failed"


async def test_only_so_many_tasks_run_at_once(tmp_path: Path) -> None:
    async with terminal(tmp_path, PlayedSandbox(HANGS)) as shell:
        started = [await start(shell) for _ in range(8)]
        refused = await shell.run("npm start", background=True)
        await shell.call("stop_task", task_id=started[0])
        await start(shell)

    assert refused.code == "runtime_precondition_failed"
    assert "Stop one" in refused.summary


async def test_tasks_are_listed_with_their_commands(tmp_path: Path) -> None:
    commands = PlayedSandbox(HANGS)

    async with terminal(tmp_path, commands) as shell:
        empty = await shell.call("list_tasks")
        first = await start(shell, "npm start")
        commands.play = ENDS
        second = await start(shell, "make all")
        await shell.call("wait_task", task_id=second)
        said = await shell.call("list_tasks")

    assert text_of(empty) == "There are no background tasks."
    assert said.summary == "2 tasks, 1 running"
    running, over = text_of(said).splitlines()
    assert (running.startswith(f"{first} running"), running.endswith(": npm start")) == (True, True)
    assert (over.startswith(f"{second} exited (exit 3"), over.endswith(": make all")) == (True, True)


@pytest.mark.parametrize("tool_name", ["read_task", "wait_task", "stop_task"])
async def test_a_task_that_is_not_of_this_run_is_not_there(tmp_path: Path, tool_name: str) -> None:
    commands = PlayedSandbox(HANGS)

    async with terminal(tmp_path, commands) as other, terminal(tmp_path, commands) as shell:
        task_id = await start(other)
        said = await shell.call(tool_name, task_id=task_id)
        unknown = await shell.call(tool_name, task_id="task_\u2028")

        assert not commands.running[0].stopped.is_set()

    assert said.code == unknown.code == "runtime_precondition_failed"


async def test_what_a_task_may_change_is_unknown_unless_it_can_only_read(tmp_path: Path) -> None:
    async with terminal(tmp_path, PlayedSandbox(HANGS)) as shell:
        writes = await shell.run("npm start", background=True)
        reads = await shell.run("cat file", background=True)

    assert (writes.side_effects, reads.side_effects) == ("unknown", ())


async def test_a_secret_in_a_task_goes_nowhere(tmp_path: Path) -> None:
    secret = "hunter2-hunter2-hunter2"
    play = Play(hangs=True, output=(("stdout", b"key: hunter2-hunter2-hunter2\n"),))

    async with terminal(tmp_path, PlayedSandbox(play), run={"secrets": {"KEY": secret}}) as shell:
        task_id = await start(shell, f"serve {secret}")
        said = [await shell.call("read_task", task_id=task_id), await shell.call("list_tasks")]

    assert secret not in str(said)
    assert said[0].facts["task"]["status"] == "running"


async def after_a_restart(tmp_path: Path, play: Play, *, seen: bool) -> tuple[str, dict[str, Observation]]:
    """What another process says about a task that the first one held."""
    run = {"log": MemoryLog(), "artifacts": MemoryArtifacts(), "run_id": "run_tasks"}
    async with terminal(tmp_path, PlayedSandbox(play), run=run) as shell:
        task_id = await start(shell)
        if seen:
            await shell.call("wait_task", task_id=task_id)
    async with terminal(tmp_path, PlayedSandbox(play), run=run, calls=100) as later:
        said = {
            "list_tasks": await later.call("list_tasks"),
            "wait_task": await later.call("wait_task", task_id=task_id),
            "read_task": await later.call("read_task", task_id=task_id),
            "stop_task": await later.call("stop_task", task_id=task_id),
        }
    return task_id, said


async def test_a_task_that_nobody_holds_any_more_is_unknown_and_never_running(tmp_path: Path) -> None:
    task_id, said = await after_a_restart(tmp_path, HANGS, seen=False)

    assert {name: each.facts["task"]["status"] for name, each in said.items() if name != "list_tasks"} == {
        "wait_task": "unknown",
        "read_task": "unknown",
        "stop_task": "unknown",
    }
    assert text_of(said["list_tasks"]).startswith(f"{task_id} unknown (interrupted: the process that ran it is gone")
    assert said["list_tasks"].state[f"task:{task_id}"]["status"] == "unknown"


async def test_a_task_whose_end_was_seen_is_known_after_a_restart(tmp_path: Path) -> None:
    _, said = await after_a_restart(tmp_path, ENDS, seen=True)

    assert (said["wait_task"].facts["task"]["status"], said["wait_task"].exit_code) == ("exited", 3)
    assert "built\n1 warning\n" in text_of(said["read_task"])
