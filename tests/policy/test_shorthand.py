"""What `Tool(pattern)` means."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.domain.errors import ConfigurationError
from interlock.policy.engine.rule import CommandPattern
from interlock.policy.files.shorthand import Shorthand, parse_shorthand
from tests.each import each

READERS = ("read_file", "grep", "glob", "list_dir")
LINT = CommandPattern(("npm", "run", "lint"))


@each(
    ("text", "meaning"),
    [
        ("bash", Shorthand(tools=("bash",))),
        ("Bash(*)", Shorthand(tools=("bash",))),
        ("bash(npm test)", Shorthand(tools=("bash",), command=CommandPattern(("npm", "test"), exact=True))),
        ("BASH(npm run lint:*)", Shorthand(tools=("bash",), command=LINT)),
        ("bash(npm run lint *)", Shorthand(tools=("bash",), command=LINT)),
        ("bash(host:*)", Shorthand(tools=("bash",), command=CommandPattern(("host",)))),
        (
            "bash(git add * -v)",
            Shorthand(tools=("bash",), command=CommandPattern(("git", "add", "*", "-v"), exact=True)),
        ),
        ("bash(path:secrets/**)", Shorthand(tools=("bash",), path="secrets/**")),
        (
            'bash(git commit -m "a b")',
            Shorthand(tools=("bash",), command=CommandPattern(("git", "commit", "-m", "a b"), True)),
        ),
        ("Read", Shorthand(tools=READERS)),
        ("Read(secrets/**)", Shorthand(tools=READERS, path="secrets/**")),
        ("Edit(src/(a)/b)", Shorthand(tools=("edit_file", "write_file"), path="src/(a)/b")),
        ("Write(a)", Shorthand(tools=("write_file",), path="a")),
        ("Grep(a)", Shorthand(tools=("grep",), path="a")),
        ("edit_file(a)", Shorthand(tools=("edit_file",), path="a")),
        ("WebFetch(domain:example.com)", Shorthand(tools=("web_fetch",), host="example.com")),
        ("mail(host:*.example.com)", Shorthand(tools=("mail",), host="*.example.com")),
        ("mail(path:*)", Shorthand(tools=("mail",), path="*")),
        (
            "deploy(command:make release)",
            Shorthand(tools=("deploy",), command=CommandPattern(("make", "release"), True)),
        ),
        ("send_*", Shorthand(tools=("send_*",))),
        ("mcp__fs", Shorthand(tools=("*",), origin="mcp", server="fs")),
        ("mcp__fs__*", Shorthand(tools=("*",), origin="mcp", server="fs")),
        ("mcp__fs__read", Shorthand(tools=("read", "mcp__fs__read"), origin="mcp", server="fs")),
        ("mcp__fs(path:a)", Shorthand(tools=("*",), origin="mcp", server="fs", path="a")),
    ],
)
def test_a_text_means_its_conditions(text: str, meaning: Shorthand) -> None:
    assert parse_shorthand(text) == meaning


@each(
    ("text", "words"),
    [
        ("mail(bob)", r"write for example 'mail\(path:bob\)'"),
        ("WebFetch(example.com)", r"write for example 'WebFetch\(domain:example.com\)'"),
        ("bash()", "write bash for all its calls"),
        ("bash(path:)", "nothing after the colon"),
        ("bash(npm test", "neither a tool nor"),
        ("two words", "neither a tool nor"),
        ("", "neither a tool nor"),
        ("bash(make && rm -rf x)", "one command at a time"),
        ("bash(make; ls)", "one command at a time"),
        ("bash(ls | wc)", "one command at a time"),
        ("bash(git push feature/*)", "one whole word"),
        ("bash(echo '*')", "any word, in quotes too"),
        ("bash(echo 'a)", "is no command"),
        ("bash('' x)", "at least one word"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_words(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_shorthand(text)


@settings(deadline=None)
@given(
    st.text(max_size=60) | st.builds("{}({})".format, st.sampled_from(["bash", "Read", "x", "mcp__a__b"]), st.text())
)
def test_any_text_has_a_meaning_or_is_refused(text: str) -> None:
    with suppress(ConfigurationError):
        assert parse_shorthand(text).tools


@settings(deadline=None)
@given(st.lists(st.text("abcdefgh-./_=", min_size=1, max_size=8), min_size=1, max_size=5))
def test_a_plain_command_is_exactly_its_words(words: list[str]) -> None:
    found = parse_shorthand(f"bash({' '.join(words)})").command

    assert found == CommandPattern(tuple(words), exact=True)
