"""An ordinary user, for suites that root runs: who it is, and a Python that it may use."""

import atexit
import json
import os
import site
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.patience import HANG_SECONDS

NOBODY = 65534
ROOT = Path(__file__).parents[2]


def run_as_ordinary_user(
    *words: str, timeout: float = 4 * HANG_SECONDS, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """Python with these words; nothing of the environment is inherited."""
    return subprocess.run(
        [_python(), "-B", *words], capture_output=True, text=True, check=False, timeout=timeout, **_as_user(), **options
    )


def _as_user() -> dict[str, Any]:
    """Return who a process is, where it works, and what it knows."""
    user: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *site.getsitepackages()])
    return {"env": {"PYTHONPATH": path}, "cwd": ROOT, **user}


def _python() -> str:
    """The one that runs the suite may be in a home that nobody else may enter."""
    version = "{}.{}".format(*sys.version_info[:2])
    for python in (sys.executable, f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"):
        if os.geteuid() != 0 or _is_for_everybody(Path(python)):
            return python
    pytest.skip(f"an ordinary user may execute no Python {version} here")


def _is_for_everybody(program: Path) -> bool:
    real = program.resolve()
    return real.exists() and all(path.stat().st_mode & 0o001 for path in (real, *real.parents))


def _open_folder() -> str:
    """Where temporary files may be made and everybody may enter, whatever a test says about `tempfile`."""
    folders = (os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp", "/dev/shm")
    return next(folder for folder in folders if folder and os.access(folder, os.W_OK | os.X_OK))


@cache
def _warm() -> "subprocess.Popen[str]":
    """The process that runs pytest. It ends with this one, which closes its input."""
    words = [_python(), "-B", "-m", "tests.sandbox.ordinary_pytest"]
    process = subprocess.Popen(words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **_as_user())
    atexit.register(process.communicate)
    return process


def pytest_as_ordinary_user(file: str, *options: str) -> None:
    """All tests of the file, once more."""
    words = (
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:schemathesis",
        # What these files do not use takes as long to load as many of their tests.
        "-p",
        "no:inline_snapshot",
        "-p",
        "no:xdist",
        "--no-header",
    )
    process = _warm()
    assert process.stdin
    assert process.stdout
    # Not in a folder of the test's own, which nobody else may enter.
    with TemporaryDirectory(dir=_open_folder()) as folder:
        os.chown(folder, NOBODY, NOBODY)
        request = [[*words, f"--basetemp={folder}/tests", *options, file], f"{folder}/output"]
        try:
            print(json.dumps(request), file=process.stdin, flush=True)
            status = process.stdout.readline().strip()
        except BaseException:
            # The next file does not get the answer to this one.
            process.kill()
            _warm.cache_clear()
            raise
        output = Path(folder, "output")
        assert status == "0", output.read_text(errors="replace")[-8000:] if output.exists() else status
