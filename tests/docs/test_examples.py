"""Every example runs as it is, and shows what it says."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from .pages import EXAMPLES, ROOT

DEMO = ROOT / "examples" / "demo.py"
#: What each example must have printed, in this order.
PRINTED = {
    "approval": ["PAUSED_APPROVAL - Run send_mail?", "RUNNING - sent 5 characters to ana@example.org"],
    "crash": ["the first process ended with -9", "outcome_unknown - pay started", "paid: ['10']"],
    "demo": [
        *("c1  search        ok", "c2  delete_file   policy_denied", "c3  search        schema_invalid"),
        *("c4  wait_for_file timed_out", "c1  search        the same again", "c5  write_note    ok"),
        *("c6  run_tests     tests_failed", "[... ", "test_100_items", "FAIL", "[... ", "AssertionError: 0.0 != 0.1"),
        *(
            "hint  read_artifact(",
            "match 1 of 1",
            "test_100_items",
            "as it is      ok, ",
            "one byte off  event ",
        ),
        *("the messages are the same", "note.md is untouched"),
        *("p1  allow ", "leave-a-mark: ", "p2  deny ", "no-lost-work: ", "for the model: Use `git stash`", "p3  ask "),
        *("somebody edits migrate.sh", "VOID, nothing ran, asked again", "changed     file migrate.sh: sha256:"),
        *("A person (ana) changed the arguments", "output      echo dropping", "VOID, EXECUTED", "make test"),
    ],
    "demo_policy": [],
    "demo_screen": [],
    "demo_tools": [],
    "loop": ["Take an umbrella.", "| Bern: rain"],
    "quickstart": ["a True 3.5", "b False Denied by policy", "c False The arguments do not fit order"],
}


@cache
def _run(path: Path, columns: int) -> str:
    """What it prints to a file, with nobody to answer."""
    run = subprocess.run(
        [sys.executable, "-W", "error", path],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": str(columns)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    return run.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_offline_and_shows_what_it_says(path: Path) -> None:
    printed = _run(path, 80)
    place = 0
    for words in PRINTED[path.stem]:
        place = printed.find(words, place)
        assert place >= 0, f"{words!r} is missing, or comes too early, in:\n{printed}"


@pytest.mark.parametrize("columns", [72, 80])
def test_the_demo_stays_within_the_width_of_the_terminal(columns: int) -> None:
    printed = _run(DEMO, columns)
    assert [line for line in printed.splitlines() if len(line) > columns] == []


def test_the_demo_has_colours_only_in_a_terminal_that_wants_them() -> None:
    assert "\033" not in _run(DEMO, 80)
    assert "\033" in _in_terminal(DEMO, {})
    assert "\033" not in _in_terminal(DEMO, {"NO_COLOR": "1"})


def _in_terminal(path: Path, environment: dict[str, str]) -> str:
    ours, theirs = os.openpty()
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, path], env={**kept, **environment}, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    printed = b""
    try:
        while piece := os.read(ours, 4096):
            printed += piece
    except OSError:  # the other side is closed
        pass
    finally:
        os.close(ours)
        assert process.wait(30) == 0, printed.decode()
    return printed.decode()


def test_the_demo_says_that_its_people_are_scripted() -> None:
    assert "the answer (scripted, this demo asks nobody): yes" in _run(DEMO, 80)
    assert [line for line in _run(DEMO, 80).splitlines() if line.startswith("  ana ") and "scripted" not in line] == []
