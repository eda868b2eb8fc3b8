"""Scripts that are not proved: why, and what can be seen in them all the same."""

import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.policy.shell import bash
from interlock.policy.shell.bash import parse_script
from tests.corpora import spellings
from tests.each import each

_NOT_READ = spellings.load("opaque scripts")


@each("text", _NOT_READ)
def test_what_is_not_proved_is_opaque(text: str) -> None:
    assert parse_script(text).opaque != ""


@each("text", _NOT_READ)
def test_reasons_are_short_and_in_words(text: str) -> None:
    reason = parse_script(text).opaque
    assert len(reason) < 100
    assert reason.isprintable()


@each(
    "text",
    [
        "if a; then rm -rf x; fi",
        "for i in 1 2; do rm -rf x; done",
        "f() { rm -rf x; }; f",
        'echo "$(rm -rf x)"',
        "echo `rm -rf x`",
        "A=$(rm -rf x) ls",
        "cat <(rm -rf x)",
        "cat <<E\n$(rm -rf x)\nE",
        "echo $(echo $(rm -rf x))",
        "case x in x) rm -rf x;; esac",
        "ls ~; sudo rm -rf x",
        "echo $x > f; r\\m '-rf' x",
        "eval 'rm -rf x'",
        "eval rm -rf x",
        "trap 'rm -rf x' EXIT",
        "sh -c 'echo $y; rm -rf x'",
        "zsh -c 'rm -rf x'",
        "bash --norc -c 'rm -rf x'",
        "env -S 'rm -rf x'",
        "env -S'rm -rf x'",
        "env --split-string='rm -rf x'",
        "watch 'rm -rf x'",
        "xargs rm -rf x",
        "parallel rm -rf x ::: y",
        "ssh host rm -rf x",
        "ssh host 'cd /; rm -rf x'",
        "sudo --strange y rm -rf x",
        "find . -exec rm -rf x \\;",
        "find . -exec sh -c 'rm -rf x' \\;",
        "find . -okdir sudo rm -rf x ';'",
        "flock f rm -rf x",
        "chroot / rm -rf x",
        "coproc rm -rf x",
        "time { rm -rf x; }",
        "ls; )( rm -rf x",
        "$y > f rm; rm -rf x",
        "rm > $y -rf x",
        ";".join(["ls"] * 300) + ";rm -rf x",
        "(" * 20 + "rm -rf x" + ")" * 20,
        "a" * 70_000 + ";rm -rf x",
        "ls\rls; rm -rf x",
        "if a; then sudo rm -rf x; fi #" + "a" * 70_000,
        "if a; then A=1 nice 'rm' -rf x; fi #" + "a" * 5_000,
    ],
)
def test_commands_inside_an_opaque_script_are_listed(text: str) -> None:
    script = parse_script(text)
    assert script.opaque != ""
    assert ("rm", "-rf", "x") in [command.argv[:3] for command in script.commands]


def test_an_opaque_command_keeps_its_words_as_they_are_written() -> None:
    script = parse_script("rm -rf $HOME 'a b'")
    assert [command.argv for command in script.commands] == [("rm", "-rf", "$HOME", "a b")]


def test_files_that_an_opaque_script_opens_are_listed() -> None:
    script = parse_script("for i in 1; do cat < in > out; done")
    assert [(redirect.path, redirect.writes) for redirect in script.redirects] == [("in", False), ("out", True)]


def test_an_opaque_script_may_be_in_any_folder_that_it_goes_to() -> None:
    script = parse_script("if a; then cd /etc; cat x; fi")
    assert {command.bases for command in script.commands} == {("", "/etc")}


@pytest.mark.parametrize("count", [49, 50, 51, 200])
def test_many_commands_are_read(count: int) -> None:
    script = parse_script("; ".join(["ls"] * count))
    assert (script.opaque, len(script.commands)) == ("", count)


@pytest.mark.parametrize("count", [201, 10_000])
def test_too_many_commands_are_never_taken_as_read(count: int) -> None:
    script = parse_script("; ".join([*(["ls"] * count), "curl x"]))
    assert script.opaque == "it has more than 200 commands"
    assert ("curl", "x") in [command.argv for command in script.commands]


def test_nesting_is_bounded() -> None:
    assert parse_script("( " * 8 + "a" + " )" * 8).opaque == ""
    assert parse_script("( " * 9 + "a" + " )" * 9).opaque == "it is nested more than 8 deep"


@each(
    "text",
    [
        "a" * 1_000_000,
        "'" + "a" * 65_000,
        '"' + "\\a" * 30_000,
        "(" * 60_000,
        "$(" * 30_000,
        "{ " * 30_000,
        "! " * 30_000,
        "a&&" * 21_000,
        "a|" * 30_000,
        "a\n" * 30_000,
        "a;" * 500_000,
        "eval " * 12_000,
        "eval 'cd a;" * 8 + "x " * 20_000,
        "env " * 15_000,
        "sudo -Z " + "a* " * 20_000,
        "find " + "-exec a ';' " * 5_000,
        "cat <<'E'\n" * 5_000,
        "cd a;" * 13_000,
        "cd a || " * 8_000 + "b",
        "ls " + "[" * 60_000 + ":",
        "`" * 60_000,
    ],
)
def test_hostile_scripts_are_refused_in_bounded_time(text: str) -> None:
    start = time.process_time()
    assert parse_script(text).opaque != ""
    assert time.process_time() - start < 5


def test_without_a_parser_everything_is_opaque_and_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bash, "bash_tree", None)
    script = parse_script("ls && 'rm' -rf x")
    assert script.opaque == "no parser is installed"
    assert [command.argv for command in script.commands] == [("ls",), ("rm", "-rf", "x")]


def test_letters_beyond_ascii_do_not_crash_the_parser() -> None:
    """The scanner of the grammar looks them up in a table of 256 entries, which ends a process now and then."""
    code = (
        "from interlock.policy.shell.bash import parse_script\n"
        "for point in range(0x100, 0x110000, 0x101):\n"
        "    if not 0xD800 <= point < 0xE000:\n"
        "        parse_script('{' + chr(point) * 3 + '} ' + chr(point))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(st.text())
def test_no_text_raises(text: str) -> None:
    parse_script(text)


_PIECES = [
    "a",
    "rm",
    "$(",
    ")",
    "`",
    "'",
    '"',
    "\\",
    "{",
    "}",
    ";",
    "&",
    "|",
    "<",
    ">",
    "<<E",
    "\n",
    "[",
    "]]",
    "if",
    "fi",
]


@given(st.lists(st.sampled_from([*_PIECES, "*", "~", "!", "sudo", "eval", "sh", "-c", "#"])).map(" ".join))
def test_no_heap_of_operators_raises(text: str) -> None:
    parse_script(text)
