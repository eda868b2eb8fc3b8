"""`interlock runs events` and `watch`: a run as it happens, from any process."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pyte
import pytest

from tests.patience import HANG_SECONDS

from .conftest import Run, newest
from .runs_program import TASK, mailer, program, recorded, said_by, started, wait_for


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.mark.requirement("R138")
def test_events_are_shown_in_order_a_line_for_each(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path)

    lines = [json.loads(line) for line in cli("runs", "events", "last", "--json", "--log", log).stdout.splitlines()]
    shown = cli("runs", "events", "last", "--log", log).stdout.splitlines()

    assert [event["seq"] for event in lines] == list(range(len(lines)))
    assert [event["fact"]["type"] for event in lines][:2] == ["run.started", "user.message"]
    assert [line.split()[2] for line in shown] == [event["fact"]["type"] for event in lines]


def test_what_was_said_and_asked_is_told_in_words(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path)

    shown = [" ".join(line.split()[2:]) for line in cli("runs", "events", "last", "--log", log).stdout.splitlines()]

    assert f"user.message {TASK}" in shown
    assert "model.request scripted, 1 message" in shown
    assert any(line.startswith("model.response 1 call") and line.endswith("ms: Step 1.") for line in shown)


def test_events_can_begin_after_one(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path)

    def numbers(*words: object) -> list[int]:
        lines = cli("runs", "events", "last", *words, "--json", "--log", log).stdout.splitlines()
        return [json.loads(line)["seq"] for line in lines]

    everything = numbers()
    assert numbers("--after", "3") == everything[4:]
    assert numbers("--after", "-9") == everything
    assert numbers("--after", "999") == []


def test_following_a_run_that_is_over_ends_at_once(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path, mailer(tmp_path, ("add", {"a": 1, "b": 2})))

    all_of_it = cli("runs", "events", "last", "--follow", "--json", "--log", log)

    assert json.loads(all_of_it.stdout.splitlines()[-1])["fact"]["type"] == "run.completed"
    assert cli("runs", "events", "last", "--follow", "--after", "999", "--log", log).stdout == ""


def test_a_run_is_followed_from_another_process_until_it_ends(tmp_path: Path, log: Path, cli: Run) -> None:
    with program(tmp_path, "asking") as process:
        run_id = said_by(process)
        wait_for(tmp_path, run_id, "approval.requested")
        follower = started("runs", "events", run_id, "--follow", "--json", "--log", log)
        watcher = started("runs", "watch", run_id, "--log", log)
        assert follower.stdout is not None
        seen = ""
        while seen != "approval.requested":
            seen = json.loads(follower.stdout.readline())["fact"]["type"]
        cli("approvals", "approve", newest(cli, log), "--by", "ada", "--log", log)
        followed, _ = follower.communicate(timeout=HANG_SECONDS)
        watched, _ = watcher.communicate(timeout=HANG_SECONDS)

    assert json.loads(followed.splitlines()[-1])["fact"]["type"] == "run.completed"
    assert (follower.returncode, watcher.returncode) == (0, 0)
    assert TASK in watched
    assert "Approved by ada" in watched
    assert watched.splitlines()[-2:] == ["completed", f"  interlock runs show {run_id[4:12]} --log {log}"]


def test_whoever_watches_a_run_that_nobody_has_is_told_and_may_leave(tmp_path: Path, log: Path) -> None:
    run_id = recorded(tmp_path).run_id
    watcher = started("runs", "watch", "last", "--log", log)
    assert watcher.stdout is not None

    while "No running process has this run" not in watcher.stdout.readline():
        pass
    command = watcher.stdout.readline()
    watcher.send_signal(signal.SIGINT)
    _, errors = watcher.communicate(timeout=HANG_SECONDS)

    assert command == f"  interlock runs resume {run_id[4:12]} --log {log}\n"
    assert (watcher.returncode, errors) == (130, "")


def test_a_run_that_failed_ends_a_watch_with_an_exit_code(tmp_path: Path, log: Path, cli: Run) -> None:
    recorded(tmp_path)
    cli("runs", "cancel", "last", "--by", "ada", "--log", log)

    ended = cli("runs", "watch", "last", "--log", log)

    assert ended.exit_code == 1
    assert "\ncancelled: Cancelled by ada.\n  interlock runs show " in ended.stdout


def test_lists_fit_a_terminal_of_80_columns(tmp_path: Path, log: Path) -> None:
    recorded(tmp_path, mailer(tmp_path, ("add", {"a": 1, "b": 2}), ("send", {"to": "bob" * 40})), "do it " * 40)

    for words in (("runs", "list"), ("runs", "show", "last"), ("runs", "events", "last"), ("approvals", "list")):
        lines = on_terminal(*words, "--log", str(log))
        assert not any(len(line) > 80 for line in lines)
        assert len([line for line in lines if line.startswith("do it")]) == 0  # nothing is carried over to a new line


def on_terminal(*words: str) -> list[str]:
    """What is on a screen of 80 columns afterwards."""
    ours, theirs = pty.openpty()
    program = [sys.executable, "-c", "from interlock.cli.main import main; main()", *words]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color"}
    with subprocess.Popen(program, stdout=theirs, stderr=theirs, stdin=theirs, env=environment) as process:
        os.close(theirs)
        screen = pyte.Screen(80, 60)
        stream = pyte.ByteStream(screen)
        while data := _read(ours):
            stream.feed(data)
        process.wait(HANG_SECONDS)
    os.close(ours)
    return [line.rstrip() for line in screen.display]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""
