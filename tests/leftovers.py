"""Run a command and fail when it leaves processes: `python -m tests.leftovers COMMAND...`.

This process is the subreaper of everything that the command starts (Linux), so a process whose parent has ended stays
below it, also one in a session of its own or with another environment.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from interlock.sandbox.host.process_tree import list_descendants

_PR_SET_CHILD_SUBREAPER = 36
#: What was killed at the end may take a moment to disappear.
GRACE_SECONDS = 10.0
#: `make` and terminals send these. The command decides what they mean, and this process reports its answer.
_FORWARDED = (signal.SIGTERM, signal.SIGHUP)


def main(command: Sequence[str], grace_seconds: float = GRACE_SECONDS) -> int:
    """Return the command's exit status, or 1 if it succeeded and left processes. Those are killed."""
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        print("tests.leftovers: cannot become a subreaper; leftover processes are not found.", file=sys.stderr)
    process = subprocess.Popen(command)
    _pass_on_signals(process)
    status = _wait(process)
    left = _left(grace_seconds)
    for pid in left:
        print(f"error: left running: {pid} {_describe(pid)}", file=sys.stderr)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _reap()
    return status or int(bool(left))


def _pass_on_signals(process: "subprocess.Popen[bytes]") -> None:
    # Ctrl-C reaches the command too, which is in the same process group.
    signal.signal(signal.SIGINT, lambda _, __: None)
    for number in _FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: process.send_signal(number))


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the command, and reap orphans meanwhile so that none looks alive to a test."""
    while True:
        pid, status = os.wait()
        if pid == process.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _left(grace_seconds: float) -> list[int]:
    """Return the processes that are still below this one after the time of grace."""

    def is_over(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, is_over)
    signal.setitimer(signal.ITIMER_REAL, grace_seconds)
    with suppress(TimeoutError):
        _reap()
    signal.setitimer(signal.ITIMER_REAL, 0)
    return list_descendants(os.getpid())


def _reap() -> None:
    """Wait until no process is left."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _describe(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return f"{words.strip()} (in {os.readlink(f'/proc/{pid}/cwd')})"
    except OSError:
        return "(it has ended)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
