"""A command starts with default signals, however the process that starts it was started."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.sandbox.commands.probe import SandboxBackend

from .commands import usable
from .ordinary_user import pytest_as_ordinary_user

#: Ignores what background jobs and `nohup` ignore, blocks more, and shows what a command inherits of it.
PROGRAM = """
import asyncio, signal, sys
from pathlib import Path
from interlock.sandbox.commands.probe import choose_sandbox
from tests.sandbox.commands import run

for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
sandbox = choose_sandbox(sys.argv[1])
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR2})
outcome = asyncio.run(run(sandbox, "grep -E '^Sig(Ign|Blk)' /proc/self/status", Path(sys.argv[2])))
print(outcome.stdout, outcome.stderr)
"""


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock", "none"])
def test_no_signal_is_ignored_or_blocked(backend: SandboxBackend, tmp_path: Path) -> None:
    usable(backend)
    words = [sys.executable, "-c", PROGRAM, backend, str(tmp_path.resolve())]

    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=50)

    assert done.returncode == 0, done.stderr
    blocked, ignored = (int(number, 16) for number in done.stdout.split()[1::2])
    assert [name for name in signal.valid_signals() if (blocked | ignored) >> (name - 1) & 1] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="it is one already")
def test_all_of_this_holds_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user(__file__)
