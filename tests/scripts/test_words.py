"""Retired words, docstrings without a verb, and commands that do not exist are found, with their place."""

import pytest

from scripts.words import Command, check_quoted_commands, check_source, check_text, load_commands

SOURCE = '''
def read(path: str) -> str:
    """What is in the file."""
    # Nobody reads this.
    raise ValueError(f"{path} is told to nobody", "nobody")
'''


def test_retired_words_and_nouns_are_found() -> None:
    found = [(finding.line, finding.message.split(";")[0]) for finding in check_source("a.py", SOURCE)]

    assert found == [
        (4, "retired word 'Nobody'"),
        (5, "retired word 'told'"),
        (5, "retired word 'nobody'"),
        (2, "docstring of read does not begin with a verb: 'What is in the file.'"),
    ]


@pytest.mark.parametrize("text", ["the field `told`", "a key stands for a set", "it stands alone"])
def test_names_and_plain_english_are_left(text: str) -> None:
    assert list(check_text("a.md", text)) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("`interlock runs shwo last`", "no command `interlock runs shwo last`"),
        ("$ interlock runs show last --jsn", "`interlock runs show last --jsn` has no option --jsn"),
    ],
)
def test_quoted_commands_must_exist(text: str, message: str) -> None:
    commands: Command = load_commands()

    assert [finding.message for finding in check_quoted_commands("a.md", f"\n{text}\n", commands)] == [message]
    assert list(check_quoted_commands("a.md", "`interlock runs show last --json`", commands)) == []
