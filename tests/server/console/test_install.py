"""The step before the tests that sees to a browser."""

import subprocess
import sys
from pathlib import Path

from tests.patience import HANG_SECONDS
from tests.server.console.chromium import VARIABLE

_ROOT = Path(__file__).parents[3]


def _step(**environment: str) -> tuple[int, str]:
    done = subprocess.run(
        (sys.executable, "-m", "tests.server.console.install"),
        cwd=_ROOT,
        env={"PATH": "", **environment},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_browser_that_is_there_is_used_without_a_word() -> None:
    assert _step(**{VARIABLE: sys.executable}) == (0, "")


def test_one_line_says_that_the_tests_will_be_skipped_and_why() -> None:
    status, told = _step(**{VARIABLE: "/nowhere/chromium"})
    assert (status, told) == (0, f"{VARIABLE} names no file: the tests in a browser will be skipped\n")
