"""`interlock demo`: everybody can run it, it leaves nothing behind, and what it says is so."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.cli.demo.command import audit_entries, count_calls, read_entries, tamper_with
from interlock.cli.demo.process import CRASH, SURVIVE
from interlock.cli.demo.scenario import FIXED, SOURCE, make_project
from interlock.cli.exit_codes import ExitCode
from tests.patience import HANG_SECONDS
from tests.sandbox.ordinary_user import run_as_ordinary_user

from .scripts import on_terminal

PROGRAM = "import sys; sys.argv[0] = 'interlock'; from interlock.cli.main import main; main()"
STORY = (
    *("1. A project whose tests fail", "failed", "failed: ", "denied", "../key.txt", "The comparison is off by one."),
    *("the demo approves it itself", "The approval is in the log.", "kill -9", "3. The process is dead (signal 9)."),
    *(
        "edit_file shop.py",
        "items >= 100",
        "It was tried first: ",
        "D old.py",
        "passed: 2 passed",
        "verified ",
        "4. What was asked and what ran",
    ),
    *("nothing was asked or started twice: yes; the fix is in shop.py 1 time", "events in one chain, verified"),
    *(
        "one letter of a copy changed: event ",
        "5. What the run changed is put back",
        "A old.py",
        "the files are as they were",
        "6. Commands that are allowed to start",
        "no: ",
        "Done in ",
        "interlock run",
    ),
)
#: Put before everything else: another backend is the best that there is.
WITH_BACKEND = """
from interlock.sandbox.commands import probe
from interlock.sandbox.commands.landlock import LandlockSandbox
from interlock.sandbox.commands.unconfined import UnconfinedSandbox
probe.choose_sandbox = {backend}
"""


def demo(tmp_path: Path, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, "demo", *words],
        env={"TMPDIR": str(tmp_path), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=4 * HANG_SECONDS,  # many processes, one after the other
    )


def cpu_seconds_of_children() -> float:
    """Return what programs that have ended used. A busy machine does not change it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check_story(printed: str) -> None:
    place = 0
    for words in STORY:
        place = printed.find(words, place)
        assert place >= 0, f"{words!r} is missing, or comes too early, in:\n{printed}"
    assert "WORKED" not in printed


def test_the_demo_is_short_narrow_and_leaves_nothing(tmp_path: Path) -> None:
    before = cpu_seconds_of_children()

    run = demo(tmp_path)

    assert run.returncode == ExitCode.OK, run.stdout
    check_story(run.stdout)
    assert [line for line in run.stdout.splitlines() if len(line) > 80 and str(tmp_path) not in line] == []
    assert "\x1b" not in run.stdout
    assert list(tmp_path.iterdir()) == []
    assert cpu_seconds_of_children() - before < 20


def test_the_demo_works_for_an_ordinary_user_with_an_empty_environment() -> None:
    run = run_as_ordinary_user("-W", "error", "-c", PROGRAM, "demo", stdin=subprocess.DEVNULL)

    assert run.returncode == ExitCode.OK, run.stdout + run.stderr
    check_story(run.stdout)


@pytest.mark.parametrize(
    ("backend", "said"),
    [("UnconfinedSandbox", "no sandbox works on this host"), ("LandlockSandbox", "landlock, which")],
)
def test_the_demo_says_so_where_commands_are_held_back_less(tmp_path: Path, backend: str, said: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITH_BACKEND.format(backend=backend))
    folder = tmp_path / "temporary"
    folder.mkdir()

    run = demo(folder, PYTHONPATH=str(tmp_path))

    if "Landlock cannot confine commands here" in run.stdout:
        pytest.skip("there is no Landlock")
    assert run.returncode == ExitCode.OK, run.stdout
    assert said in " ".join(run.stdout.split())
    assert "nothing was asked or started twice: yes" in run.stdout
    assert "WORKED" not in run.stdout
    assert ("call a server on this host      no: " in run.stdout) == (backend != "UnconfinedSandbox")
    assert list(folder.iterdir()) == []


def test_the_process_dies_after_the_approval_and_another_one_starts_the_edit_once(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    words = [sys.executable, "-m", "interlock.cli.demo.process", str(tmp_path)]

    first = subprocess.run(
        [*words, CRASH], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=HANG_SECONDS
    )
    edit = next(call for call in count_calls(read_entries(tmp_path / "runs.db")) if call.tool == "edit_file")
    assert (first.returncode, edit.asked, edit.started, edit.outcome) == (-signal.SIGKILL, 1, 0, "open")
    assert FIXED not in (project / SOURCE).read_text()

    second = subprocess.run(
        [*words, SURVIVE], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=HANG_SECONDS
    )
    entries = read_entries(tmp_path / "runs.db")
    edit = next(call for call in count_calls(entries) if call.tool == "edit_file")
    assert (second.returncode, edit.asked, edit.started, edit.outcome) == (0, 1, 1, "ok")
    assert FIXED in (project / SOURCE).read_text()
    assert audit_entries(entries).ok
    assert not audit_entries(tamper_with(entries)).ok


def test_at_a_terminal_the_person_may_say_no_and_what_is_kept_is_named(tmp_path: Path) -> None:
    with on_terminal("demo", "--keep", env={**os.environ, "TMPDIR": str(tmp_path)}) as here:
        here.sees("d details: ")
        here.types("n")
        here.sees("(Enter: none): ")
        here.types("\n")
        after = here.sees("everything else")
        assert here.ends() == ExitCode.OK

    assert "The edit was refused, so nothing was changed" in after
    assert "the fix is in shop.py 0 times" in after
    [kept] = tmp_path.iterdir()
    assert f"interlock replay last --log {kept}/runs.db" in after.replace("\n", "")
    assert read_entries(kept / "runs.db")


def test_at_a_terminal_a_yes_survives_the_crash_and_is_not_asked_again(tmp_path: Path) -> None:
    with on_terminal("demo", env={**os.environ, "TMPDIR": str(tmp_path)}) as here:
        here.sees("d details: ")
        here.types("y")
        between = here.sees("d details: ")
        here.types("y")
        after = here.sees("Done in ")
        assert here.ends() == ExitCode.OK

    assert "The process is dead (signal 9)" in between
    assert "D old.py" in between
    assert "d details: " not in after
    assert "the files are as they were" in after
    assert "nothing was asked or started twice: yes" in after
