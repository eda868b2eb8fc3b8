"""Gets the browser that the console's tests need: `python -m tests.server.console.install`, before the tests.

Debian's Chromium is installed where that may be done. One line says what was done, or why the tests will be skipped;
one that is there is used without a word.
"""

import os
import shutil
import subprocess
import sys

from tests.server.console.chromium import VARIABLE, chromium

_SECONDS = 300
_SKIPPED = "the tests in a browser will be skipped"


def main() -> str:
    """What to tell; empty: nothing."""
    if chromium() is not None:
        return ""
    if os.environ.get(VARIABLE):
        return f"{VARIABLE} names no file: {_SKIPPED}"
    apt = shutil.which("apt-get")
    if apt is None:
        return f"no Chromium here, and no apt-get to install it with: {_SKIPPED}"
    if os.geteuid() != 0:
        return f"no Chromium here, and only root may install it (apt-get install chromium): {_SKIPPED}"
    problem = _installed(apt)
    if problem or chromium() is None:
        return f"Chromium could not be installed ({problem or 'it is not there afterwards'}): {_SKIPPED}"
    return "installed Debian's chromium for the tests in a browser"


def _installed(apt: str) -> str:
    """Why not; empty: it is."""
    quiet = ("-qq", "-o", "DPkg::Lock::Timeout=60", "-o", "Acquire::Retries=1")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (("update",), ("install", "--yes", "--no-install-recommends", "chromium")):
        try:
            done = subprocess.run(
                (apt, *quiet, *words),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"apt-get {words[0]} took longer than {_SECONDS} s"
        if done.returncode and words[0] == "install":
            return (done.stdout.strip().splitlines() or ["apt-get failed"])[-1][:200]
    return ""


if __name__ == "__main__":
    told = main()
    if told:
        print(told, file=sys.stderr)
