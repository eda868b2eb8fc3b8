"""Commands that will not end, want too much or pull the floor away: all of it ends, and nothing is left."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.sandbox.interface import CommandLimits
from tests.patience import HANG_SECONDS, eventually
from tests.sandbox.ordinary_user import pytest_as_ordinary_user
from tests.support import call

from .toolbox import CANARY, Box, box, commands_of, processes_with, text_of

TOKEN = f"left-behind-{os.getpid()}"
SMALL = CommandLimits(
    memory_bytes=256 << 20,
    processes=24,
    open_files=64,
    file_bytes=1 << 20,
    temporary_bytes=2 << 20,
    output_bytes=1 << 20,
    grace_seconds=0.2,
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert processes_with(TOKEN) == []
    assert len(os.listdir("/proc/self/fd")) <= before + 4


_STUBBORN = {
    "a daemon": "setsid nohup bash -c ': {token}; sleep 60' >/dev/null 2>&1 &",
    "a daemon that holds our pipes": "setsid bash -c ': {token}; sleep 60' &",
    "a grandchild whose parent is gone": "( ( bash -c ': {token}; sleep 60' & ) & )",
    "one that ignores everything": "bash -c 'trap \"\" TERM INT HUP QUIT; : {token}; sleep 60; sleep 60' & wait",
    "one that kills all others": "bash -c ': {token}; sleep 60' & kill -9 -1; sleep 60",
    "one that stops itself": "bash -c ': {token}; kill -STOP $$' & wait",
    "one that starts itself again": "f() {{ trap 'f' TERM; : {token}; sleep 60; }}; f",
}


@pytest.mark.requirement("R224")
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
@pytest.mark.parametrize("who", _STUBBORN)
async def test_whoever_will_not_end_is_ended(workspace: Path, who: str, backend: str) -> None:
    async with box(workspace, commands=commands_of(backend), limits=SMALL) as run:
        await run.bash(_STUBBORN[who].format(token=TOKEN), timeout_seconds=0.5)
        assert processes_with(TOKEN) == []

        started = await run.bash(_STUBBORN[who].format(token=TOKEN), timeout_seconds=30, background=True)
        stopped = await run.call("stop_task", task_id=started.facts["task"]["id"])

    assert stopped.ok


_GREEDY = {
    "fills the temporary folder": "head -c 8000000 /dev/zero > /tmp/x",
    "fills the home": "head -c 8000000 /dev/zero > ~/x",
    "fills the shared memory": "head -c 8000000 /dev/zero > /dev/shm/x",
    "writes a large file": "head -c 8000000 /dev/zero > x",
    "opens many files": "python3 -c \"f = [open('/dev/null') for _ in range(1000)]\"",
    "takes much memory": "python3 -c \"x = b'x' * (400 << 20)\"",
    "starts many processes": "for i in {1..64}; do sleep 2 & done; wait",
    "prints without end": "yes",
    "goes deep": "python3 -c \"import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(500)]\"; exit 1",
}


@pytest.mark.parametrize("what", _GREEDY)
async def test_whoever_wants_too_much_does_not_get_it_and_the_next_command_runs(workspace: Path, what: str) -> None:
    async with box(workspace, commands=commands_of("bubblewrap"), limits=SMALL) as run:
        said = await run.bash(_GREEDY[what], timeout_seconds=20)
        after = await run.bash("echo fine")
        listed = await run.call("list_dir", path=".")
        await run.bash("rm -rf d")

    assert not said.ok
    assert (after.ok, text_of(after), listed.ok) == (True, "fine", True)
    assert not (workspace / "x").exists() or (workspace / "x").stat().st_size <= 1 << 20


async def test_a_workspace_that_goes_away_meanwhile_is_told_and_nothing_breaks(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        begun = asyncio.create_task(run.bash("echo begun > begun; while [ -e begun ]; do sleep 0.02; done; echo over"))
        await eventually((workspace / "begun").exists)
        workspace.rename(tmp_path / "moved")
        (tmp_path / "moved" / "begun").unlink()
        during = await begun
        after = [
            await run.bash("echo after"),
            await run.call("list_dir", path="."),
            await run.call("write_file", path="new", content="x"),
            await run.call("grep", pattern="x"),
        ]

    assert "over" in text_of(during)
    assert not after[0].ok
    assert not (tmp_path / "workspace").exists()
    assert [one.code for one in after] != []


async def test_another_folder_in_the_place_of_the_workspace_does_not_show_its_secrets(tmp_path: Path) -> None:
    """Files are reached by a descriptor and commands by a path. Somebody clones the project anew meanwhile."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        await run.bash("true")
        workspace.rename(tmp_path / "moved")
        workspace.mkdir()
        (workspace / ".env").write_text(CANARY)
        said = await run.bash("cat .env; echo evil > .envrc; ls -A")

    assert CANARY not in text_of(said)


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": ""},
        {"command": "\0"},
        {"command": "echo \0"},
        {"command": "x" * 100_001},
        {"command": "\ud800"},
        {"command": "echo hi", "cwd": "\0"},
        {"command": "echo hi", "cwd": "x" * 5_000},
        {"command": "echo hi", "cwd": "d/" * 3_000},
        {"command": "echo hi", "cwd": "nothing"},
        {"command": "echo hi", "timeout_seconds": 0},
        {"command": "echo hi", "timeout_seconds": -1},
        {"command": "echo hi", "timeout_seconds": "forever"},
        {"command": "((((((((" * 1_000},
        {"command": "$(" * 5_000},
    ],
)
async def test_what_cannot_be_run_is_told(workspace: Path, arguments: dict[str, Any]) -> None:
    async with box(workspace, commands=commands_of("bubblewrap")) as run:
        said = await run.call("bash", **arguments)
        after = await run.bash("echo fine")

    assert not said.ok or text_of(said) == ""
    assert text_of(after) == "fine"


async def test_a_storm_of_cancelled_commands_leaves_nothing(workspace: Path) -> None:
    dice = random.Random(7)
    async with box(workspace, commands=commands_of("bubblewrap"), limits=SMALL) as run:
        await run.bash("true")
        script = f": {TOKEN}; echo begun; setsid bash -c ': {TOKEN}; sleep 60' & sleep 60"
        calls = [call(f"storm-{number}", "bash", command=f"{script} # {number}") for number in range(20)]
        batch = asyncio.create_task(run.runtime.execute(calls))
        waiting = [one.call_id for one in calls]
        dice.shuffle(waiting)
        for call_id in waiting:
            await _turns(dice.randrange(20))
            run.runtime.cancel_call(call_id)
        result = await asyncio.wait_for(batch, HANG_SECONDS)

    assert {said.code for said in result.observations} <= {"cancelled", "cancelled_before_start", "interrupted"}
    assert len(result.observations) == 20


async def test_closing_ends_a_command_and_a_task_under_way(workspace: Path) -> None:
    run = Box(workspace, commands=commands_of("bubblewrap"), limits=SMALL)
    started = await run.bash(f": {TOKEN}; sleep 60", background=True)
    begun = asyncio.create_task(run.bash(f": {TOKEN}; touch begun; sleep 60"))
    await eventually((workspace / "begun").exists)
    begun.cancel()
    await asyncio.wait([begun])
    await asyncio.wait_for(run.runtime.close(), HANG_SECONDS)

    assert started.ok
    assert processes_with(TOKEN) == []


_DRIVER = """
import asyncio, sys
from pathlib import Path
from tests.local.toolbox import Box, commands_of
async def main():
    run = Box(Path(sys.argv[1]), commands=commands_of("bubblewrap"))
    await run.bash(": {token}; sleep 300", background=True)
    begun = asyncio.create_task(run.bash(": {token}; touch begun; sleep 300"))
    while not (Path(sys.argv[1]) / "begun").exists():
        await asyncio.sleep(0.01)
    print("ready", flush=True)
    {end}
asyncio.run(main())
"""
_ENDS = {
    "it is killed": "await begun",
    "it forgets to close": "import os; os._exit(0)",
    "it fails": "raise SystemExit(3)",
}


@pytest.mark.parametrize("how", _ENDS)
def test_nothing_is_left_when_the_process_ends_without_closing(workspace: Path, how: str) -> None:
    root = Path(__file__).parents[2]
    # Not in the words of the driver's command line, where it would be found.
    program = workspace.parent / "driver.py"
    program.write_text(_DRIVER.replace("{token}", TOKEN).replace("{end}", _ENDS[how]))
    environment = {**os.environ, "PYTHONPATH": f"{root}/src:{root}"}
    with subprocess.Popen(
        [sys.executable, str(program), str(workspace)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"ready\n"
        if how == "it is killed":
            driver.send_signal(signal.SIGKILL)
        driver.wait(HANG_SECONDS)

    asyncio.run(eventually(lambda: not processes_with(TOKEN)))


@pytest.mark.skipif(os.geteuid() != 0, reason="this is an ordinary user")
def test_whoever_will_not_end_is_ended_under_landlock() -> None:
    pytest_as_ordinary_user("tests/local/test_limits_and_ends.py", "-k", "landlock and not under_landlock")


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.to_thread(os.sched_yield)
