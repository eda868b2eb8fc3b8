"""Wildcards are expanded as bash does it, or they are not known."""

import os
import shutil
import subprocess
from pathlib import Path
from random import Random
from time import process_time

import pytest

from interlock.policy.shell import glob_expansion
from interlock.policy.shell.bash import parse_script
from interlock.policy.shell.glob_expansion import ScanBudget, expand_glob

_PIECES = (
    *("a", "b", "-", "!", "^", "]", "[", "[", "*", "?", ".", "/", "x/", "[a]", "[!a]", "[^a]", "[a-c]", "[]-]"),
    *(
        "'['",
        "'[a]'",
        "']'",
        "\\[",
        "\\]",
        "'-'",
        "\\-",
        "'^'",
        '"!"',
        "'*'",
        "\\?",
        "[[:alpha:]]",
        "[[=a=]]",
        "[.]",
        "'a'",
    ),
)
_FILES = (
    ".a",
    ".env",
    "[a]",
    "[",
    "]",
    "-",
    "a",
    "b",
    "c",
    "^",
    "!",
    "a]",
    "[b",
    "*",
    "ab",
    "a-b",
    "x/a",
    "x/[a]",
    "[a]b",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in _FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def names(pattern: str, folder: Path) -> set[str]:
    found = expand_glob(pattern, str(folder), ScanBudget())
    assert found is not None
    return {os.path.relpath(path, folder) for path in found}


def words(seed: int, count: int) -> list[str]:
    random = Random(seed)
    return ["".join(random.choices(_PIECES, k=random.randint(1, 5))) for _ in range(count)]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to compare with")
def test_every_file_that_bash_finds_is_found(folder: Path) -> None:
    read = {word: parse_script(f"cat ./{word}") for word in words(seed=2026, count=3_000)}
    proved = {
        word: script.commands[0] for word, script in read.items() if not script.opaque and script.commands[0].globs
    }
    script = "\n".join(f"printf '%s\\0' ./{word}; printf '\\0'" for word in proved)
    told = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, check=True).stdout.decode()

    missed = [
        word
        for (word, command), files in zip(proved.items(), told.split("\0\0"), strict=False)
        if not {os.path.normpath(file) for file in files.split("\0")} - {os.path.normpath(command.globs[0])}
        <= names(command.globs[0], folder)
    ]

    assert missed == []
    assert len(proved) > 300


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (".e[^x]v", {".env"}),
        ("x/?", {"x/a"}),
        ("x/[a]", {"x/a", "x/[a]"}),
        ("*/[a]", {"x/a", "x/[a]"}),
        (".*", {".a", ".env", ".", ".."}),
        ("none/*", set[str]()),
        ("a/*", set[str]()),
    ],
)
def test_a_bracket_also_stands_for_itself_and_hidden_names_count(pattern: str, found: set[str], folder: Path) -> None:
    assert names(pattern, folder) == found


def test_a_pattern_from_the_root_starts_there(folder: Path) -> None:
    assert expand_glob(f"{folder}/.en?", "/nowhere", ScanBudget()) == [f"{folder}/.env"]


def test_more_files_than_the_budget_are_not_known(folder: Path) -> None:
    assert expand_glob("*", str(folder), ScanBudget(entries=3)) is None
    assert expand_glob("*/a", str(folder), ScanBudget(entries=len(os.listdir(folder)) + 1)) is None


def test_more_time_than_the_budget_is_not_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(glob_expansion, "monotonic", lambda: next(clock))
    assert expand_glob("*", str(folder), ScanBudget(seconds=3)) is None


def test_the_budget_is_shared_by_all_patterns_that_use_it(folder: Path) -> None:
    looks = ScanBudget(entries=2 * len(os.listdir(folder)))
    assert [expand_glob("*", str(folder), looks) is None for _ in range(3)] == [False, True, True]


@pytest.mark.parametrize("pattern", ["/*/*/*/*/*/zzz", "[" * 60_000, "*" * 60_000, "a*" * 60 + "b", "[a" * 64])
def test_no_pattern_takes_long(pattern: str, folder: Path) -> None:
    (folder / ("a" * 250)).touch()
    before = process_time()
    expand_glob(pattern, str(folder), ScanBudget())

    assert process_time() - before < 1
