"""The checks around a run of the tests: no process is left, and all tests have the same signals."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_MAIN = "import sys; from tests.leftovers import main; sys.exit(main(sys.argv[1:], grace_seconds=0.2))"


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-c", _MAIN, *command]
    return subprocess.run(words, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
@pytest.mark.parametrize(
    "script", ["sleep 1000 &", "(setsid env -i sleep 1000 &)", "(exec -a other sleep 1000 &); exit 3"]
)
def test_a_process_that_is_left_fails_the_run(script: str) -> None:
    ended = run("bash", "-c", f"exec >/dev/null 2>&1; {script}")

    assert ended.returncode == (3 if "exit" in script else 1)
    pid = int(ended.stderr.split("left running: ")[1].split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 4", 4), ("kill -TERM $$", 128 + signal.SIGTERM)])
def test_a_run_that_leaves_nothing_keeps_its_status(script: str, status: int) -> None:
    ended = run("bash", "-c", f"(sleep 0.01 &); {script}")

    assert (ended.returncode, ended.stderr) == (status, "")


@pytest.fixture
def ignored() -> Iterator[None]:
    """The signals of a background job under `nohup`, with one blocked."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    yield
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("ignored")
def test_programs_of_tests_start_with_default_signals(tmp_path: Path) -> None:
    test = tmp_path / "test_signals.py"
    test.write_text(
        "import subprocess\n"
        "def test_it():\n"
        "    shown = subprocess.check_output(['grep', '-E', 'Sig(Blk|Ign)', '/proc/self/status'], text=True)\n"
        # Two signals are the C library's own, which may ignore them.
        "    assert [int(line.split()[1], 16) & ~0x180000000 for line in shown.splitlines()] == [0, 0], shown\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", str(test)]
    ended = subprocess.run(
        words, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False, timeout=60
    )

    assert ended.returncode == 0, ended.stdout
