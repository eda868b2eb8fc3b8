"""Paths and hosts that a command may name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.hosts import normalize_host
from interlock.policy.engine.paths import PathResolver
from interlock.policy.shell.bash import parse_argv, parse_script
from interlock.policy.shell.command import SimpleCommand
from interlock.policy.shell.command_resources import UNKNOWN_HOST, UNKNOWN_PATH, find_hosts, find_paths
from tests.corpora import spellings
from tests.each import each
from tests.patience import cpu_seconds_below


@each(
    "text",
    spellings.load("paths in commands"),
)
def test_a_path_is_found_wherever_it_stands(text: str) -> None:
    (command,) = parse_script(text).commands
    assert ".env" in find_paths(command)


def test_a_program_in_a_folder_is_a_path_and_a_bare_name_is_not() -> None:
    assert find_paths(SimpleCommand(argv=("./run.sh",))) == ("./run.sh",)
    assert find_paths(SimpleCommand(argv=("ls",))) == ()


def test_the_path_of_a_url_is_found_in_plain() -> None:
    assert "/etc/passwd" in find_paths(SimpleCommand(argv=("curl", "file:///etc/passwd")))
    assert "/etc/passwd" in find_paths(SimpleCommand(argv=("curl", "file:///etc%2fpasswd")))


@each(
    ("text", "host"),
    spellings.load("hosts in commands"),
)
def test_a_host_is_found_wherever_it_stands(text: str, host: str) -> None:
    assert host in [name for command in parse_script(text).commands for name in find_hosts(command)]


@pytest.mark.parametrize("end", ["b=c", "b:c", "b:/c", "://"])
def test_long_words_are_read_in_linear_time(end: str) -> None:
    with cpu_seconds_below(2):
        find_hosts(parse_argv(["git", "-c", "a." * 30_000 + end]).commands[0])


@pytest.mark.parametrize(
    "text",
    [
        "curl 'http://{evil.example}/'",
        "curl 'http://evi[l-l].example/'",
        "curl 'ev{i,i}l.example'",
        "curl '{http://a.example/,http://b.example/}'",
        "aria2c -P 'http://{a,b}.example/'",
    ],
)
def test_a_host_that_the_program_makes_itself_is_not_known(text: str) -> None:
    (command,) = parse_script(text).commands
    assert UNKNOWN_HOST in find_hosts(command)


@pytest.mark.parametrize(
    "text",
    [
        "curl 'http://a.example/x[1-3]/{y,z}'",
        "curl -d '{\"x\": [1]}' http://a.example",
        "curl --json '{}' http://a.example",
        "curl -g 'http://[fe80::1%25eth0]/'",
        "echo 'http://{a}/'",
    ],
)
def test_braces_that_are_not_in_the_host_do_not_make_it_unknown(text: str) -> None:
    (command,) = parse_script(text).commands
    assert UNKNOWN_HOST not in find_hosts(command)


@pytest.mark.parametrize(
    "text", ["go test ./...", "go run main.go", "docker build -f a.dev .", "docker run -v a.b:/c x"]
)
def test_files_of_programs_that_use_registries_are_no_hosts(text: str) -> None:
    (command,) = parse_script(text).commands
    assert find_hosts(command) == ()


@pytest.mark.parametrize("word", ["a:" * 129, "=" * 129, "-" + "a" * 200 + ".env"])
def test_a_word_with_too_many_places_for_a_path_names_an_unknown_one(word: str) -> None:
    assert UNKNOWN_PATH in find_paths(SimpleCommand(argv=("x", word)))


def test_what_is_unknown_is_known_to_nobody() -> None:
    assert normalize_host(UNKNOWN_HOST) is None
    assert PathResolver("/nowhere").resolve(UNKNOWN_PATH, writes=False).targets == ()


def test_a_file_to_write_is_not_a_host() -> None:
    assert find_hosts(SimpleCommand(argv=("curl", "-sSLo", "out.txt", "-H", "a: b", "https://a.example/x"))) == (
        "a.example",
    )


def test_a_letter_behind_an_option_with_a_value_does_not_hide_the_host_after_it() -> None:
    assert "a.example" in find_hosts(SimpleCommand(argv=("curl", "-xo", "a.example")))


@pytest.mark.parametrize("text", ["ls -la src", "npm test", "git status", "echo a:b", "grep -n x y.py"])
def test_commands_that_stay_here_name_no_host(text: str) -> None:
    assert [find_hosts(command) for command in parse_script(text).commands] == [()]


@given(st.lists(st.text(), min_size=1))
def test_no_words_raise(words: list[str]) -> None:
    for command in parse_argv(words).commands:
        find_paths(command)
        find_hosts(command)


def test_long_words_cost_little() -> None:
    command = SimpleCommand(argv=("curl", "a:" * 30_000, "=" * 60_000, "@" * 60_000, "http://" * 8_000, "a" * 60_000))
    assert len(find_paths(command)) < 2_000
    find_hosts(command)
