"""The provider commits, and the process is killed: no other process, run or call pays again."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from interlock import CallContext, ToolContext
from tests.patience import HANG_SECONDS

ROOT = Path(__file__).parents[3]


def start(folder: Path, run_id: str, call_id: str, mode: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.pipeline.effects.paying_process", str(folder), run_id, call_id, mode]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def pay(folder: Path, run_id: str, call_id: str, mode: str = "pay") -> str:
    """Return the code of the outcome; `killed` when the process was."""
    process = start(folder, run_id, call_id, mode)
    told, _ = process.communicate(timeout=HANG_SECONDS)
    return "killed" if process.returncode == -signal.SIGKILL else told.strip()


def paid(folder: Path) -> list[str]:
    return (folder / "paid").read_text().splitlines()


@pytest.mark.requirement("P16")
def test_killed_refund_is_not_paid_again(tmp_path: Path) -> None:
    assert pay(tmp_path, "run_1", "c1", "die") == "killed"

    assert pay(tmp_path, "run_2", "c1") == "approval_unavailable"
    assert pay(tmp_path, "run_1", "c2") == "approval_unavailable"
    assert pay(tmp_path, "run_1", "", "resume") == "outcome_unknown"
    assert pay(tmp_path, "run_1", "c3") == "approval_unavailable"
    assert len(paid(tmp_path)) == 1


@pytest.mark.requirement("P16")
def test_one_of_several_processes_starts_silently(tmp_path: Path) -> None:
    processes = [start(tmp_path, f"run_{number}", "c1", "together") for number in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [process.communicate(timeout=HANG_SECONDS)[0].strip() for process in processes]

    assert sorted(told) == [*["approval_unavailable"] * 3, "ok"]
    assert len(paid(tmp_path)) == 1


def test_idempotency_key_survives_kill_and_resume(tmp_path: Path) -> None:
    assert pay(tmp_path, "run_1", "c1", "die,idempotent") == "killed"
    assert pay(tmp_path, "run_1", "", "resume,idempotent") == "ok"

    first, again = paid(tmp_path)
    assert first == again


def test_idempotency_keys_differ_between_calls_and_runs() -> None:
    places = [("run", "c1"), ("run", "c2"), ("run_c", "1"), ("run2", "c1")]
    contexts = [ToolContext(CallContext(run_id=run_id), call_id, "refund", print) for run_id, call_id in places]

    assert len({context.idempotency_key for context in contexts}) == len(places)
