"""Which commands a pattern allows, and which ones it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.policy.shell.bash import parse_script
from interlock.policy.shell.command import SimpleCommand
from interlock.policy.shell.command_match import matches_narrowly, matches_widely
from tests.corpora import spellings
from tests.each import each


def pattern(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def refuses(rule: str, text: str) -> bool:
    return any(matches_widely(pattern(rule), False, command) for command in parse_script(text).commands)


def allows(rule: str, text: str, exact: bool = False) -> bool:
    return all(matches_narrowly(pattern(rule), exact, command) for command in parse_script(text).commands)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("npm test", "npm test"),
        ("npm test", "npm test -- --watch"),
        ("npm", "npm test"),
        ("npm *", "npm test"),
        ("npm * x", "npm test x y"),
        ("git log", "git 'log' *.py"),
    ],
)
def test_a_command_that_starts_with_the_words_is_covered(rule: str, text: str) -> None:
    assert allows(rule, text)


@each(
    ("rule", "text"),
    [
        ("npm test", "npm tests"),
        ("npm test", "npm"),
        ("npm test", "npm --x test"),
        ("npm test", "./npm test"),
        ("npm test", "/usr/bin/npm test"),
        ("npm test", "A=1 npm test"),
        ("npm test", "sudo npm test"),
        ("sudo npm test", "sudo npm test"),
        ("bash -c", "bash -c 'rm x'"),
        ("npm test", "npm te*"),
        ("npm *", "npm te*"),
        ("npm test", "npm test; rm x"),
        ("npm test", "NPM test"),
        ("* test", "npm test"),
        ("", "npm"),
    ],
)
def test_anything_around_the_words_is_not_covered(rule: str, text: str) -> None:
    assert not allows(rule, text)


def test_exact_covers_the_very_words_only() -> None:
    assert allows("npm test", "npm test", exact=True)
    assert not allows("npm test", "npm test x", exact=True)


@each(
    ("rule", "text"),
    spellings.load("commands of a rule"),
)
def test_a_rule_that_refuses_finds_every_spelling(rule: str, text: str) -> None:
    assert refuses(rule, text)


@each(
    ("rule", "text"),
    [
        ("rm", "ls rm"),
        ("rm -rf", "rm -r x"),
        ("rm -rf", "rm -- -rf"),
        ("git reset --hard", "git reset --soft"),
        ("git reset --hard", "git log reset --hard"),
        ("git push", "git status push"),
        ("find -delete", "find . -type d -name e -links 1"),
        ("sudo rm", "sudo ls"),
        ("npm *", "npm"),
        ("a/b", "c/d"),
        ("", "ls"),
    ],
)
def test_other_commands_are_left_alone(rule: str, text: str) -> None:
    assert not refuses(rule, text)


def test_an_exact_refusal_knows_other_spellings_but_no_further_words() -> None:
    def said(text: str) -> bool:
        return matches_widely(pattern("rm -rf x"), True, parse_script(text).commands[0])

    assert all(map(said, ("rm -rf x", "/bin/rm -f -r x", "sudo rm x --force -R")))
    assert not any(map(said, ("rm -rf x y", "rm -rfv x", "rm -r x", "rm -rf")))


@given(st.integers(1, 9), st.booleans())
def test_every_abbreviation_of_a_long_option_is_refused(length: int, has_value: bool) -> None:
    option = "--compress-program"[: 2 + length] + ("=x" if has_value else "")
    assert matches_widely(("sort", "--compress-program"), False, SimpleCommand(argv=("sort", option, "a")))


_WORDS = st.sampled_from(["git", "rm", "-r", "-rf", "--hard", "--har", "--", "-", "*", "x", "./git", "", "--x=y", "a*"])
_COMMANDS = st.builds(
    SimpleCommand,
    argv=st.lists(_WORDS, min_size=1, max_size=5).map(tuple),
    wrappers=st.lists(st.sampled_from(["sudo", "env"]), max_size=1).map(tuple),
    globs=st.lists(_WORDS, max_size=1).map(tuple),
)


@given(wanted=st.lists(_WORDS, max_size=4).map(tuple), exact=st.booleans(), command=_COMMANDS)
def test_whatever_is_covered_is_concerned(wanted: tuple[str, ...], exact: bool, command: SimpleCommand) -> None:
    assert not matches_narrowly(wanted, exact, command) or matches_widely(wanted, exact, command)


@given(wanted=st.lists(_WORDS, max_size=4).map(tuple), exact=st.booleans(), command=_COMMANDS, data=st.data())
def test_a_prefix_of_what_is_covered_is_concerned(
    wanted: tuple[str, ...], exact: bool, command: SimpleCommand, data: st.DataObject
) -> None:
    start = command.argv[: data.draw(st.integers(1, len(command.argv)))]
    assert matches_widely(start, False, command)
