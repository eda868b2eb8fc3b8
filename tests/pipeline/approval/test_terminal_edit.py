"""Approving with other arguments: typed or made in an editor, shown in full, and only then a yes."""

import shlex
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from interlock.domain.call import Answer
from interlock.domain.payload import Payload, canonical_payload, hash_payload
from interlock.interaction.terminal_dialog import DialogSupport
from tests.pipeline.approval.person import Person, at_terminal, make_question
from tests.pipeline.approval.test_terminal import BY, CUT, ENDED, RULE, plain

#: A line with the command, or with the arguments as JSON, that can be changed; `\x15` clears it.
LINE, CLEAR, SAVE = "$ ls -la<", "\x15", "<\n"
AGAIN = "Edit again? y yes  n no: <"


def typed(before: str, after: str) -> tuple[str, ...]:
    """The keys that replace a line by another one."""
    sign = "> " if before.startswith("{") else "$ "
    return f"{sign}{before}<{CLEAR}", f"\r{sign}<{after}", f"\r{sign}{after}{SAVE}"


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Generator[Person]:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    with at_terminal() as person:
        yield person


def editor_that(does: str, tmp_path: Path) -> str:
    """A program that changes the file that it is given."""
    program = tmp_path / "editor.py"
    program.write_text(f"import pathlib, sys\nfile = pathlib.Path(sys.argv[-1])\ntext = file.read_text()\n{does}\n")
    return shlex.join([sys.executable, str(program), "--wait"])


async def test_a_typed_command_is_shown_before_it_can_be_approved(person: Person) -> None:
    answer = await person.answers(make_question(), "e", *typed("ls -la", "rm x"), "y")

    assert answer == Answer(approved=True, by=BY, channel="terminal", arguments={"command": "rm x"})
    shown = plain(person).partition("These are YOUR arguments.")[2]
    assert "  $ rm x\n" in shown


async def test_details_of_typed_arguments_have_their_hash(person: Person) -> None:
    question = make_question()
    payload = Payload("run_1", "call_1", "bash", {"command": "rm x"}, question.bound, 0)

    await person.answers(question, "e", *typed("ls -la", "rm x"), "d", "y")

    assert f"hash: {hash_payload(canonical_payload(payload))}\n" in plain(person)


async def test_edited_arguments_are_approved_once_and_make_no_rule(person: Person) -> None:
    question = make_question(scope="rule", suggested_rule=RULE)

    answer = await person.answers(
        question, "e", *typed("ls -la", "ls"), "s", "these: y n e d ? <a", "these: y n e d ? <y"
    )

    assert answer == Answer(approved=True, by=BY, channel="terminal", arguments={"command": "ls"})


async def test_a_high_risk_takes_the_beginning_of_the_new_hash(person: Person) -> None:
    question = make_question(risk=("deletes files",))

    answer = await person.answers(question, "e", *typed("ls -la", "ls"), "y", "of the hash: <5eed\n", "\x04")

    assert answer == ENDED


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "EOF while parsing"),
        ("[1]", "they are not an object"),
        ('{"a": 1, "a": 2}', "Detected duplicate key"),
        ('{"a": NaN}', "expected value"),
        ('{"a": 9007199254740993}', "beyond 2^53-1"),
        (r'{"a": "\ud800"}', "hex escape"),
    ],
)
async def test_arguments_that_cannot_be_are_said_and_edited_again(person: Person, text: str, problem: str) -> None:
    question = make_question({"n": 1}, tool_name="count")
    again = (f"> {text}<{CLEAR}", '\r> <{"n": 2}', f'\r> {{"n": 2}}{SAVE}')

    answer = await person.answers(question, "e", *typed('{"n": 1}', text), f"{AGAIN}y", *again, "y")

    assert answer == Answer(approved=True, by=BY, channel="terminal", arguments={"n": 2})
    assert "these cannot be the arguments: " in plain(person)
    assert problem in plain(person)


class Strict(DialogSupport):
    def check_arguments(self, tool_name: str, arguments: dict[str, object]) -> str:
        return "" if arguments["command"] else f"{tool_name} needs a command"


async def test_edited_arguments_are_checked_before_they_are_sent(person: Person) -> None:
    answer = await person.answers(
        make_question(), "e", f"{LINE}{CLEAR}", "\r$ <\n", f"{AGAIN}y", "$ <ls", f"\r$ ls{SAVE}", "y", support=Strict()
    )

    assert answer == Answer(approved=True, by=BY, channel="terminal", arguments={"command": "ls"})
    assert "these cannot be the arguments: bash needs a command\n" in plain(person)


async def test_after_an_edit_that_was_given_up_the_question_is_as_before(person: Person) -> None:
    asked = make_question({"n": 1}, tool_name="count")
    kept = await person.answers(make_question(), "e", f"{LINE}\x1b", "y")
    given_up = await person.answers(asked, "e", *typed('{"n": 1}', "{"), f"{AGAIN}n", "y")
    ended = await person.answers(asked, "e", *typed('{"n": 1}', "{"), f"{AGAIN}\x04", "\x04")
    same = await person.answers(asked, "e", *typed('{"n": 1}', '{"n":1}'), "y")

    assert kept == given_up == same == Answer(approved=True, by=BY, channel="terminal")
    assert ended == ENDED


async def test_going_back_to_the_arguments_as_asked_is_no_edit(person: Person) -> None:
    answer = await person.answers(make_question(), "e", *typed("ls -la", "ls"), "e", *typed("ls", "ls -la"), "y")

    assert answer == Answer(approved=True, by=BY, channel="terminal")


async def test_arguments_are_offered_with_nothing_unseen_in_them(person: Person) -> None:
    question = make_question({"command": 'a\u202eb\x7f\x1b\n\\ "\u6f22"'})

    await person.answers(question, "e", "(Enter keeps them): <\n", "\x04")

    assert r'as JSON: {"command": "a\u202eb\u007f\u001b\n\\ \"' + '\u6f22\\""}' in plain(person)


async def test_an_editor_may_change_the_arguments(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "false")
    monkeypatch.setenv("VISUAL", editor_that("file.write_text(text.replace('-la', '-l'))", tmp_path))

    answer = await person.answers(make_question(), "e", "y")

    assert answer == Answer(approved=True, by=BY, channel="terminal", arguments={"command": "ls -l"})
    assert "  $ ls -l\n" in plain(person)


async def test_an_editor_may_not_hide_most_of_a_long_result(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", editor_that("file.write_text(text.replace('ls', 'x' * 40_000))", tmp_path))

    answer = await person.answers(make_question(), "e", f"{CUT}y", "these: n e d ? <\x04")

    assert answer == ENDED


async def test_what_an_editor_left_that_is_not_json_can_be_edited_again(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    does = "file.write_text('{' if 'n' in text else text + '}')"
    monkeypatch.setenv("EDITOR", editor_that(does, tmp_path))

    answer = await person.answers(make_question({"n": 1}, tool_name="count"), "e", f"{AGAIN}y", "y")

    assert answer == Answer(approved=True, by=BY, channel="terminal", arguments={})


async def test_an_editor_has_the_command_as_plain_text(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor ends the last line, which is no change."""
    monkeypatch.setenv("EDITOR", editor_that("file.write_text(f'{text}:{file.name}\\n')", tmp_path))

    answer = await person.answers(make_question({"command": 'echo "a"\nls', "cwd": "x"}), "e", "y")

    arguments = {"command": 'echo "a"\nls:command.sh', "cwd": "x"}
    assert answer == Answer(approved=True, by=BY, channel="terminal", arguments=arguments)


@pytest.mark.parametrize(
    "does", ["sys.exit(3)", "file.unlink()", "file.write_bytes(b'\\xff')", "file.write_text(' ' * 2_000_000)"]
)
async def test_an_editor_that_fails_changes_nothing(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    monkeypatch.setenv("EDITOR", editor_that(does, tmp_path))

    assert await person.answers(make_question(), "e", "y") == Answer(approved=True, by=BY, channel="terminal")
    assert "The arguments stay as they are." in plain(person)


@pytest.mark.parametrize("editor", ["/no/such/editor", "'"])
async def test_an_editor_that_is_not_there_changes_nothing(
    person: Person, monkeypatch: pytest.MonkeyPatch, editor: str
) -> None:
    monkeypatch.setenv("EDITOR", editor)
    typed = ["e", "y"] if editor != "'" else ["e", f"{LINE}\x1b", "y"]

    assert await person.answers(make_question(), *typed) == Answer(approved=True, by=BY, channel="terminal")
