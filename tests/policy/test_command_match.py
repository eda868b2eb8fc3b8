"""Which commands a pattern allows, and which ones it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.policy.shell.bash import parse_script
from interlock.policy.shell.command import SimpleCommand
from interlock.policy.shell.command_match import matches_narrowly, matches_widely


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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        *[
            ("rm", text)
            for text in (
                "rm x",
                "/bin/rm x",
                "./rm x",
                "RM x",
                "sudo rm x",
                "env A=1 rm x",
                "xargs rm",
                "\\rm x",
                "/bin/r? x",
            )
        ],
        *[
            ("rm -rf", text)
            for text in (
                "rm -rf x",
                "rm -fr x",
                "rm -r -f x",
                "rm x -f -r",
                "rm -rvf x",
                "rm -Rf x",
                "rm --recursive --force x",
            )
        ],
        *[
            ("rm -rf", text)
            for text in (
                "rm --recurs --fo x",
                "rm -f --rec x",
                "rm -r x -f",
                "find . -exec rm -rf {} \\;",
                "bash -c 'rm -rf x'",
            )
        ],
        *[("rm --force", text) for text in ("rm -f x", "rm -rf x", "rm --forc x")],
        *[
            ("git reset --hard", text)
            for text in (
                "git reset --hard",
                "git -C x reset --hard",
                "git --git-dir=x reset HEAD --har",
                "git -c a=b -C x reset --h",
            )
        ],
        *[
            ("git reset --hard", text)
            for text in (
                "/usr/bin/git reset --hard=x",
                "git reset HEAD~1 --hard",
                "git re[s]et --hard",
            )
        ],
        *[
            ("git push --force", text)
            for text in ("git push -f", "git push origin main --force", "git push --force-with-lease=x --force")
        ],
        *[("git checkout --", text) for text in ("git checkout -- x", "git checkout HEAD -- x")],
        *[("sudo", text) for text in ("sudo ls", "sudo -u x env ls", "/usr/bin/sudo ls")],
        *[("sudo rm", text) for text in ("sudo rm x", "sudo -u root nice rm x")],
        *[("bash -c", text) for text in ("bash -c ls", "bash -lc 'a; b'")],
        *[("find -delete", text) for text in ("find . -delete", "find -name x -delete")],
        *[("npm *", text) for text in ("npm test", "npm --silent run x", "sudo npm x")],
        *[("docker run", text) for text in ("docker --context x run y", "docker -H h run y")],
    ],
)
def test_a_rule_that_refuses_finds_every_spelling(rule: str, text: str) -> None:
    assert refuses(rule, text)


@pytest.mark.parametrize(
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
