"""A place where one coding agent works: a home of its own, a workspace, a model, and nothing else to reach."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.coding_agents.model import Model

#: Until an agent is killed. It only ends what would never end: on a busy machine opencode needs half a minute.
AGENT_SECONDS = 200
#: What `Finished.output` shows of long output.
_SHOWN = 6000


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

    def __init__(self, folder: Path, model: Model, keyword: str) -> None:
        self.folder = folder
        self.model = model
        #: A word that prompts of this world hold, so that the model answers with its calls.
        self.keyword = keyword
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        self.home.mkdir()
        self.workspace.mkdir()
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
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
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

    def interlock(self, *arguments: str, status: int = 0) -> Finished:
        """Run the `interlock` command, and expect this exit status."""
        finished = self.run([str(Path(sys.executable).with_name("interlock")), *arguments])
        assert finished.status == status, finished.output
        return finished
