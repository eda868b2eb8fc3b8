"""A command under way in bubblewrap: its words, its end, and that nothing of it is left."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from interlock.domain.errors import SandboxSetupError
from interlock.sandbox.commands.bubblewrap import BubblewrapSandbox
from interlock.sandbox.commands.helper_process import helper_process
from interlock.sandbox.commands.running_command import Launch, run_launch
from interlock.sandbox.host.programs import find_bwrap
from interlock.sandbox.interface import CommandExit, CommandLimits, OutputStream
from tests.patience import HANG_SECONDS, wait_until

from .commands import Printed, a_command, run
from .ordinary_user import ROOT, pytest_as_ordinary_user

SHORT = CommandLimits(grace_seconds=0.1)


@pytest.fixture
def sandbox() -> BubblewrapSandbox:
    bwrap = find_bwrap()
    assert bwrap is not None
    return BubblewrapSandbox(bwrap.path)


@pytest.fixture
def alive(tmp_path: Path) -> "Iterator[Alive]":
    alive = Alive(tmp_path / "alive")
    yield alive
    alive.close()


@pytest.fixture(autouse=True)
def nothing_open_is_left() -> Iterator[None]:
    helper_process.watch(os.getpid()).close()  # so that it is started
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= before + 1


class Alive:
    """A named pipe that everything under test holds open for writing, so that its end is theirs."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def nobody(self) -> bool:
        """At once: not after a while."""
        try:
            return os.read(self._reader, 1) == b""
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._reader)


class Word:
    """Set when the command prints a word."""

    def __init__(self, word: bytes) -> None:
        self._word = word
        self.seen = asyncio.Event()

    def __call__(self, stream: OutputStream, chunk: bytes) -> None:
        if self._word in chunk:
            self.seen.set()


def shape(ended: CommandExit) -> tuple[str, int | None, str]:
    return ended.reason, ended.exit_code, ended.signal


@pytest.mark.requirement("R237")
async def test_a_script_yields_both_streams_its_exit_code_its_duration_and_its_folder(
    sandbox: BubblewrapSandbox, tmp_path: Path
) -> None:
    (tmp_path / "sub dir\n2").mkdir()

    outcome = await run(sandbox, "echo out; echo err >&2; cd 'sub dir\n2'; exit 3", tmp_path)

    assert (outcome.stdout, outcome.stderr) == ("out\n", "err\n")
    assert shape(outcome.ended) == ("exited", 3, "")
    assert outcome.ended.cwd == str(tmp_path / "sub dir\n2")
    assert 0 < outcome.ended.duration_seconds < 20


@pytest.mark.parametrize(
    ("script", "code", "by_signal"),
    [
        ("exit 137", 137, ""),
        ("exit 143", 143, ""),
        ("kill -9 $$", None, "SIGKILL"),
        ("kill -TERM $$", None, "SIGTERM"),
        ("exec sh -c 'kill -SEGV $$'", None, "SIGSEGV"),
        ("bash -c 'kill -9 $$'", 137, ""),
        ("set -e; false; true", 1, ""),
        ("for", 2, ""),
        (")", 2, ""),
        ("", None, ""),
    ],
)
async def test_exit_codes_and_signals_are_told_apart(
    sandbox: BubblewrapSandbox, tmp_path: Path, script: str, code: int | None, by_signal: str
) -> None:
    if not script:
        with pytest.raises(SandboxSetupError, match="either a script or a program"):
            await run(sandbox, script, tmp_path)
        return

    ended = (await run(sandbox, script, tmp_path)).ended

    assert shape(ended) == ("exited", code, by_signal)


async def test_messages_name_the_lines_of_the_script(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    outcome = await run(sandbox, "echo $LINENO $# $0\n\nno_such_program\necho 'a", tmp_path)

    assert outcome.stdout == "1 0 bash\n"
    assert outcome.stderr.startswith("bash: line 3: no_such_program: command not found\nbash: -c: line 4: ")


@pytest.mark.parametrize(
    "script", ["trap - EXIT", "exec true", "exec 100>&- 101>&- 102>&-", "mkdir x; cd x; rmdir ../x"]
)
async def test_a_folder_that_cannot_be_told_is_empty(sandbox: BubblewrapSandbox, tmp_path: Path, script: str) -> None:
    outcome = await run(sandbox, script, tmp_path)

    assert (outcome.ended.cwd, outcome.ended.exit_code, outcome.stderr) == ("", 0, "")


async def test_what_a_command_says_of_itself_is_bounded_and_harmless(
    sandbox: BubblewrapSandbox, tmp_path: Path
) -> None:
    forge = (
        "for fd in /proc/self/fd/1??; do head -c 3000000 /dev/zero > $fd; printf 'ended\\0007\\0/etc\\n' > $fd; done"
    )

    outcome = await run(sandbox, f"{forge}; exit 5", tmp_path)

    assert shape(outcome.ended) == ("exited", 5, "")


async def test_a_program_gets_its_words_as_they_are(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    outcome = await run(sandbox, ("printf", "%s|", "a b", "$HOME", "'", "-n", ""), tmp_path)

    assert outcome.stdout == "a b|$HOME|'|-n||"
    assert shape(outcome.ended) == ("exited", 0, "")


@pytest.mark.requirement("R224")
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        # Not as a child of bash: a signal between its fork and its exec is lost.
        ("exec sh -c 'echo up; exec sleep 1000'", ("timeout", None, "SIGTERM")),
        ("trap 'exit 7' TERM; echo up; sleep 1000 & wait", ("timeout", 7, "")),
        ("trap '' TERM; echo up; while :; do sleep 1000; done", ("timeout", None, "SIGKILL")),
    ],
)
async def test_at_the_timeout_it_is_asked_to_end_and_then_killed(
    sandbox: BubblewrapSandbox, tmp_path: Path, script: str, expected: tuple[str, int | None, str]
) -> None:
    up = Word(b"up")
    limits = SHORT if expected[2] == "SIGKILL" else CommandLimits(grace_seconds=HANG_SECONDS)
    running = await sandbox.start(a_command(script, tmp_path, limits=limits), up)
    await asyncio.wait_for(up.seen.wait(), HANG_SECONDS)

    assert shape(await running.wait(0)) == expected
    assert shape(await running.stop()) == expected


async def test_stopping_what_is_over_says_how_it_ended(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    running = await sandbox.start(a_command("exit 4", tmp_path), Printed())
    ended = await running.wait()

    assert await running.stop() == await running.wait(0) == ended


DAEMONS = [
    "(setsid sleep 1000 >&9 2>&9 &)",
    "setsid bash -c 'trap \"\" TERM HUP INT; sleep 1000; sleep 1000' &",
    "(setsid bash -c 'setsid sleep 1000 & exit' &) ; :",
    "sleep 1000 & disown",
    "nohup sleep 1000 >/dev/null 2>&1 &",
]


@pytest.mark.parametrize("daemon", DAEMONS)
async def test_a_daemon_ends_with_its_command_and_does_not_hold_up_its_end(
    sandbox: BubblewrapSandbox, tmp_path: Path, alive: Alive, daemon: str
) -> None:
    outcome = await run(sandbox, f"exec 9> alive\n{daemon}\necho done", tmp_path)

    assert alive.nobody()
    assert outcome.stdout == "done\n"
    assert outcome.ended.duration_seconds < HANG_SECONDS


@pytest.mark.requirement("R225")
@pytest.mark.parametrize("script", ["sleep 1000", "trap '' TERM; while :; do sleep 1000; done"])
async def test_cancelling_the_wait_leaves_nothing(
    sandbox: BubblewrapSandbox, tmp_path: Path, alive: Alive, script: str
) -> None:
    up = Word(b"up")
    command = a_command(f"exec 9> alive; setsid sleep 1000 & echo up; {script}", tmp_path, limits=SHORT)
    running = await sandbox.start(command, up)
    await asyncio.wait_for(up.seen.wait(), HANG_SECONDS)
    waiting = asyncio.create_task(running.wait())
    await asyncio.wait((waiting,), timeout=0)

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert alive.nobody()
    assert (await running.wait()).reason == "stopped"


async def test_cancelling_the_start_leaves_nothing(sandbox: BubblewrapSandbox, tmp_path: Path, alive: Alive) -> None:
    command = a_command("exec 9> alive; sleep 1000", tmp_path)
    for turns in range(12):
        starting = asyncio.create_task(sandbox.start(command, Printed()))
        for _ in range(turns):
            await asyncio.wait((starting,), timeout=0.001)
        starting.cancel()
        await asyncio.wait((starting,))
        if not starting.cancelled():
            await starting.result().stop()

    assert alive.nobody()
    assert not has_children()


def has_children() -> bool:
    """Return True for any child, also one that ended, but the database that other tests share."""
    children = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).split()
    return any(Path(f"/proc/{pid}/comm").read_text().strip() != "postgres" for pid in children)


async def test_an_error_of_the_receiver_stops_the_command_and_goes_up(
    sandbox: BubblewrapSandbox, tmp_path: Path, alive: Alive
) -> None:
    def receive(stream: OutputStream, chunk: bytes) -> None:
        raise LookupError("the disk is full")

    running = await sandbox.start(a_command("exec 9> alive; echo up; sleep 1000", tmp_path, limits=SHORT), receive)

    with pytest.raises(LookupError, match="the disk is full"):
        await running.wait()
    assert alive.nobody()


async def test_many_run_at_once_and_do_not_mix(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    outcomes = await asyncio.gather(*(run(sandbox, f"echo {n}; exit {n}", tmp_path) for n in range(12)))

    assert [(outcome.stdout, outcome.ended.exit_code) for outcome in outcomes] == [(f"{n}\n", n) for n in range(12)]


async def test_many_bytes_pass_through_without_being_kept(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    received = 0

    def receive(stream: OutputStream, chunk: bytes) -> None:
        nonlocal received
        received += len(chunk)
        assert len(chunk) <= 1 << 16

    running = await sandbox.start(a_command("head -c 20000000 /dev/zero", tmp_path), receive)

    assert (await running.wait(HANG_SECONDS)).exit_code == 0
    assert received == 20_000_000


KILLED = """
import asyncio, sys
from pathlib import Path
from interlock.sandbox.commands.bubblewrap import BubblewrapSandbox
from interlock.sandbox.host.programs import find_bwrap
from tests.sandbox.commands import a_command

async def main():
    script = "exec 9> alive; (setsid sleep 1000 &); trap '' TERM; echo up; sleep 1000; sleep 1000"
    up = lambda stream, chunk: print(chunk.decode(), flush=True)
    running = await BubblewrapSandbox(find_bwrap().path).start(a_command(script, Path(sys.argv[1])), up)
    await running.wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_this_process(tmp_path: Path, number: int) -> None:
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as harness:
        assert harness.stdout is not None
        assert harness.stdout.readline() == b"up\n"
        harness.send_signal(number)

    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""
    os.close(reader)


KILLED_WHILE_STARTING = """
import asyncio, os, signal, sys
from pathlib import Path
from interlock.sandbox.commands.bubblewrap import BubblewrapSandbox
from interlock.sandbox.host.programs import find_bwrap
from tests.sandbox.commands import a_command

async def start(milliseconds):
    asyncio.get_running_loop().call_later(milliseconds / 1000, os.kill, os.getpid(), signal.SIGKILL)
    command = a_command(f"sleep 1000; : {sys.argv[1]}", Path(sys.argv[1]))
    running = await BubblewrapSandbox(find_bwrap().path).start(command, lambda stream, chunk: None)
    await running.wait()

find_bwrap()
for milliseconds in range(20):
    if os.fork() == 0:
        asyncio.run(start(milliseconds))
for _ in range(20):
    os.wait()
"""


KILLED_BETWEEN_TWO_STEPS = """
import asyncio, os, signal, sys
from pathlib import Path
from unittest.mock import patch
from interlock.sandbox.commands import bubblewrap, running_command
from interlock.sandbox.commands.launch import LaunchDescriptors
from interlock.sandbox.host import process_tree
from interlock.sandbox.host.programs import find_bwrap
from tests.sandbox.commands import a_command

class FullStatus(LaunchDescriptors):
    # Bubblewrap waits until its status was read: its child waits for it, and it dies with this process.
    def unbreakable_pipe(self):
        kept, passed = super().unbreakable_pipe()
        os.set_blocking(passed, False)
        try:
            while True:
                os.write(passed, b"\\n")
        except BlockingIOError:
            os.set_blocking(passed, True)
        return kept, passed

def die(loop, pid):
    while not (process_tree.list_children(pid) and "pipe" in Path(f"/proc/{pid}/wchan").read_text()):
        os.sched_yield()
    os.kill(os.getpid(), signal.SIGKILL)

command = a_command(f"sleep 1000; : {sys.argv[1]}", Path(sys.argv[1]))
with patch.object(bubblewrap, "LaunchDescriptors", FullStatus), patch.object(running_command, "ProcessWatcher", die):
    asyncio.run(bubblewrap.BubblewrapSandbox(find_bwrap().path).start(command, lambda stream, chunk: None))
"""


def running_with(word: str) -> list[str]:
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = file.read_bytes().decode(errors="replace")
            found += [words] if word in words else []
    return found


@pytest.mark.parametrize("script", [KILLED_WHILE_STARTING, KILLED_BETWEEN_TWO_STEPS], ids=["any time", "worst time"])
def test_nothing_outlives_this_process_when_it_is_killed_while_a_sandbox_is_made(tmp_path: Path, script: str) -> None:
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=environment, check=False)

    wait_until(lambda: not running_with(str(tmp_path)))


def a_launch(*argv: str) -> Launch:
    (status, its_status), (report, its_report) = os.pipe(), os.pipe()
    return Launch(
        argv=argv,
        environment={"PATH": "/usr/bin:/bin"},
        pass_fds=(its_status, its_report),
        status_fd=status,
        report_fd=report,
        kill_signal=signal.SIGKILL,
    )


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("/no/such/launcher",), "No such file or directory"),
        (("/bin/bash", "-c", "echo the kernel says no >&2; exit 1"), "the kernel says no"),
        (("/bin/bash", "-c", "exit 3"), "status 3"),
        (("/bin/bash", "-c", "head -c 9000000 /dev/zero >&2; echo last words >&2; exit 1"), "last words"),
    ],
)
async def test_a_launcher_that_fails_is_no_command_that_failed(argv: tuple[str, ...], words: str) -> None:
    with pytest.raises(SandboxSetupError) as raised:
        await run_launch(a_launch(*argv), CommandLimits(), Printed())

    assert words in str(raised.value)
    assert "Nothing was executed." in str(raised.value)
    assert len(str(raised.value)) < 3000


def test_all_of_this_holds_for_an_ordinary_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("this is one")
    pytest_as_ordinary_user(__file__)
