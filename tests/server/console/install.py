"""Gets the browser that the console's tests need: `python -m tests.server.console.install`, before the tests.

Debian's Chromium without windows is installed where that may be done. One line says what was done, or why the tests
will be skipped; one that is there is used without a word.
"""

import os
import shutil
import subprocess
import sys

from tests.server.console.chromium import VARIABLE, chromium

_PACKAGE = "chromium-headless-shell"
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
        return f"no Chromium here, and only root may install it (apt-get install {_PACKAGE}): {_SKIPPED}"
    problem = _installed(apt)
    if problem or chromium() is None:
        return f"Chromium could not be installed ({problem or 'it is not there afterwards'}): {_SKIPPED}"
    return f"installed Debian's {_PACKAGE} for the tests in a browser"


def _installed(apt: str) -> str:
    """Why not; empty: it is."""
    _run(apt, "update")
    problem = _run(apt, "install", "--yes", "--no-install-recommends", _PACKAGE)
    # Older systems only have the one with windows.
    return problem and _run(apt, "install", "--yes", "--no-install-recommends", "chromium")


def _run(apt: str, *words: str) -> str:
    try:
        done = subprocess.run(
            (apt, "-qq", "-o", "DPkg::Lock::Timeout=60", "-o", "Acquire::Retries=1", *words),
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
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
    return (done.stdout.strip().splitlines() or ["apt-get failed"])[-1][:200] if done.returncode else ""


if __name__ == "__main__":
    told = main()
    if told:
        print(told, file=sys.stderr)
