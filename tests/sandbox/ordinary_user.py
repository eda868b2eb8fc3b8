"""An ordinary user, for suites that root runs: who it is, and a Python that it may use."""

import os
import site
import subprocess
import sys
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
    user: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), *site.getsitepackages()])}
    return subprocess.run(
        [_python(), "-B", *words],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        **user,
        **options,
    )


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


def pytest_as_ordinary_user(file: str, *options: str) -> None:
    """All tests of the file, once more: with `make test-user`. An ordinary user who runs `make test` runs them, too."""
    if not os.environ.get("TEST_AS_USER"):
        pytest.skip("`make test-user` runs these tests as an ordinary user; so does one who runs `make test`")
    words = (
        "-m",
        "pytest",
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
    # Not in a folder of the test's own, which nobody else may enter.
    with TemporaryDirectory(dir=_open_folder()) as folder:
        os.chown(folder, NOBODY, NOBODY)
        ended = run_as_ordinary_user(*words, f"--basetemp={folder}/tests", *options, file)
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
