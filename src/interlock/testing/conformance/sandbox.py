"""What every sandbox for commands promises. A capability is checked where the sandbox claims it."""

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ...domain.errors import SandboxSetupError
from ...sandbox.interface import CAPABILITIES, CommandExit, CommandLimits, CommandSandbox
from ..commands import TIMEOUT_SECONDS, OutputRecorder, find_successful, make_command, run_command
from .suite import ConformanceSuite

PYTHON = "/usr/bin/python3"

#: Start a daemon that leaves its session, ignores requests to end, and holds the pipe `alive` open while it lives.
DAEMON = """
mkfifo ready
(setsid bash -c 'trap "" TERM HUP; exec 9> alive; echo > ready; exec sleep 1000' &)
read < ready
"""

#: Commands that cannot be started, with their options.
UNSTARTABLE: list[tuple[str | tuple[str, ...], dict[str, Any]]] = [
    (("no-such-program",), {}),
    ("echo a\0b", {}),
    ("echo \ud800", {}),
    ("", {}),
    ("true", {"cwd": "/no/such/folder"}),
    ("true", {"environment": {"LD_PRELOAD": "/x"}}),
    ("true", {"environment": {"A=B": "x"}}),
]


def require_capability(sandbox: CommandSandbox, capability: str) -> None:
    """Skip the test where the sandbox does not claim the capability."""
    if capability not in sandbox.confinement.capabilities:
        pytest.skip(f"{sandbox.confinement.backend} does not claim {capability!r}: {CAPABILITIES[capability]}")


def summarize_exit(ended: CommandExit) -> tuple[str, int | None, str]:
    """Return reason, exit code and signal."""
    return ended.reason, ended.exit_code, ended.signal


class CommandSandboxConformance(ConformanceSuite):
    """Define the fixture `sandbox`. Commands are started in bash, on Linux."""

    @pytest.fixture
    def workspace(self, tmp_path: Path) -> Path:
        """Return a workspace with a file, a secret in it and a private file beside it."""
        folder = tmp_path.resolve() / "workspace"
        (folder / "src").mkdir(parents=True)
        (folder / "src/code").write_text("code")
        (folder / ".env").write_text("secret")
        (tmp_path / "outside").write_text("private")
        return folder

    @pytest.fixture(autouse=True)
    def temporary(self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """Use an empty folder for temporary files, and expect it to be empty again after the test."""
        folder = tmp_path_factory.mktemp("temporary")
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        yield folder
        assert list(folder.iterdir()) == []

    @pytest.fixture
    def alive(self, workspace: Path) -> Iterator[int]:
        """Return the end of a pipe that is at its end of file when no daemon holds it."""
        os.mkfifo(workspace / "alive")
        reader = os.open(workspace / "alive", os.O_RDONLY | os.O_NONBLOCK)
        yield reader
        os.close(reader)

    def test_confinement_is_described(self, sandbox: CommandSandbox) -> None:
        confinement = sandbox.confinement

        assert confinement.backend
        assert set(confinement.capabilities) <= set(CAPABILITIES)
        assert bool(confinement.notes) >= confinement.degraded

    async def test_script_runs_and_its_exit_is_returned(self, sandbox: CommandSandbox, workspace: Path) -> None:
        outcome = await run_command(sandbox, "pwd; echo oops >&2; cd src; exit 3", workspace)

        assert (summarize_exit(outcome.ended), outcome.ended.cwd) == (("exited", 3, ""), f"{workspace}/src")
        assert (outcome.stdout, outcome.stderr) == (f"{workspace}\n", "oops\n")
        assert outcome.ended.duration_seconds > 0

    async def test_program_gets_its_arguments_unchanged(self, sandbox: CommandSandbox, workspace: Path) -> None:
        outcome = await run_command(sandbox, ("printf", "%s|", "a b", "$HOME", "", "ü'\""), workspace)

        assert (summarize_exit(outcome.ended), outcome.stdout) == (("exited", 0, ""), "a b|$HOME||ü'\"|")

    async def test_command_starts_in_its_folder(self, sandbox: CommandSandbox, workspace: Path) -> None:
        assert (await run_command(sandbox, "pwd", workspace, cwd=f"{workspace}/src")).stdout == f"{workspace}/src\n"

    async def test_standard_input_is_empty(self, sandbox: CommandSandbox, workspace: Path) -> None:
        assert (await run_command(sandbox, "cat; echo end", workspace)).stdout == "end\n"

    @pytest.mark.parametrize(("script", "end"), [("kill -SEGV $$", "SIGSEGV"), ("kill -KILL $$", "SIGKILL")])
    async def test_signal_is_named(self, sandbox: CommandSandbox, workspace: Path, script: str, end: str) -> None:
        assert summarize_exit((await run_command(sandbox, script, workspace)).ended) == ("exited", None, end)

    async def test_output_is_returned_as_bytes(self, sandbox: CommandSandbox, workspace: Path) -> None:
        output = OutputRecorder()
        running = await sandbox.start(make_command(r"printf '\xff\x00\x1b[2J'", workspace), output)
        await running.wait(TIMEOUT_SECONDS)

        assert output.bytes() == b"\xff\x00\x1b[2J"

    async def test_environment_is_not_inherited(
        self, sandbox: CommandSandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OUR_KEY", "sk-canary")
        reads = "env; cat /proc/self/environ /proc/1/environ /proc/$PPID/environ | tr '\\0' '\\n'"

        printed = (await run_command(sandbox, reads, workspace, environment={"THEIRS": "given"})).stdout

        assert "THEIRS=given" in printed.splitlines()
        assert "canary" not in printed

    @pytest.mark.parametrize(("script", "options"), UNSTARTABLE)
    async def test_unstartable_command_raises(
        self, sandbox: CommandSandbox, workspace: Path, script: str | tuple[str, ...], options: dict[str, Any]
    ) -> None:
        with pytest.raises(SandboxSetupError):
            await run_command(sandbox, script, workspace, **options)

    async def test_missing_workspace_raises(self, sandbox: CommandSandbox, tmp_path: Path) -> None:
        with pytest.raises(SandboxSetupError):
            await run_command(sandbox, "true", tmp_path / "gone")

    async def test_timeout_asks_the_command_to_end(self, sandbox: CommandSandbox, workspace: Path) -> None:
        script = "trap 'echo cleaned; exit 7' TERM; echo ready; sleep 1000 & wait"

        outcome = await run_command(
            sandbox, script, workspace, timeout=0, after="ready", limits=CommandLimits(grace_seconds=TIMEOUT_SECONDS)
        )

        assert (summarize_exit(outcome.ended), outcome.stdout) == (("timeout", 7, ""), "ready\ncleaned\n")

    async def test_command_is_killed_after_the_grace(
        self, sandbox: CommandSandbox, workspace: Path, alive: int
    ) -> None:
        script = f"{DAEMON} trap '' TERM; echo ready; while :; do sleep 1000; done"

        outcome = await run_command(
            sandbox, script, workspace, timeout=0, after="ready", limits=CommandLimits(grace_seconds=0.1)
        )

        assert summarize_exit(outcome.ended) == ("timeout", None, "SIGKILL")
        assert os.read(alive, 1) == b""

    async def test_daemons_end_with_the_command(self, sandbox: CommandSandbox, workspace: Path, alive: int) -> None:
        outcome = await run_command(sandbox, f"{DAEMON} exit 5", workspace)

        assert summarize_exit(outcome.ended) == ("exited", 5, "")
        assert os.read(alive, 1) == b""

    async def test_cancelling_the_wait_ends_daemons(self, sandbox: CommandSandbox, workspace: Path, alive: int) -> None:
        begun = asyncio.Event()
        limits = CommandLimits(grace_seconds=0.1)
        command = make_command(f"{DAEMON} echo ready; sleep 1000", workspace, limits=limits)
        running = await sandbox.start(command, lambda stream, chunk: begun.set())
        waiting = asyncio.create_task(running.wait())
        await asyncio.wait_for(begun.wait(), TIMEOUT_SECONDS)

        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        assert os.read(alive, 1) == b""

    async def test_stopping_ends_daemons(self, sandbox: CommandSandbox, workspace: Path, alive: int) -> None:
        running = await sandbox.start(make_command(f"{DAEMON} sleep 1000", workspace), OutputRecorder())

        ended = await running.stop()

        assert ended.reason == "stopped"
        assert os.read(alive, 1) == b""

    async def test_output_is_limited(self, sandbox: CommandSandbox, workspace: Path) -> None:
        outcome = await run_command(sandbox, "yes", workspace, limits=CommandLimits(output_bytes=100_000))

        assert (outcome.ended.reason, len(outcome.stdout)) == ("output_limit", 100_000)

    async def test_memory_is_limited(self, sandbox: CommandSandbox, workspace: Path) -> None:
        # Two processes, each of them below the limit.
        script = "for i in 1 2; do (head -c 80M /dev/zero | tail -n1 | sleep 1000) & done; wait"

        outcome = await run_command(sandbox, script, workspace, limits=CommandLimits(memory_bytes=100 << 20))

        assert outcome.ended.reason == "memory_limit"

    async def test_processes_are_limited(self, sandbox: CommandSandbox, workspace: Path) -> None:
        program = "import os, signal, sys\nfor n in range(60): os.fork() or signal.pause()\nsignal.pause()"

        outcome = await run_command(sandbox, (PYTHON, "-c", program), workspace, limits=CommandLimits(processes=20))

        assert outcome.ended.reason == "process_limit" or "BlockingIOError" in outcome.stderr

    async def test_file_size_is_limited(self, sandbox: CommandSandbox, workspace: Path) -> None:
        limits = CommandLimits(file_bytes=1 << 20)

        outcome = await run_command(sandbox, "head -c 3M /dev/zero > large; echo $?", workspace, limits=limits)

        assert outcome.stdout == "153\n"
        assert (workspace / "large").stat().st_size == 1 << 20

    async def test_commands_run_concurrently(self, sandbox: CommandSandbox, workspace: Path) -> None:
        outcomes = await asyncio.gather(
            *(run_command(sandbox, f"echo {n} > $TMPDIR/n; cat $TMPDIR/n", workspace) for n in range(6))
        )

        assert [outcome.stdout for outcome in outcomes] == [f"{n}\n" for n in range(6)]

    async def test_temporary_folders_are_private_and_removed(self, sandbox: CommandSandbox, workspace: Path) -> None:
        first = await run_command(
            sandbox, "echo x > $TMPDIR/file && echo x > ~/file && mkdir -m0 $TMPDIR/no; ls $TMPDIR ~", workspace
        )
        second = await run_command(sandbox, "ls $TMPDIR ~ | grep -c file", workspace)

        assert first.stdout.count("file") == 2
        assert second.stdout == "0\n"

    async def test_only_workspace_and_system_are_readable(self, sandbox: CommandSandbox, workspace: Path) -> None:
        require_capability(sandbox, "files")
        reads = ["cat src/code", "ls /usr/bin", "cat ../outside", "ls .. | grep outside"]
        reads += ["cat /etc/shadow", "ls /root", "ls /var/lib", "cat /etc/hostname"]
        reads += [
            f"cat /proc/{os.getpid()}/environ",
            f"ls /proc/{os.getpid()}/root/",
            f"readlink /proc/{os.getpid()}/fd/0",
            f"cat /proc/{os.getpid()}/maps",
            "ls /run",
        ]

        assert await find_successful(sandbox, reads, workspace) == reads[:2]

    async def test_profile_makes_other_files_readable(self, sandbox: CommandSandbox, workspace: Path) -> None:
        require_capability(sandbox, "files")
        outside = f"{workspace.parent}/outside"

        attempts = [f"cat {outside}", f"echo x > {outside}", f"rm {outside}"]

        assert await find_successful(sandbox, attempts, workspace, readable=(outside,)) == attempts[:1]

    async def test_only_workspace_and_temporary_are_writable(self, sandbox: CommandSandbox, workspace: Path) -> None:
        require_capability(sandbox, "write_only_workspace")
        allowed = ["echo x > new", "mkdir -p a/b", "mv src/code src/moved", "echo x > $TMPDIR/x", "echo x > ~/x"]
        refused = ["touch /usr/x", "touch /etc/x", "touch /dev/x", "echo 1 > /proc/sys/vm/drop_caches"]
        refused += ["rm -r /usr/share/doc", "echo x > /proc/sys/kernel/core_pattern", "mv src/moved /usr"]
        refused += ["ln -s x /lib/x", "rm /etc/passwd"]

        assert await find_successful(sandbox, [*allowed, *refused], workspace) == allowed

    async def test_files_around_the_workspace_stay(self, sandbox: CommandSandbox, workspace: Path) -> None:
        require_capability(sandbox, "write_only_workspace")
        around = workspace.parent
        attempts = ["echo x > ../new", "echo x > ../outside", "truncate -s0 ../outside", "rm -f ../outside"]
        attempts += ["mv src .."]

        await find_successful(sandbox, attempts, workspace)

        assert sorted(path.name for path in around.iterdir()) == ["outside", "workspace"]
        assert (around / "outside").read_text() == "private"

    async def test_workspace_can_be_read_only(self, sandbox: CommandSandbox, workspace: Path) -> None:
        require_capability(sandbox, "read_only")
        allowed = ["cat src/code", "ls -R", "echo x > $TMPDIR/x"]
        refused = ["touch new", "echo x > src/code", "rm src/code", "mv src other", ": > .env", "ln src/code hard"]
        refused += ["mkfifo f"]

        assert await find_successful(sandbox, [*allowed, *refused], workspace, writable=False) == allowed

    async def test_files_can_be_hidden_or_read_only(self, sandbox: CommandSandbox, workspace: Path) -> None:
        require_capability(sandbox, "hide")
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
        successful = await find_successful(sandbox, attempts, workspace, hidden=hidden, read_only=read_only)
        assert successful == attempts[:3]
        assert (workspace / ".env").read_text() == "secret"

    @pytest_asyncio.fixture
    async def listening(self, workspace: Path) -> AsyncIterator[dict[str, str]]:
        """Start servers on the host, and return how a command would reach them."""

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

    async def test_network_can_be_off(
        self, sandbox: CommandSandbox, workspace: Path, listening: dict[str, str]
    ) -> None:
        require_capability(sandbox, "network_off")

        script = "\n".join(f"({attempt}) && echo reached {name}" for name, attempt in listening.items())
        outcome = await run_command(sandbox, script, workspace)

        reached = {line for line in outcome.stdout.splitlines() if line.startswith("reached")}
        # In a network namespace a packet without a receiver is simply lost.
        assert reached <= {"reached udp"}

    async def test_listener_serves_the_command_alone(
        self, sandbox: CommandSandbox, workspace: Path, listening: dict[str, str]
    ) -> None:
        require_capability(sandbox, "egress")
        port, listeners = 61_080, list[socket.socket]()

        def serve(listener: socket.socket) -> None:
            listener.listen()
            listeners.append(listener)

        script = "\n".join(f"({attempt}) && echo reached {name}" for name, attempt in listening.items())
        script += f"\nexec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3; cat /.listed"
        started = await sandbox.start(
            make_command(script, workspace, egress_port=port, on_listener=serve, files={"/.listed": b"listed"}),
            output := OutputRecorder(),
        )
        accepted, _ = await asyncio.to_thread(listeners[0].accept)
        with listeners[0], accepted:
            with pytest.raises(OSError):  # noqa: PT011 - nothing of it is on the host
                socket.create_connection(("127.0.0.1", port)).close()
            accepted.sendall(b"served ")
        await started.wait(TIMEOUT_SECONDS)

        reached = {line for line in output.text().splitlines() if line.startswith("reached")}
        assert reached <= {"reached udp"}
        assert output.text().endswith("served listed")

    async def test_other_processes_cannot_be_signalled(self, sandbox: CommandSandbox, workspace: Path) -> None:
        require_capability(sandbox, "files")
        processes = [os.getpid(), os.getppid()]
        attempts = [f"{what} {process}" for process in processes for what in ("kill -0", "prlimit --cpu=9999 --pid")]

        assert await find_successful(sandbox, ["ulimit -c 0", *attempts], workspace) == ["ulimit -c 0"]

    async def test_other_processes_cannot_be_seen(self, sandbox: CommandSandbox, workspace: Path) -> None:
        require_capability(sandbox, "processes")

        assert await find_successful(sandbox, [f"ls /proc/{os.getpid()}", f"kill -0 {os.getpid()}"], workspace) == []

    async def test_dangerous_system_calls_are_refused(self, sandbox: CommandSandbox, workspace: Path) -> None:
        require_capability(sandbox, "syscalls")
        call = f"{PYTHON} -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(*map(int, sys.argv[1:])) < 0)'"
        numbers = {"x86_64": (250, 425, 321), "aarch64": (219, 425, 280)}[os.uname().machine]
        attempts = ["unshare -U true", "unshare -n true", *(f"{call} {number} 0 0 0 0" for number in numbers)]

        assert await find_successful(sandbox, [f"{call} 39", *attempts], workspace) in ([], [f"{call} 39"])

    async def test_outside_metadata_cannot_be_changed(self, sandbox: CommandSandbox, workspace: Path) -> None:
        require_capability(sandbox, "metadata")
        before = (workspace.parent / "outside").stat()

        attempts = ["chmod 777 ../outside", "touch -d 2001-01-01 ../outside", "chmod 0 .."]
        await find_successful(sandbox, attempts, workspace)

        assert (workspace.parent / "outside").stat() == before
