"""A command that must be alone: the others of its workspace are stopped until it lets them continue."""

import asyncio
import os
from pathlib import Path

import pytest

from interlock.domain.errors import SandboxSetupError
from interlock.sandbox.commands import workspace_lease
from interlock.sandbox.host import process_tree
from interlock.sandbox.host.process_tree import list_children, list_descendants
from interlock.sandbox.interface import CommandSandbox, ExclusiveUntil, OutputStream, RunningCommand
from tests.patience import eventually

from .commands import Printed, a_command, usable
from .ordinary_user import pytest_as_ordinary_user

#: Children, a daemon in a session of its own, and a loop that never waits.
BUSY = "date > clock; (setsid bash -c 'while :; do :; done' &); sleep 1000 & echo up; while :; do date > clock; done"


@pytest.fixture(params=["bubblewrap", "landlock", "none"])
def sandbox(request: pytest.FixtureRequest) -> CommandSandbox:
    return usable(request.param)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for name in ("inner", "other"):
        (tmp_path / name).mkdir()
    return tmp_path.resolve()


class Up:
    """Waits for the first words of a command."""

    def __init__(self) -> None:
        self.seen = asyncio.Event()

    def __call__(self, stream: OutputStream, chunk: bytes) -> None:
        self.seen.set()


async def start_busy(sandbox: CommandSandbox, workspace: Path) -> RunningCommand:
    up = Up()
    running = await sandbox.start(a_command(BUSY, workspace), up)
    await asyncio.wait_for(up.seen.wait(), 20)
    return running


def states(pids: list[int]) -> set[str]:
    """What every thread of these processes is doing."""
    found: set[str] = set()
    for pid in pids:
        for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
            found.add(stat.read_text().rpartition(")")[2].split()[0])
    return found


@pytest.mark.requirement("P20")
@pytest.mark.parametrize("folder", ["", "inner"])
async def test_others_are_stopped_while_it_runs(sandbox: CommandSandbox, workspace: Path, folder: str) -> None:
    # Other tests share processes: a database, a browser.
    others = set(list_children(os.getpid()))
    busy = await start_busy(sandbox, workspace / folder)
    # The launched programs themselves run nothing of a model.
    launched = set(list_children(os.getpid())) - others
    inside = [pid for each in launched for pid in list_descendants(each)]
    up = Up()

    alone = await sandbox.start(a_command("echo up; sleep 1000", workspace, exclusive_until="end"), up)
    await asyncio.wait_for(up.seen.wait(), 20)
    during = states(inside)
    await alone.stop()
    clock = (workspace / folder / "clock").stat().st_mtime_ns
    await eventually(lambda: (workspace / folder / "clock").stat().st_mtime_ns != clock)
    await busy.stop()

    assert during <= {"T", "Z"}


@pytest.mark.parametrize("alone", ["start", "end"])
async def test_others_continue_after_it(sandbox: CommandSandbox, workspace: Path, alone: ExclusiveUntil) -> None:
    busy = await start_busy(sandbox, workspace)

    running = await sandbox.start(
        a_command("sleep 1000" if alone == "start" else "true", workspace, exclusive_until=alone), Printed()
    )
    if alone == "end":
        await running.wait(20)
    clock = (workspace / "clock").stat().st_mtime_ns
    await eventually(lambda: (workspace / "clock").stat().st_mtime_ns != clock)
    await running.stop()
    await busy.stop()


async def test_new_commands_wait_until_it_ends(sandbox: CommandSandbox, workspace: Path) -> None:
    alone = await sandbox.start(a_command("sleep 1000", workspace, exclusive_until="end"), Printed())

    starting = asyncio.create_task(sandbox.start(a_command("touch late", workspace), Printed()))
    second = asyncio.create_task(sandbox.start(a_command("touch later", workspace, exclusive_until="end"), Printed()))
    await asyncio.wait([starting, second], timeout=0.2)
    is_late = (workspace / "late").exists() or (workspace / "later").exists()
    await alone.stop()
    for one in (starting, second):
        await (await one).wait(20)

    assert not is_late
    assert (workspace / "late").exists()
    assert (workspace / "later").exists()


async def test_other_folders_are_left_alone(sandbox: CommandSandbox, workspace: Path) -> None:
    one, other = workspace / "inner", workspace / "other"
    busy = await start_busy(sandbox, other)
    alone = await sandbox.start(a_command("sleep 1000", one, exclusive_until="end"), Printed())

    clock = (other / "clock").stat().st_mtime_ns
    await eventually(lambda: (other / "clock").stat().st_mtime_ns != clock)
    await alone.stop()
    await busy.stop()


async def test_what_does_not_stop_means_nothing_runs(
    sandbox: CommandSandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = await start_busy(sandbox, workspace)
    monkeypatch.setattr(workspace_lease, "_STOP_SECONDS", 0.01)
    monkeypatch.setattr(process_tree, "_STOPPED", ())

    with pytest.raises(SandboxSetupError, match=r"could not be stopped.*Nothing was executed"):
        await sandbox.start(a_command("touch ran", workspace, exclusive_until="end"), Printed())
    clock = (workspace / "clock").stat().st_mtime_ns
    await eventually(lambda: (workspace / "clock").stat().st_mtime_ns != clock)
    await busy.stop()

    assert not (workspace / "ran").exists()


async def test_a_cancelled_wait_leaves_no_turn(sandbox: CommandSandbox, workspace: Path) -> None:
    alone = await sandbox.start(a_command("sleep 1000", workspace, exclusive_until="end"), Printed())
    waiting = asyncio.create_task(sandbox.start(a_command("touch ran", workspace, exclusive_until="end"), Printed()))
    await asyncio.wait([waiting], timeout=0.05)

    waiting.cancel()
    await asyncio.wait([waiting])
    await alone.stop()
    done = await sandbox.start(a_command("true", workspace, exclusive_until="end"), Printed())
    await done.wait(20)

    assert not (workspace / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="it is one already")
def test_all_of_this_holds_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user(__file__)
