"""Whatever becomes of what a command writes: words, an exit code, and never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.cli.display.output import make_visible

from .scripts import command, write_script

MAIN = "from interlock.cli.main import main; main()"
BUG = """
from interlock.cli import main as command
def raises(**_): raise KeyError("unexpected")
command.app = raises
command.main()
"""


def ended(*words: object, program: str = MAIN, **options: object) -> "subprocess.CompletedProcess[str]":
    everything: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 50}
    words = (sys.executable, "-c", program, *words)
    return subprocess.run(list(map(str, words)), check=False, **(everything | options))  # pyright: ignore


@pytest.mark.parametrize("words", ["config show", "config show --json", "--help", "trust"])
def test_output_that_cannot_be_written_is_told_in_a_line(home: Path, words: str) -> None:
    with open("/dev/full", "w") as full:
        said = ended(*words.split(), stdout=full)

    assert said.returncode == 1
    assert said.stderr == "interlock: the output: No space left on device. What was done before is not undone.\n"


def test_a_run_goes_on_without_anybody_who_could_see_it(tmp_path: Path, project: Path) -> None:
    script = write_script(tmp_path / "script.json", command("touch done.txt"), "Done.")

    with open("/dev/full", "w") as full:
        said = ended("run", "Touch it.", "--script", script, "--mode", "trusted", stdout=full)

    assert (said.returncode, said.stderr) == (0, "")
    assert (project / "done.txt").exists()


def test_letters_that_the_output_does_not_have_are_written_with_others(tmp_path: Path, project: Path) -> None:
    script = write_script(tmp_path / "script.json", "Grüße, 日本.")
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}

    ran = ended("run", "Say hello.", "--script", script, env=ascii_only)
    shown = ended("runs", "show", "last", env=ascii_only)

    assert (ran.returncode, shown.returncode) == (0, 0)
    assert "Gr\\xfc\\xdfe, \\u65e5\\u672c." in ran.stdout
    assert "Gr\\xfc\\xdfe, \\u65e5\\u672c." in shown.stdout


def test_a_bug_is_told_in_a_line_and_in_full_to_whoever_asks() -> None:
    told, traced = ended(program=BUG), ended(program=BUG, env={**os.environ, "INTERLOCK_TRACE": "1"})

    assert told.returncode == traced.returncode == 1
    assert told.stderr == (
        "interlock: a bug: KeyError: 'unexpected'. Set INTERLOCK_TRACE=1 for a traceback, and please report it.\n"
    )
    assert "Traceback" in traced.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("    if x:      # why", "    if x:      # why"),
        (f"ls{' ' * 70}; rm -rf /", "ls[70 spaces]; rm -rf /"),
        ("[70 spaces]", r"\u{5b}70 spaces]"),
        ("a\u202eb", r"a\u{202e}b"),
    ],
)
def test_only_spaces_that_hide_something_are_counted(text: str, shown: str) -> None:
    assert make_visible(text) == shown
