"""What a command may use. Whatever it does, it ends, and nothing of it is left."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.sandbox.commands.bubblewrap import BubblewrapSandbox
from interlock.sandbox.host.cgroups import can_limit_root
from interlock.sandbox.host.process_tree import list_descendants
from interlock.sandbox.host.programs import find_bwrap, find_ripgrep
from interlock.sandbox.interface import CommandExit, CommandLimits, CommandSpec, OutputStream, SandboxProfile
from tests.patience import HANG_SECONDS

from .commands import Printed, a_command, run
from .ordinary_user import pytest_as_ordinary_user

MEGABYTE = 1 << 20


@pytest.fixture
def sandbox() -> BubblewrapSandbox:
    bwrap = find_bwrap()
    assert bwrap is not None
    return BubblewrapSandbox(bwrap.path)


@pytest.fixture
def alive(tmp_path: Path) -> Iterator[int]:
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    yield reader
    os.close(reader)


def shape(ended: CommandExit) -> tuple[str, int | None, str]:
    return ended.reason, ended.exit_code, ended.signal


#: Shells that hold a text of many megabytes each, for as long as they may.
HOLDS_MEMORY = "hold() {{ local text; printf -v text '%*s' {bytes} x; sleep 1000; }}\n"


@pytest.mark.requirement("R230")
async def test_memory_of_all_processes_together_is_limited(
    sandbox: BubblewrapSandbox, tmp_path: Path, alive: int
) -> None:
    limits = CommandLimits(memory_bytes=50 * MEGABYTE)
    script = HOLDS_MEMORY.format(bytes=20 * MEGABYTE) + "exec 9> alive; hold & hold & hold & hold & hold & wait"

    ended = (await run(sandbox, script, tmp_path, limits=limits)).ended

    assert shape(ended) == ("memory_limit", None, "SIGKILL")
    assert ended.peak_memory_bytes > 50 * MEGABYTE
    assert os.read(alive, 1) == b""


async def test_memory_of_one_process_is_refused_by_the_kernel(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    limits = CommandLimits(memory_bytes=30 * MEGABYTE)

    outcome = await run(sandbox, f"printf -v text '%*s' {100 * MEGABYTE} x; echo survived", tmp_path, limits=limits)

    assert "survived" not in outcome.stdout
    assert outcome.ended.exit_code != 0


@pytest.mark.skipif(
    os.geteuid() == 0 and not can_limit_root(),
    reason="nothing holds the processes of root on this host: it would be a real one",
)
async def test_a_fork_bomb_is_ended(sandbox: BubblewrapSandbox, tmp_path: Path, alive: int) -> None:
    limits = CommandLimits(processes=40, grace_seconds=0.1)
    script = "exec 9> alive; bomb() { bomb | bomb & sleep 1000; }; bomb 2>/dev/null; sleep 1000"

    seconds = HANG_SECONDS if os.geteuid() == 0 else 1
    ended = (await run(sandbox, script, tmp_path, timeout=seconds, limits=limits)).ended

    # Both are refused the next process. Root's group has a little room above the limit, so it is seen to be over it.
    assert ended.reason == ("process_limit" if os.geteuid() == 0 else "timeout")
    assert os.read(alive, 1) == b""


async def test_output_is_cut_at_its_limit_to_the_byte(sandbox: BubblewrapSandbox, tmp_path: Path, alive: int) -> None:
    received: dict[OutputStream, int] = {"stdout": 0, "stderr": 0}

    def receive(stream: OutputStream, chunk: bytes) -> None:
        received[stream] += len(chunk)

    command = a_command("exec 9> alive; yes & yes >&2", tmp_path, limits=CommandLimits(output_bytes=3_000_001))
    ended = await (await sandbox.start(command, receive)).wait(HANG_SECONDS)

    assert shape(ended) == ("output_limit", None, "SIGKILL")
    assert sum(received.values()) == 3_000_001
    assert os.read(alive, 1) == b""


async def test_output_over_the_limit_is_no_success_though_the_command_was_done(
    sandbox: BubblewrapSandbox, tmp_path: Path
) -> None:
    outcome = await run(sandbox, "printf 12345", tmp_path, limits=CommandLimits(output_bytes=4))

    assert (outcome.stdout, outcome.ended.reason) == ("1234", "output_limit")


@pytest.mark.parametrize("folder", ["/tmp", "/home/agent", "/dev/shm"])
async def test_temporary_folders_have_a_size(sandbox: BubblewrapSandbox, tmp_path: Path, folder: str) -> None:
    limits = CommandLimits(temporary_bytes=2 * MEGABYTE)
    script = f"head -c 5000000 /dev/zero > {folder}/large; stat -c %s {folder}/large"

    outcome = await run(sandbox, script, tmp_path, limits=limits)

    assert "No space left on device" in outcome.stderr
    assert int(outcome.stdout) <= 2 * MEGABYTE


async def test_a_file_has_a_size(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    outcome = await run(
        sandbox, "head -c 5000000 /dev/zero > large", tmp_path, limits=CommandLimits(file_bytes=MEGABYTE)
    )

    assert outcome.ended.exit_code == 128 + 25
    assert (tmp_path / "large").stat().st_size == MEGABYTE


async def test_open_files_core_files_and_the_mask_are_set(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    limits = CommandLimits(open_files=64, processes=77)

    outcome = await run(sandbox, "ulimit -Hn; ulimit -Hc; ulimit -Hu; umask; ulimit -n 65", tmp_path, limits=limits)

    assert outcome.stdout == "64\n0\n77\n0022\n"
    assert "cannot modify limit" in outcome.stderr


async def test_a_program_without_a_shell_has_limits_too(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    ripgrep = find_ripgrep()
    assert ripgrep is not None
    limits = CommandLimits(open_files=50, file_bytes=MEGABYTE)
    its_input, ours = os.pipe()
    profile = SandboxProfile(
        workspace=str(tmp_path), writable=False, system=False, readable=(ripgrep.path,), limits=limits
    )
    command = CommandSpec(profile=profile, argv=(ripgrep.path, "--no-config", "x", "-"), input_fd=its_input)
    before = {*list_descendants(os.getpid())}
    running = await sandbox.start(command, lambda stream, chunk: None)
    (*_, last) = [pid for pid in list_descendants(os.getpid()) if pid not in before]
    kinds = (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)
    found = [resource.prlimit(last, kind) for kind in kinds]
    os.close(ours)
    os.close(its_input)
    await running.wait(HANG_SECONDS)

    assert found == [(MEGABYTE, MEGABYTE), (0, 0), (50, 50)]


async def test_a_program_without_a_system_sees_itself_and_the_workspace(
    sandbox: BubblewrapSandbox, tmp_path: Path
) -> None:
    ripgrep = find_ripgrep()
    assert ripgrep is not None
    (tmp_path / "file").touch()
    words = (ripgrep.path, "--no-config", "--files", "--hidden", "--no-ignore", "/")

    outcome = await run(sandbox, words, tmp_path, system=False, writable=False, readable=(ripgrep.path,))

    own = {"/.sandbox-empty", "/.sandbox-gate"}
    assert {*outcome.stdout.splitlines()} == {ripgrep.path, f"{tmp_path}/file", *own}


async def test_bulk_output_comes_whole_and_in_order(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    printed: list[bytes] = []
    script = "for n in {1..9}; do echo $n; done; printf '%*s' 3000000 x; echo end"
    profile = SandboxProfile(workspace=str(tmp_path), writable=False)
    command = CommandSpec(profile=profile, script=script, has_bulk_output=True)

    running = await sandbox.start(command, lambda stream, chunk: printed.append(chunk))
    ended = await running.wait(HANG_SECONDS)

    assert shape(ended) == ("exited", 0, "")
    assert b"".join(printed) == b"".join(b"%d\n" % n for n in range(1, 10)) + b"x".rjust(3_000_000) + b"end\n"


async def test_looking_at_processes_does_not_count_shared_memory_many_times(
    sandbox: BubblewrapSandbox, tmp_path: Path
) -> None:
    limits = CommandLimits(memory_bytes=60 * MEGABYTE)
    share = f"printf -v text '%*s' {20 * MEGABYTE} x; for n in 1 2 3 4 5 6; do (sleep 0.3; :) & done; wait"

    ended = (await run(sandbox, share, tmp_path, limits=limits)).ended

    assert shape(ended) == ("exited", 0, "")


async def test_nothing_printed_is_nothing_received(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    printed = Printed()

    await (await sandbox.start(a_command(":", tmp_path), printed)).wait()

    assert printed.bytes() == printed.bytes("stderr") == b""


def test_all_of_this_holds_for_an_ordinary_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("this is one")
    pytest_as_ordinary_user(__file__)
