"""What every backend for commands promises, as root and as an ordinary user."""

import asyncio
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.domain.errors import SandboxSetupError
from interlock.sandbox.commands import probe
from interlock.sandbox.host.process_tree import list_descendants
from interlock.sandbox.interface import CAPABILITIES, CommandExit, CommandLimits, CommandSandbox
from tests.patience import HANG_SECONDS

from .commands import Printed, a_command, run, works
from .ordinary_user import ROOT, pytest_as_ordinary_user

IS_ROOT = os.geteuid() == 0
#: Landlock is not for root.
BACKENDS = ["bubblewrap", "none"] if IS_ROOT else ["bubblewrap", "landlock", "none"]
CLAIMS: dict[str, set[str]] = {
    "bubblewrap": set(CAPABILITIES),
    "landlock": set(CAPABILITIES) - {"processes", "metadata"},
    "none": {"kill_tree"},
}
PYTHON = "/usr/bin/python3"

#: Leaves its session, ignores requests to end, and holds a pipe for as long as it lives.
DAEMON = """
mkfifo ready
(setsid bash -c 'trap "" TERM HUP; exec 9> alive; echo > ready; exec sleep 1000' &)
read < ready
"""


@pytest.fixture(params=BACKENDS)
def sandbox(request: pytest.FixtureRequest) -> CommandSandbox:
    finding = next(each for each in probe.probe_backends() if each.backend == request.param)
    if not finding.works:
        # Only a cause that is known to be the host's excuses it.
        assert finding.advice, finding.why_not
        pytest.skip(f"{finding.backend} does not work here: {finding.why_not}")
    return probe.choose_sandbox(request.param)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "workspace"
    (folder / "src").mkdir(parents=True)
    (folder / "src/code").write_text("code")
    (folder / ".env").write_text("secret")
    (tmp_path / "outside").write_text("private")
    return folder


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Our folder for temporary files, which is empty again after every command."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def alive(workspace: Path) -> Iterator[int]:
    """A pipe that daemons hold."""
    os.mkfifo(workspace / "alive")
    reader = os.open(workspace / "alive", os.O_RDONLY | os.O_NONBLOCK)
    yield reader
    os.close(reader)


def claiming(capability: str) -> pytest.MarkDecorator:
    """Those backends that say they can do it."""
    return pytest.mark.parametrize("sandbox", [name for name in BACKENDS if capability in CLAIMS[name]], indirect=True)


def shape(ended: CommandExit) -> tuple[str, int | None, str]:
    return ended.reason, ended.exit_code, ended.signal


def test_its_confinement_is_in_known_words(sandbox: CommandSandbox) -> None:
    confinement = sandbox.confinement

    assert set(confinement.capabilities) == CLAIMS[confinement.backend]
    assert confinement.degraded == (confinement.backend != "bubblewrap")
    assert bool(confinement.notes) >= confinement.degraded


@pytest.mark.requirement("R237")
async def test_a_script_is_run_and_its_end_is_told(sandbox: CommandSandbox, workspace: Path) -> None:
    outcome = await run(sandbox, "pwd; echo oops >&2; cd src; exit 3", workspace)

    assert (shape(outcome.ended), outcome.ended.cwd) == (("exited", 3, ""), f"{workspace}/src")
    assert (outcome.stdout, outcome.stderr) == (f"{workspace}\n", "oops\n")
    assert outcome.ended.duration_seconds > 0


async def test_a_program_gets_its_words_as_they_are(sandbox: CommandSandbox, workspace: Path) -> None:
    outcome = await run(sandbox, ("printf", "%s|", "a b", "$HOME", "", "ü'\""), workspace)

    assert (shape(outcome.ended), outcome.stdout) == (("exited", 0, ""), "a b|$HOME||ü'\"|")


async def test_it_starts_where_it_is_told(sandbox: CommandSandbox, workspace: Path) -> None:
    assert (await run(sandbox, "pwd", workspace, cwd=f"{workspace}/src")).stdout == f"{workspace}/src\n"


async def test_standard_input_is_empty(sandbox: CommandSandbox, workspace: Path) -> None:
    assert (await run(sandbox, "cat; echo end", workspace)).stdout == "end\n"


@pytest.mark.parametrize(("script", "end"), [("kill -SEGV $$", "SIGSEGV"), ("kill -KILL $$", "SIGKILL")])
async def test_a_signal_is_named(sandbox: CommandSandbox, workspace: Path, script: str, end: str) -> None:
    assert shape((await run(sandbox, script, workspace)).ended) == ("exited", None, end)


async def test_bytes_that_are_no_text_come_as_they_are(sandbox: CommandSandbox, workspace: Path) -> None:
    printed = Printed()
    running = await sandbox.start(a_command(r"printf '\xff\x00\x1b[2J'", workspace), printed)
    await running.wait(HANG_SECONDS)

    assert printed.bytes() == b"\xff\x00\x1b[2J"


@pytest.mark.requirement("R234")
async def test_nothing_of_our_environment_is_inherited(
    sandbox: CommandSandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_KEY", "sk-canary")
    reads = "env; cat /proc/self/environ /proc/1/environ /proc/$PPID/environ | tr '\\0' '\\n'"

    printed = (await run(sandbox, reads, workspace, environment={"THEIRS": "given"})).stdout

    assert "THEIRS=given" in printed.splitlines()
    assert "canary" not in printed


@pytest.mark.parametrize(
    ("script", "options"),
    [
        (("no-such-program",), {}),
        ("echo a\0b", {}),
        ("echo \ud800", {}),
        ("", {}),
        ("true", {"cwd": "/no/such/folder"}),
        ("true", {"environment": {"LD_PRELOAD": "/x"}}),
        ("true", {"environment": {"A=B": "x"}}),
    ],
)
async def test_what_cannot_be_started_is_no_failed_command(
    sandbox: CommandSandbox, workspace: Path, script: str | tuple[str, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(SandboxSetupError, match=r"[Nn]othing was executed"):
        await run(sandbox, script, workspace, **options)


async def test_a_workspace_that_is_gone_is_no_failed_command(sandbox: CommandSandbox, tmp_path: Path) -> None:
    with pytest.raises(SandboxSetupError, match=r"gone.* (gone or cannot be read|executed)\."):
        await run(sandbox, "true", tmp_path / "gone")


@pytest.mark.requirement("R224")
async def test_a_timeout_lets_the_command_end_by_itself_first(sandbox: CommandSandbox, workspace: Path) -> None:
    script = "trap 'echo cleaned; exit 7' TERM; echo ready; sleep 1000 & wait"

    outcome = await run(
        sandbox, script, workspace, timeout=0, after="ready", limits=CommandLimits(grace_seconds=HANG_SECONDS)
    )

    assert (shape(outcome.ended), outcome.stdout) == (("timeout", 7, ""), "ready\ncleaned\n")


async def test_who_does_not_end_is_killed(sandbox: CommandSandbox, workspace: Path, alive: int) -> None:
    script = f"{DAEMON} trap '' TERM; echo ready; while :; do sleep 1000; done"

    outcome = await run(sandbox, script, workspace, timeout=0, after="ready", limits=CommandLimits(grace_seconds=0.1))

    assert shape(outcome.ended) == ("timeout", None, "SIGKILL")
    assert os.read(alive, 1) == b""


async def test_daemons_end_with_the_command(sandbox: CommandSandbox, workspace: Path, alive: int) -> None:
    outcome = await run(sandbox, f"{DAEMON} exit 5", workspace)

    assert shape(outcome.ended) == ("exited", 5, "")
    assert os.read(alive, 1) == b""


@pytest.mark.requirement("R225")
async def test_cancelling_the_wait_ends_all_of_it(sandbox: CommandSandbox, workspace: Path, alive: int) -> None:
    begun = asyncio.Event()
    limits = CommandLimits(grace_seconds=0.1)
    command = a_command(f"{DAEMON} echo ready; sleep 1000", workspace, limits=limits)
    running = await sandbox.start(command, lambda stream, chunk: begun.set())
    waiting = asyncio.create_task(running.wait())
    await asyncio.wait_for(begun.wait(), HANG_SECONDS)

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert os.read(alive, 1) == b""


async def test_stopping_ends_all_of_it(sandbox: CommandSandbox, workspace: Path, alive: int) -> None:
    running = await sandbox.start(a_command(f"{DAEMON} sleep 1000", workspace), Printed())

    ended = await running.stop()

    assert ended.reason == "stopped"
    assert os.read(alive, 1) == b""


HARNESS = """
import asyncio, sys
from pathlib import Path
from interlock.sandbox import probe
from tests.sandbox.commands import a_command

async def main():
    command = a_command(sys.argv[3], Path(sys.argv[2]))
    await (await probe.choose(sys.argv[1]).start(command, lambda stream, chunk: print("begun", flush=True))).wait()

asyncio.run(main())
"""


@pytest.mark.requirement("R225")
def test_when_we_are_killed_nothing_stays(
    sandbox: CommandSandbox, workspace: Path, alive: int, temporary: Path
) -> None:
    script = f"{DAEMON} echo x > $TMPDIR/file; echo ready; sleep 1000"
    words = [sys.executable, "-c", HARNESS, sandbox.confinement.backend, str(workspace), script]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT, env=environment) as harness:
        assert harness.stdout is not None
        assert harness.stdout.readline() == b"begun\n"
        below = [os.pidfd_open(pid) for pid in list_descendants(harness.pid)]

        harness.kill()

        for process in below:
            assert select.select([process], [], [], HANG_SECONDS)[0]
            os.close(process)
    assert os.read(alive, 1) == b""


async def test_too_much_output_ends_it(sandbox: CommandSandbox, workspace: Path) -> None:
    outcome = await run(sandbox, "yes", workspace, limits=CommandLimits(output_bytes=100_000))

    assert (outcome.ended.reason, len(outcome.stdout)) == ("output_limit", 100_000)


async def test_too_much_memory_ends_it(sandbox: CommandSandbox, workspace: Path) -> None:
    # Two processes, each of them below the limit.
    script = "for i in 1 2; do (head -c 80M /dev/zero | tail -n1 | sleep 1000) & done; wait"

    outcome = await run(sandbox, script, workspace, limits=CommandLimits(memory_bytes=100 << 20))

    assert outcome.ended.reason == "memory_limit"


async def test_too_many_processes_end_it_or_cannot_be_started(sandbox: CommandSandbox, workspace: Path) -> None:
    program = "import os, signal, sys\nfor n in range(60): os.fork() or signal.pause()\nsignal.pause()"

    outcome = await run(sandbox, (PYTHON, "-c", program), workspace, limits=CommandLimits(processes=20))

    assert outcome.ended.reason == "process_limit" or "BlockingIOError" in outcome.stderr


async def test_a_file_cannot_be_larger_than_allowed(sandbox: CommandSandbox, workspace: Path) -> None:
    limits = CommandLimits(file_bytes=1 << 20)

    outcome = await run(sandbox, "head -c 3M /dev/zero > large; echo $?", workspace, limits=limits)

    assert outcome.stdout == "153\n"
    assert (workspace / "large").stat().st_size == 1 << 20


async def test_many_at_once_do_not_disturb_each_other(sandbox: CommandSandbox, workspace: Path) -> None:
    outcomes = await asyncio.gather(
        *(run(sandbox, f"echo {n} > $TMPDIR/n; cat $TMPDIR/n", workspace) for n in range(6))
    )

    assert [outcome.stdout for outcome in outcomes] == [f"{n}\n" for n in range(6)]


async def test_temporary_folders_are_private_and_gone_afterwards(sandbox: CommandSandbox, workspace: Path) -> None:
    first = await run(
        sandbox, "echo x > $TMPDIR/file && echo x > ~/file && mkdir -m0 $TMPDIR/no; ls $TMPDIR ~", workspace
    )
    second = await run(sandbox, "ls $TMPDIR ~ | grep -c file", workspace)

    assert first.stdout.count("file") == 2
    assert second.stdout == "0\n"


@pytest.mark.requirement("R232")
@claiming("files")
async def test_only_the_workspace_and_the_system_can_be_read(sandbox: CommandSandbox, workspace: Path) -> None:
    reads = ["cat src/code", "ls /usr/bin", "cat ../outside", "ls .. | grep outside"]
    reads += ["cat /etc/shadow", "ls /root", "ls /var/lib", "cat /etc/hostname"]
    reads += [
        f"cat /proc/{os.getpid()}/environ",
        f"ls /proc/{os.getpid()}/root/",
        f"readlink /proc/{os.getpid()}/fd/0",
        f"cat /proc/{os.getpid()}/maps",
        "ls /run",
    ]

    assert await works(sandbox, reads, workspace) == reads[:2]


@claiming("files")
async def test_files_beside_the_workspace_can_be_read_where_the_profile_says_so(
    sandbox: CommandSandbox, workspace: Path
) -> None:
    outside = f"{workspace.parent}/outside"

    attempts = [f"cat {outside}", f"echo x > {outside}", f"rm {outside}"]

    assert await works(sandbox, attempts, workspace, readable=(outside,)) == attempts[:1]


@claiming("write_only_workspace")
async def test_nothing_but_the_workspace_and_temporary_folders_can_be_written(
    sandbox: CommandSandbox, workspace: Path
) -> None:
    fine = ["echo x > new", "mkdir -p a/b", "mv src/code src/moved", "echo x > $TMPDIR/x", "echo x > ~/x"]
    bad = ["touch /usr/x", "touch /etc/x", "touch /dev/x", "echo 1 > /proc/sys/vm/drop_caches", "rm -r /usr/share/doc"]
    bad += ["echo x > /proc/sys/kernel/core_pattern", "mv src/moved /usr", "ln -s x /lib/x", "rm /etc/passwd"]

    assert await works(sandbox, [*fine, *bad], workspace) == fine


@claiming("write_only_workspace")
async def test_what_a_command_does_around_its_workspace_stays_without_effect(
    sandbox: CommandSandbox, workspace: Path
) -> None:
    around = workspace.parent
    attempts = ["echo x > ../new", "echo x > ../outside", "truncate -s0 ../outside", "rm -f ../outside", "mv src .."]

    await works(sandbox, attempts, workspace)

    assert sorted(path.name for path in around.iterdir()) == ["outside", "workspace"]
    assert (around / "outside").read_text() == "private"


@claiming("read_only")
async def test_a_read_only_workspace_cannot_be_changed(sandbox: CommandSandbox, workspace: Path) -> None:
    fine = ["cat src/code", "ls -R", "echo x > $TMPDIR/x"]
    bad = ["touch new", "echo x > src/code", "rm src/code", "mv src other", ": > .env", "ln src/code hard", "mkfifo f"]

    assert await works(sandbox, [*fine, *bad], workspace, writable=False) == fine


@claiming("hide")
async def test_hidden_files_cannot_be_read_and_read_only_ones_not_changed(
    sandbox: CommandSandbox, workspace: Path
) -> None:
    (workspace / ".git/hooks").mkdir(parents=True)
    (workspace / ".git/config").write_text("[core]")
    (workspace / "keys").mkdir()
    (workspace / "keys/id").write_text("secret")
    attempts = [
        "cat src/code",
        "echo x > src/code",
        "grep core .git/config",
        "grep secret .env",
        "grep secret keys/id",
        "ls keys | grep id",
        "echo x > .git/config",
        "echo x > .git/hooks/new",
        "mv .git .gone",
        "mv .env src/env; grep secret src/env",
        "ln .env src/env; grep secret src/env",
        "rm .env; ! [ -e .env ]",
    ]

    hidden, read_only = (f"{workspace}/.env", f"{workspace}/keys"), (f"{workspace}/.git",)
    assert await works(sandbox, attempts, workspace, hidden=hidden, read_only=read_only) == attempts[:3]
    assert (workspace / ".env").read_text() == "secret"


@pytest.fixture
async def listening(workspace: Path) -> AsyncIterator[dict[str, str]]:
    """Servers of the host, and how a command would reach them."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0interlock-{os.getpid()}")
    udp = socket.socket(type=socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    with abstract, udp:
        tcp = await asyncio.start_server(greet, "127.0.0.1", 0)
        by_path = await asyncio.start_unix_server(greet, workspace.parent / "socket")
        nameless = await asyncio.start_unix_server(greet, sock=abstract)
        port = tcp.sockets[0].getsockname()[1]
        connect = f"{PYTHON} -c 'import socket; socket.socket({{}}).connect({{}})'"
        yield {
            "tcp": f"exec 3<>/dev/tcp/127.0.0.1/{port}",
            "udp": f"echo x > /dev/udp/127.0.0.1/{udp.getsockname()[1]}",
            "unix": connect.format("socket.AF_UNIX", f'"{workspace.parent}/socket"'),
            "abstract": connect.format("socket.AF_UNIX", f'"\\0interlock-{os.getpid()}"'),
            "vsock": f"{PYTHON} -c 'import socket; socket.socket(socket.AF_VSOCK)'",
        }
        udp.setblocking(False)
        with pytest.raises(BlockingIOError):
            udp.recv(1)
        for server in (tcp, by_path, nameless):
            server.close()
            await server.wait_closed()


@claiming("network_off")
async def test_no_host_can_be_reached_and_no_socket_of_this_one(
    sandbox: CommandSandbox, workspace: Path, listening: dict[str, str]
) -> None:
    outcome = await run(
        sandbox, "\n".join(f"({words}) && echo reached {name}" for name, words in listening.items()), workspace
    )

    reached = {line for line in outcome.stdout.splitlines() if line.startswith("reached")}
    # In a network of its own, a packet for nobody is simply lost.
    assert reached <= {"reached udp"}


@claiming("files")
async def test_other_processes_can_neither_be_signalled_nor_limited(sandbox: CommandSandbox, workspace: Path) -> None:
    processes = [str(os.getpid()), str(os.getppid())]
    if sandbox.confinement.backend == "landlock":
        processes.append("$PPID")  # its supervisor
    attempts = [f"{what} {process}" for process in processes for what in ("kill -0", "prlimit --cpu=9999 --pid")]

    assert await works(sandbox, ["ulimit -c 0", *attempts], workspace) == ["ulimit -c 0"]


@claiming("processes")
async def test_other_processes_cannot_be_seen(sandbox: CommandSandbox, workspace: Path) -> None:
    assert await works(sandbox, [f"ls /proc/{os.getpid()}", f"kill -0 {os.getpid()}"], workspace) == []


@claiming("syscalls")
async def test_dangerous_system_calls_are_refused(sandbox: CommandSandbox, workspace: Path) -> None:
    call = f"{PYTHON} -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(*map(int, sys.argv[1:])) < 0)'"
    numbers = {"x86_64": (250, 425, 321), "aarch64": (219, 425, 280)}[os.uname().machine]
    attempts = ["unshare -U true", "unshare -n true", *(f"{call} {number} 0 0 0 0" for number in numbers)]

    assert await works(sandbox, [f"{call} 39", *attempts], workspace) in ([], [f"{call} 39"])


@claiming("metadata")
async def test_modes_and_times_outside_cannot_be_changed(sandbox: CommandSandbox, workspace: Path) -> None:
    before = (workspace.parent / "outside").stat()

    await works(sandbox, ["chmod 777 ../outside", "touch -d 2001-01-01 ../outside", "chmod 0 .."], workspace)

    assert (workspace.parent / "outside").stat() == before


@pytest.mark.parametrize("asked", [{"writable": False}, {"hidden": ("/etc/hostname",)}])
async def test_without_a_sandbox_what_cannot_be_kept_is_refused(workspace: Path, asked: dict[str, Any]) -> None:
    with pytest.raises(SandboxSetupError, match=r"no sandbox.*Nothing was executed"):
        await run(probe.choose_sandbox("none"), "touch ran", workspace, **asked)

    assert not (workspace / "ran").exists()


@pytest.mark.skipif(not IS_ROOT, reason="this is an ordinary user already")
def test_all_of_this_holds_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user(__file__)
