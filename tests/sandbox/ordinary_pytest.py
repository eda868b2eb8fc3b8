"""Runs pytest for `ordinary_user.py`. What all files of tests need is loaded once; each run is a fork.

Each line of the standard input is JSON: the words for pytest, and a file for its output. The answer is its exit status.
"""

import gc
import json
import os
import select
import signal
import sys

import hypothesis
import pytest
import pytest_asyncio

import interlock.local
import interlock.testing
from tests.patience import HANG_SECONDS

#: Loaded, and used by the forks.
LOADED = (hypothesis, pytest_asyncio, interlock.local, interlock.testing)
#: Plugins that are loaded already are not rewritten, which is for their own tests.
_WARNINGS = ("-W", "ignore::pytest.PytestAssertRewriteWarning")


def serve() -> None:
    gc.freeze()
    for line in sys.stdin:
        words, output = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
            os.dup2(1, 2)
            sys.exit(pytest.main([*_WARNINGS, *words]))
        if not select.select([handle := os.pidfd_open(pid)], [], [], 4 * HANG_SECONDS)[0]:
            os.kill(pid, signal.SIGKILL)
        os.close(handle)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
