"""Background tasks that outlive the process of their run."""

import asyncio
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock import CallbackInteractionProvider, ConfigurationError, LocalTools
from interlock.sandbox.commands.probe import SandboxBackend
from interlock.sandbox.host.process_tree import list_descendants
from interlock.sandbox.interface import CommandLimits
from interlock.sandbox.tasks.client import list_workspaces
from tests.patience import eventually
from tests.sandbox.commands import usable
from tests.sandbox.ordinary_user import pytest_as_ordinary_user

from .conftest import StartLife
from .runs import find_supervisor, is_dead, kill_supervisor, no_supervisor, open_run, text_of

COUNTS = "for i in 1 2 3; do echo line $i; done; while [ ! -e go ]; do sleep 0.02; done; echo last; touch made"
FOREVER = "echo up; sleep 1000"


async def test_a_task_survives_kill_9_of_its_process(folder: Path, start_life: StartLife) -> None:
    life = start_life()
    task_id = life.call("bash", command=COUNTS, background=True)["facts"]["task"]["id"]
    life.kill()

    async with open_run(folder) as run:
        await run.printed(task_id, "line 3")
        first = await run.call("read_task", task_id=task_id, limit=7)
        assert first.facts["task"]["status"] == "running"
        (folder / "workspace" / "go").touch()
        ended = await run.call("wait_task", task_id=task_id)
        rest = await run.call("read_task", task_id=task_id, offset=7)

    assert ended.facts["task"]["status"] == "exited"
    assert ended.side_effects != "unknown"
    assert "created made" in ended.side_effects[0].detail
    assert text_of(rest).endswith("line 2\nline 3\nlast\n")
    await no_supervisor(folder)


async def test_a_later_process_stops_the_task(folder: Path) -> None:
    async with open_run(folder) as run:
        task_id = await run.start(FOREVER)
    below = list_descendants(find_supervisor(folder).pid)

    async with open_run(folder) as later:
        stopped = await later.call("stop_task", task_id=task_id)
        again = await later.call("stop_task", task_id=task_id)

    assert stopped.facts["task"]["status"] == again.facts["task"]["status"] == "stopped"
    await eventually(lambda: all(map(is_dead, below)))


@pytest.mark.parametrize("backend", ["landlock", "none"])
async def test_other_sandboxes_end_with_the_supervisor(folder: Path, backend: SandboxBackend) -> None:
    options: dict[str, Any] = {
        "commands": usable(backend),
        "run": {"interaction": CallbackInteractionProvider(lambda question: True)},
    }
    async with open_run(folder, **options) as run:
        task_id = await run.start(FOREVER)
    async with open_run(folder, **options) as later:
        await later.printed(task_id, "up")
        below = kill_supervisor(folder)
        assert await later.status(task_id) == "unknown"
    await eventually(lambda: all(map(is_dead, below)))


async def test_an_end_that_no_process_saw_is_reported_later(folder: Path) -> None:
    async with open_run(folder) as run:
        task_id = await run.start("echo done; echo oops >&2; touch made; exit 3")
    await no_supervisor(folder)

    async with open_run(folder) as later:
        listed = await later.call("list_tasks")
        ended = await later.call("read_task", task_id=task_id)
        await later.call("list_tasks")

    assert (listed.facts["tasks"][0]["status"], ended.exit_code) == ("exited", 3)
    assert "done\noops\n" in text_of(ended)
    assert ended.artifacts
    # Once the run knows the outcome, nothing of the task is kept beside the log.
    assert not list((folder / "tasks").glob("*/task_*"))


@pytest.mark.parametrize("is_followed", [True, False])
async def test_a_task_without_its_supervisor_is_unknown(folder: Path, is_followed: bool) -> None:
    async with open_run(folder) as run:
        task_id = await run.start(FOREVER)
        await run.printed(task_id, "up")
        below = kill_supervisor(folder)
        if is_followed:
            said = await run.call("read_task", task_id=task_id)
        else:
            async with open_run(folder) as later:
                said = await later.call("read_task", task_id=task_id)

    assert said.facts["task"]["status"] == "unknown"
    assert "its supervisor is gone" in said.summary
    assert "up\n" in text_of(said)
    assert "it may have changed something" in str(said.side_effects)
    await eventually(lambda: all(map(is_dead, below)))


async def test_another_supervisor_does_not_know_the_task(folder: Path) -> None:
    async with open_run(folder) as run:
        lost = await run.start(FOREVER)
        kill_supervisor(folder)
        other = await run.start(FOREVER)
        statuses = [await run.status(task_id) for task_id in (lost, other)]
        await run.call("stop_task", task_id=other)

    assert statuses == ["unknown", "running"]


async def test_a_start_that_was_not_recorded_is_found(folder: Path) -> None:
    """The process was killed after the task began, and before the log knew."""
    async with open_run(folder) as run:
        task_id = await run.start(FOREVER)
    (folder / "log.db").rename(folder / "other.db")

    async with open_run(folder) as later:
        listed = await later.call("list_tasks")
        stopped = await later.call("stop_task", task_id=task_id)

    assert (listed.summary, stopped.facts["task"]["status"]) == ("1 tasks, 1 running", "stopped")


async def test_a_start_that_was_never_asked_for_is_no_task(folder: Path) -> None:
    """The process was killed before it reached a supervisor."""
    async with open_run(folder) as run:
        task_id = await run.start("true")
        await run.call("wait_task", task_id=task_id)
        (files,) = (folder / "tasks").glob("*/task_*")
        (files / "output").unlink()
        (folder / "log.db").rename(folder / "other.db")
    async with open_run(folder) as later:
        assert (await later.call("list_tasks")).facts["tasks"] == []


async def test_another_run_does_not_reach_the_task(folder: Path) -> None:
    async with open_run(folder) as run, open_run(folder, "run_other") as other:
        task_id = await run.start(FOREVER)
        refused = [await other.call(name, task_id=task_id) for name in ("read_task", "wait_task", "stop_task")]
        listed = await other.call("list_tasks")
        status = await run.status(task_id)
        await run.call("stop_task", task_id=task_id)

    assert {said.code for said in refused} == {"runtime_precondition_failed"}
    assert (listed.facts["tasks"], status) == ([], "running")


async def test_two_clients_at_once_get_one_supervisor(folder: Path) -> None:
    async with open_run(folder) as run, open_run(folder, "run_other") as other:
        tasks = await asyncio.gather(run.start(FOREVER), other.start(FOREVER))
        identity = find_supervisor(folder)
        (files,) = list_workspaces(str(folder / "tasks"))
        listed = await files.list_running()
        await asyncio.gather(run.tools.end_run(run.runtime.run_id), other.tools.end_run("run_other"))

    assert {entry.id for entry in listed} == set(tasks)
    await eventually(lambda: is_dead(identity.pid))


async def test_an_idle_task_is_stopped(folder: Path) -> None:
    async with open_run(folder, task_idle_seconds=0.05) as run:
        task_id = await run.start(FOREVER)
    await no_supervisor(folder)

    async with open_run(folder) as later:
        said = await later.call("read_task", task_id=task_id)

    assert said.facts["task"]["status"] == "stopped"
    assert "no run asked for it for 0.05 s" in said.summary


async def test_a_task_ends_at_its_timeout(folder: Path) -> None:
    async with open_run(folder) as run:
        task_id = await run.start(FOREVER, timeout_seconds=0.1)
    await no_supervisor(folder)

    async with open_run(folder) as later:
        assert await later.status(task_id) == "timed_out"


async def test_endless_output_ends_the_task(folder: Path) -> None:
    async with open_run(folder, limits=CommandLimits(output_bytes=200_000)) as run:
        task_id = await run.start("yes")
        said = await run.call("wait_task", task_id=task_id)
        (spool,) = (folder / "tasks").glob(f"*/{task_id}/output")
        size = spool.stat().st_size

    assert (said.facts["task"]["status"], said.facts["task"]["output_bytes"]) == ("killed", 200_000)
    assert size < 500_000


async def test_a_full_disk_ends_the_task(folder: Path) -> None:
    async with open_run(folder) as run:
        task_id = await run.start("while [ ! -e go ]; do sleep 0.02; done; yes")
        # To a writer, a limit of its files is what a full disk is.
        resource.prlimit(find_supervisor(folder).pid, resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        (folder / "workspace" / "go").touch()
        said = await run.call("wait_task", task_id=task_id)

    assert said.facts["task"]["status"] == "failed"
    assert "File too large" in said.summary


async def test_secrets_are_redacted_where_output_is_read(folder: Path) -> None:
    secret = "hunter2-hunter2-hunter2"
    async with open_run(folder, run={"secrets": {"KEY": secret}}) as run:
        task_id = await run.start(f"echo key {secret}; sleep 1000")
    async with open_run(folder, run={"secrets": {"KEY": secret}}) as later:
        await later.printed(task_id, "key ")
        said = await later.call("stop_task", task_id=task_id)

    assert secret not in str(said)
    assert secret.encode() not in (folder / "log.db").read_bytes()
    assert not [path for path in (folder / "artifacts").rglob("*") if path.is_file() and secret in path.read_text()]


async def test_a_supervisor_has_nothing_of_its_client(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "sk-hunter2-hunter2")
    held = os.open(folder, os.O_RDONLY)
    os.set_inheritable(held, True)
    async with open_run(folder) as run:
        task_id = await run.start(FOREVER)
        process = Path(f"/proc/{find_supervisor(folder).pid}")
        variables, cwd = (process / "environ").read_bytes(), os.readlink(process / "cwd")
        session = int((process / "stat").read_text().rpartition(")")[2].split()[3])
        opened = {os.readlink(path) for path in (process / "fd").iterdir()}
        await run.call("stop_task", task_id=task_id)
    os.close(held)

    assert b"API_KEY" not in variables
    assert (cwd, session == os.getsid(0)) == ("/", False)
    assert str(folder) not in opened


async def test_signals_of_a_terminal_are_ignored(folder: Path) -> None:
    async with open_run(folder) as run:
        task_id = await run.start(FOREVER)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            os.kill(find_supervisor(folder).pid, number)
        assert await run.status(task_id) == "running"
        await run.call("stop_task", task_id=task_id)


async def test_sigterm_stops_all_tasks(folder: Path) -> None:
    async with open_run(folder) as run:
        task_id = await run.start(FOREVER)
        below = kill_supervisor(folder, signal.SIGTERM)
        said = await run.call("read_task", task_id=task_id)

    assert said.facts["task"]["status"] == "stopped"
    assert "its supervisor was stopped" in said.summary
    await eventually(lambda: all(map(is_dead, below)))


async def test_a_command_does_not_inherit_ignored_signals(folder: Path) -> None:
    """As under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        async with open_run(folder) as run:
            task_id = await run.start("kill -HUP $$; echo survived")
            said = await run.call("wait_task", task_id=task_id)
    finally:
        signal.signal(signal.SIGHUP, before)

    assert "survived" not in text_of(said)


async def test_a_long_path_of_the_folder_is_fine(folder: Path) -> None:
    long = folder.joinpath(*["x" * 100] * 3)
    long.mkdir(parents=True)
    async with open_run(folder, task_folder=long / "tasks") as run:
        task_id = await run.start("echo up")
        said = await run.call("wait_task", task_id=task_id)

    assert "up\n" in text_of(said)


def is_open_to_others(tasks: Path) -> None:
    tasks.mkdir()
    tasks.chmod(0o755)


def is_file(tasks: Path) -> None:
    tasks.write_text("")


@pytest.mark.parametrize("spoil", [is_open_to_others, is_file])
async def test_an_unusable_folder_means_nothing_runs(folder: Path, spoil: Callable[[Path], None]) -> None:
    spoil(folder / "tasks")
    async with open_run(folder) as run:
        said = await run.call("bash", command="touch ran", background=True)

    assert not said.ok
    assert "Nothing was executed" in said.summary
    assert not (folder / "workspace" / "ran").exists()


@pytest.mark.parametrize("place", ["workspace/tasks", ".", "shown/tasks"])
def test_commands_must_not_reach_the_folder(folder: Path, place: str) -> None:
    workspace, shown = folder / "workspace", folder / "shown"
    workspace.mkdir()
    with pytest.raises(ConfigurationError, match="background tasks"):
        LocalTools(workspace, task_folder=folder / place, extra_read_paths=[str(shown)])


@pytest.mark.skipif(os.geteuid() != 0, reason="it is one already")
def test_all_of_this_holds_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user(__file__, "-k", "later_process or unknown or landlock")
