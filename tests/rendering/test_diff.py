"""Diffs: they lead from the old text to the new, are counted exactly, and are quick on any text."""

import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.rendering.diff import Diff, make_unified_diff, split_lines, truncate_diff

TEXTS = st.text("abc\n\r", max_size=80) | st.lists(st.sampled_from("abcdefgh"), max_size=30).map("\n".join)


def patched(old: str, diff: Diff) -> str:
    """The old text with the diff applied, as any program would that knows unified diffs."""
    old_lines, new_lines, at, sign = split_lines(old), list[str](), 0, ""
    for line in split_lines(diff.text)[2:]:
        if hunk := re.match(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@\n", line):
            start = int(hunk[1]) - (hunk[2] != "0")
            new_lines += old_lines[at:start]
            at = start
        elif line.startswith("\\"):
            if sign in "+ ":
                new_lines[-1] = new_lines[-1].removesuffix("\n")
        else:
            if line[0] in " -":
                assert old_lines[at].rstrip("\n") == line[1:].rstrip("\n")
                at += 1
            if line[0] in " +":
                new_lines.append(line[1:])
        sign = line[0]
    return "".join(new_lines + old_lines[at:])


@given(TEXTS, TEXTS)
def test_a_diff_leads_from_the_old_text_to_the_new(old: str, new: str) -> None:
    diff = make_unified_diff(old, new, "f")
    body = [line for line in split_lines(diff.text)[2:] if not line.startswith("\\")]

    assert patched(old, diff) == new
    assert diff.added == sum(line.startswith("+") for line in body)
    assert diff.removed == sum(line.startswith("-") for line in body)
    assert diff.added - diff.removed == len(split_lines(new)) - len(split_lines(old))
    assert (diff.hunks == ()) == (old == new)


def test_a_diff_looks_as_usual() -> None:
    old = "".join(f"{number}\n" for number in range(1, 31))
    new = old.replace("\n5\n", "\nfive\n").replace("\n25\n", "\n25\n25.5\n").removesuffix("\n")

    assert make_unified_diff(old, new, "dir/f.txt").text == (
        "--- a/dir/f.txt\n+++ b/dir/f.txt\n"
        "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
        "@@ -23,8 +23,9 @@\n 23\n 24\n 25\n+25.5\n 26\n 27\n 28\n 29\n-30\n+30\n\\ No newline at end of file\n"
    )


def test_a_new_file_comes_from_nothing() -> None:
    diff = make_unified_diff(None, "a\nb\n", "f")

    assert diff.text == "--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n"
    assert diff.counts == "+2 -0"
    assert make_unified_diff("a\n", "", "f").text == "--- a/f\n+++ b/f\n@@ -1 +0,0 @@\n-a\n"


def test_a_line_that_moved_is_the_only_change() -> None:
    old = "".join(f"line {number}\n" for number in range(100))
    new = old.replace("line 50\n", "") + "line 50\n"

    assert (make_unified_diff(old, new, "f").added, make_unified_diff(old, new, "f").removed) == (1, 1)


def test_a_name_cannot_add_lines_to_the_diff() -> None:
    header = make_unified_diff("a", "b", "x\n+++ b/y\x1b").text.split("@@")[0]

    assert header == '--- "a/x\\n+++ b/y\\x1b"\n+++ "b/x\\n+++ b/y\\x1b"\n'


@given(TEXTS, TEXTS, st.integers(0, 200))
def test_a_shown_diff_is_within_its_bound_and_its_bytes_are_accounted_for(old: str, new: str, room: int) -> None:
    diff = make_unified_diff(old.replace("a", "é"), new, "f")
    shown = truncate_diff(diff, room)
    kept, _, said = shown.text.partition("[... ")

    assert shown.shown + shown.omitted == len(diff.text.encode())
    assert (shown.omitted == 0) == (said == "")
    assert diff.text.startswith(kept.rstrip("\n"))
    assert len(kept) <= max(room + 1, len(diff.text) if not said else 0)
    assert not said or said == f"{shown.omitted:,} bytes of the diff omitted ...]"


@pytest.mark.parametrize("lines", [["same\n"], [f"{number}\n" for number in range(120)]], ids=["one", "few"])
def test_hostile_texts_take_no_longer_than_others(lines: list[str]) -> None:
    old = "".join(lines[number % len(lines)] for number in range(60_000))
    new = "".join(lines[number * 7 % len(lines)] + ("x\n" if number % 3 else "") for number in range(60_000))
    began = process_time()
    make_unified_diff(old, new, "f")

    assert process_time() - began < 10
