"""Every example runs as it is, and shows what it says."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.sandbox.ordinary_user import run_as_ordinary_user

from .pages import EXAMPLES, ROOT, text_of

DEMO = ROOT / "examples" / "demo.py"
#: What each example must have printed, in this order.
PRINTED = {
    "agent": ["asked: Run order? ", "stock 2", "order ordered 50 tea", "COMPLETED - Tea was low. I ordered 50."],
    "approval": ["PAUSED_APPROVAL - Run send_mail?", "RUNNING - sent 5 characters to ana@example.org"],
    "chat": ["1: Hello.", "2: Are you there? - RUNNING", "Goodbye."],
    "crash": ["the first process ended with -9", "outcome_unknown - pay started", "paid: ['10']"],
    "demo": [
        *("m1  read_file  README.md", "m2  bash", "unittest failed: 1 run, 1 failed", "AssertionError: 0.0 != 0.1"),
        *("m5  edit_file  shop.py", "a person is asked", "old_string: items > 100", "Modified shop.py (+1 -1)"),
        *("m6  bash", "unittest passed: 1 passed", "read a key in ~/.ssh              no: ", "read /etc/shadow "),
        *(
            "read the project's .env           no: ",
            "write a hook for git              no: ",
            "read the log of this run ",
        ),
        *("call a server on this host        no: ", "the server met 1 caller", "tests before the edit   failed"),
        *("tests after the edit    passed", "the log                 verified"),
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
    "demo_local": [],
    "demo_policy": [],
    "demo_screen": [],
    "demo_tools": [],
    "durable_run": ["start:  PAUSED_APPROVAL", "answer: Run send_mail?", "go on:  COMPLETED - Ana has her mail."],
    "handoff": ["asked: reception", "asked: billing", "COMPLETED - Invoice 3 is paid."],
    "local_tools": [
        *("1 read_file ok: 1\ttea = 3.5", "2 read_file policy_denied: ", "3 bash ok: 1", "a person is asked: bash cat"),
        *("4 bash command_failed: cat: ../key.txt: ", "a person is asked: edit_file shop.py", "6 bash ok: 3.9"),
    ],
    "loop": ["Take an umbrella.", "| Bern: rain"],
    "nested_agents": ["front wants ask_clerk", "clerk wants refund", "COMPLETED - Your money is on its way."],
    "quickstart": ["a True 3.5", "b False Denied by policy", "c False The arguments do not fit order"],
    "typed_output": ["Review(stars=4, summary='Good soup.')"],
    "your_own_model": ["The dice have spoken. 4 42 tokens"],
}
#: The pages that show all of what an example prints.
SHOWN_ON = {
    "agent": "docs/quickstart.md",
    "chat": "docs/agents.md",
    "durable_run": "docs/runs.md",
    "handoff": "docs/agents.md",
    "nested_agents": "docs/agents.md",
    "typed_output": "docs/agents.md",
    "your_own_model": "docs/models.md",
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
    if path.stem in SHOWN_ON:
        page = text_of(SHOWN_ON[path.stem])
        assert f"```text\n{printed}```" in page or f"It prints `{printed.rstrip()}`." in page


@pytest.mark.parametrize("columns", [72, 80])
def test_the_demo_stays_within_the_width_of_the_terminal(columns: int) -> None:
    printed = _run(DEMO, columns)
    assert [line for line in printed.splitlines() if len(line) > columns] == []


def test_the_demo_has_colours_only_in_a_terminal_that_wants_them() -> None:
    assert "\033" not in _run(DEMO, 80)
    assert "\033" in _in_terminal(DEMO, {})
    assert "\033" not in _in_terminal(DEMO, {"NO_COLOR": "1"})


def test_the_demo_tries_nothing_that_works() -> None:
    assert "worked" not in _run(DEMO, 80)


def test_the_demo_works_for_an_ordinary_user_without_a_home() -> None:
    run = run_as_ordinary_user("-W", "error", str(DEMO))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "tests after the edit    passed" in run.stdout
    assert "worked" not in run.stdout


#: Runs the demo as if a backend were the best that there is.
WITH_BACKEND = """
import runpy, sys
from interlock import local
from interlock.sandbox.confined_landlock import LandlockSandbox
from interlock.sandbox.unconfined import UnconfinedSandbox

local.choose = {"none": UnconfinedSandbox, "landlock": LandlockSandbox}[sys.argv[1]]
sys.path.insert(0, "examples")
runpy.run_path("examples/demo.py", run_name="__main__")
"""


def test_the_demo_says_so_where_no_sandbox_works_and_tries_nothing() -> None:
    run = run_as_ordinary_user("-W", "error", "-c", WITH_BACKEND, "none")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "no sandbox works on this host" in run.stdout
    assert "tests after the edit    passed" in run.stdout
    assert "/etc/shadow" not in run.stdout


def test_the_demo_works_where_there_is_only_landlock() -> None:
    run = run_as_ordinary_user("-W", "error", "-c", WITH_BACKEND, "landlock")
    if "Landlock cannot confine commands here" in run.stdout + run.stderr:
        pytest.skip("there is no Landlock")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "landlock, which holds back less than it should" in " ".join(run.stdout.split())
    assert "worked" not in run.stdout


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
