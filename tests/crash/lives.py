"""Children that live the scripted run in a folder, one after another, and how each of them ended."""

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.patience import HANG_SECONDS

from .scripted import COUNTS, ERROR

ROOT = Path(__file__).parents[2]
KILLED = -signal.SIGKILL


class Lives:
    """One warm process that forks a child for each life."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.crash.scripted"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def live(
        self, folder: Path, mode: str = "resubmit", kind: str = "", number: int = 0, file_limit_bytes: int = 0
    ) -> int:
        """The exit code of a child that dies when it reaches this point, or that ends by itself."""
        assert self._process.stdin
        assert self._process.stdout
        folder.mkdir(exist_ok=True)
        print(json.dumps([str(folder), mode, kind, number, file_limit_bytes]), file=self._process.stdin, flush=True)
        code = int(self._process.stdout.readline())
        error = folder / ERROR
        assert not error.exists(), error.read_text()
        return code

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(HANG_SECONDS)


def counts_of(folder: Path) -> Counter[str]:
    """How often each kind of point was reached in a life that was not cut short."""
    return Counter(json.loads((folder / COUNTS).read_text()))
