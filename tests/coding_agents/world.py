"""A place where one coding agent works: a home of its own, a workspace, a model, and nothing else to reach."""

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from interlock import Inbox, Question, SqliteLog
from tests.coding_agents.model import Model
from tests.patience import wait_until

#: Until an agent is killed. It only ends what would never end: on a busy machine opencode needs half a minute.
AGENT_SECONDS = 200
#: How often the open questions are read while an agent is asked.
_LOOK_SECONDS = 0.2
#: What `Finished.output` shows of long output.
_SHOWN = 6000

Decision: TypeAlias = Literal["approve", "reject"]


@dataclass(frozen=True)
class Finished:
    """What a program printed, and its exit status."""

    command: str
    status: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """Return everything, for the message of a failed assertion."""
        return f"$ {self.command}\n[{self.status}]\n{self.stdout[-_SHOWN:]}\n{self.stderr[-_SHOWN:]}"


class World:
    """Run agents and `interlock` as one user would, with a fresh home."""

    def __init__(self, folder: Path, model: Model) -> None:
        self.folder = folder
        self.model = model
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        self.home.mkdir()
        self.workspace.mkdir()
        self.log = self.home / ".local" / "state" / "interlock" / "runs.db"
        self.path = [str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]
        self._count = 0

    @property
    def effects(self) -> list[str]:
        """Return what commands have written, one line for each time that one ran."""
        path = self.workspace / "ran.txt"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables of a plain login, with a proxy that refuses the rest of the world."""
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), self.model.url)
        return {
            "HOME": str(self.home),
            "PATH": os.pathsep.join(self.path),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            **proxies,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def run(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, *, seconds: float = AGENT_SECONDS
    ) -> Finished:
        """Run a program to its end in the workspace, and end what it leaves in its process group.

        Its output goes to files: a daemon that it starts would keep a pipe open.
        """
        self._count += 1
        out, err = (self.folder / f"{self._count:02}.{name}" for name in ("out", "err"))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                command,
                cwd=self.workspace,
                env={**self.environment, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                status = -1
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        shown = shlex.join([Path(command[0]).name, *command[1:]])
        finished = Finished(shown, status, *(path.read_text(errors="replace") for path in (out, err)))
        assert status != -1, f"no end within {seconds} seconds: {finished.output}"
        return finished

    @contextmanager
    def running(self, command: Sequence[str], environment: Mapping[str, str]) -> "Generator[subprocess.Popen[bytes]]":
        """Run a program that is spoken to over its standard input and output, and end it."""
        with (self.folder / "running.err").open("wb") as stderr:
            process = subprocess.Popen(
                command,
                cwd=self.workspace,
                env={**self.environment, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()

    @property
    def questions(self) -> list[Question]:
        """Return the open questions of this user's log."""

        async def read() -> list[Question]:
            async with SqliteLog(self.log) as log, Inbox(log) as inbox:
                return await inbox.pending()

        return asyncio.run(read()) if self.log.exists() else []

    def decide(self, decision: Decision, reason: str = "") -> None:
        """Answer the only open question, from another process than those of the agent."""

        async def answer() -> None:
            async with SqliteLog(self.log) as log, Inbox(log) as inbox:
                [question] = await inbox.pending()
                await getattr(inbox, decision)(question, by="ana", reason=reason)

        asyncio.run(answer())

    def wait_for_question(self, running: "Future[Any]") -> None:
        """Return when the program that runs in another thread has made a question open."""
        files = [self.log, self.log.with_name(f"{self.log.name}-wal")]
        seen: list[tuple[int, int]] = []
        while True:
            found = [(file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.exists()]
            if found != seen and self.questions:
                return
            seen = found
            assert not wait([running], _LOOK_SECONDS).done, "it ended without a question"

    def kill_daemon(self) -> None:
        """Kill the daemon of this user's hooks, also one that only starts, and return when it is gone."""
        self._kill(b"hooks\0serve\0")

    def kill_all(self) -> None:
        """Kill every process of this user: a hook that comes late starts a daemon after the agent has ended."""
        self._kill(b"")

    def _kill(self, command: bytes) -> None:
        home = f"HOME={self.home}".encode()

        def is_gone() -> bool:
            found = [int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_process(path, home, command)]
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not found

        wait_until(is_gone)

    def write_policy(self, rules: str) -> Path:
        """Write the policy of this user."""
        path = self.home / ".config" / "interlock" / "policy.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"version: 1\n{rules}\n")
        return path

    def serve_notes(self, *options: str) -> None:
        """Write the servers file of this user: one server, whose tool `add` appends to the file of `effects`."""
        server = self.workspace / "notes_server.py"
        shutil.copy(Path(__file__).with_name("notes_server.py"), server)
        command = [sys.executable, str(server), str(self.workspace / "ran.txt")]
        folder = self.home / ".config" / "interlock"
        folder.mkdir(parents=True, exist_ok=True)
        lines = ["[servers.notes]", f"command = {json.dumps(command)}", 'sandbox = { write = ["."] }', *options]
        (folder / "mcp.toml").write_text("\n".join(lines) + "\n")

    def interlock(self, *arguments: str, status: int = 0) -> Finished:
        """Run the `interlock` command, and expect this exit status."""
        finished = self.run([str(Path(sys.executable).with_name("interlock")), *arguments])
        assert finished.status == status, finished.output
        return finished


def _is_process(path: Path, variable: bytes, command: bytes) -> bool:
    """Return True if a folder of `/proc` is of a process with this variable, and these words in its command."""
    try:
        return variable in (path / "environ").read_bytes().split(b"\0") and command in (path / "cmdline").read_bytes()
    except OSError:  # it ended, or is somebody else's
        return False
