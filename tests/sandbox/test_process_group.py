"""Limits of control groups: processes of root, and all memory that the kernel counts."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.sandbox.host.cgroups import (
    CommandCgroup,
    MemoryUsage,
    can_limit_root,
    create_cgroup,
    remove_unused_groups,
)
from tests.patience import eventually, wait_until

from .commands import run, usable
from .hoards import HOARDS, MEGABYTE
from .ordinary_user import NOBODY, run_as_ordinary_user

LIMIT = 100 * MEGABYTE


def has_memory_groups() -> bool:
    group = create_cgroup(3, LIMIT)
    if group is not None:
        group.close()
    return group is not None and group.can_limit_memory


needs_memory = pytest.mark.skipif(not has_memory_groups(), reason="there is no memory controller for us here")
needs_groups = pytest.mark.skipif(not can_limit_root(), reason="not root, or there are no control groups for us here")


@needs_groups
def test_a_process_in_a_group_cannot_have_more_than_its_limit() -> None:
    group = create_cgroup(3)
    assert group is not None
    waiting = "read -r _; for i in 1 2 3 4 5; do (exec sleep 5) & done; jobs -p | wc -l; kill $(jobs -p)"
    shell = subprocess.Popen(
        ["/bin/bash", "-c", waiting], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    group.add_process(shell.pid)
    _, refused = shell.communicate("\n")
    group.close()

    assert "Resource temporarily unavailable" in refused


@needs_groups
async def test_groups_of_a_command_are_removed_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller does not wait for that: the kernel takes a millisecond for each."""
    made, add_process = set[str](), CommandCgroup.add_process

    def record_groups(group: CommandCgroup, pid: int) -> None:
        made.update(vars(group)["_folders"])
        add_process(group, pid)

    monkeypatch.setattr(CommandCgroup, "add_process", record_groups)

    outcome = await run(usable("bubblewrap"), "true", tmp_path)
    await eventually(lambda: not any(map(os.path.exists, made)))

    assert outcome.ended.exit_code == 0
    assert made


@needs_groups
def test_a_group_that_is_closed_leaves_nothing() -> None:
    group = create_cgroup(3)
    assert group is not None
    folders: tuple[str, ...] = vars(group)["_folders"]
    assert folders
    assert all(map(os.path.isdir, folders))

    group.close()
    group.close()

    assert not any(map(os.path.exists, folders))


@needs_groups
def test_a_process_starts_in_its_groups() -> None:
    """From its first moment on, and nothing of this process stays in them."""
    group = create_cgroup(3, LIMIT)
    assert group is not None
    folders: tuple[str, ...] = vars(group)["_folders"]
    output, its_end = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, its_end, 1)]

    words = ["cat", "/proc/self/cgroup"]
    pid = group.run_inside(lambda: os.posix_spawn("/bin/cat", words, {}, file_actions=actions))
    os.waitpid(pid, 0)
    os.close(its_end)
    with open(output, encoding="ascii") as said:
        lines = said.read().splitlines()
    group.close()

    def are_removed() -> bool:
        remove_unused_groups()
        return not any(map(os.path.exists, folders))

    assert sum(line.endswith(os.path.basename(folders[0])) for line in lines) == len(folders)
    assert wait_until(are_removed)


@needs_groups
def test_a_start_that_fails_is_raised() -> None:
    group = create_cgroup(3, LIMIT)
    assert group is not None

    with pytest.raises(FileNotFoundError):
        group.run_inside(lambda: os.posix_spawn("/not/there", ["x"], {}))

    group.close()


@needs_groups
def test_taking_a_process_that_is_over_is_no_fault() -> None:
    over = subprocess.Popen(["/bin/true"])
    over.wait()
    group = create_cgroup(3)
    assert group is not None

    group.add_process(over.pid)

    group.close()


def end_at_the_limit() -> tuple[int, MemoryUsage]:
    """Return how a process ended that was taken into a group and then held more than its limit."""
    group = create_cgroup(3, LIMIT)
    assert group is not None
    program = "input()" + HOARDS["memfd"]
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        group.add_process(process.pid)
        process.communicate(b"\n")
    group.close()
    return process.returncode, group.read_memory_usage()


@needs_memory
def test_the_kernel_ends_a_process_at_the_memory_limit() -> None:
    code, use = end_at_the_limit()

    assert code == -signal.SIGKILL
    assert use == MemoryUsage(peak_bytes=LIMIT, is_exceeded=True)


@pytest.fixture
def delegated() -> Iterator[Path]:
    """A control group that belongs to an ordinary user, as systemd delegates one."""
    if os.getuid() != 0 or not has_memory_groups():
        pytest.skip("only root can delegate a control group, and only where there is a memory controller")
    group = create_cgroup(3, 1 << 40)
    assert group is not None
    folder = next(Path(folder) for folder in vars(group)["_folders"] if Path(folder, "memory.failcnt").exists())
    for path in (folder, folder / "cgroup.procs"):
        os.chown(path, NOBODY, NOBODY)
    yield folder
    group.close()


def test_an_ordinary_user_uses_a_delegated_group(delegated: Path) -> None:
    def join() -> None:
        (delegated / "cgroup.procs").write_text(str(os.getpid()))

    program = f"from {__name__} import end_at_the_limit; print(end_at_the_limit())"
    ended = run_as_ordinary_user("-c", program, preexec_fn=join)

    assert ended.stdout == f"(-9, MemoryUsage(peak_bytes={LIMIT}, is_exceeded=True))\n", ended.stderr


def test_version_two_is_read_like_version_one(tmp_path: Path) -> None:
    files = {"memory.max": "1000", "memory.peak": "900\n", "memory.events": "low 0\nmax 7\noom 1\noom_kill 2\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    group = CommandCgroup((str(tmp_path),), str(tmp_path / "memory.max"))

    assert group.read_memory_usage() == MemoryUsage(peak_bytes=900, is_exceeded=True)


def test_a_process_that_was_not_taken_is_not_limited(tmp_path: Path) -> None:
    group = CommandCgroup((str(tmp_path / "gone"),), str(tmp_path / "gone/memory.max"))
    assert group.can_limit_memory

    group.add_process(os.getpid())

    assert not group.can_limit_memory


@needs_memory
def test_a_group_without_use_has_none() -> None:
    group = create_cgroup(3, LIMIT)
    assert group is not None

    assert group.read_memory_usage() == MemoryUsage()

    group.close()


@pytest.mark.skipif(os.getuid() == 0, reason="for an ordinary user")
def test_an_ordinary_user_needs_no_group_for_processes() -> None:
    assert create_cgroup(3) is None
