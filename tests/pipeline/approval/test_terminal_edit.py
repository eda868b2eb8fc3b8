"""Approving with other arguments: typed or made in an editor, shown in full, and only then a yes."""

import shlex
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from interlock.domain.call import Answer
from interlock.domain.payload import Payload, canonical_payload, hash_payload
from tests.pipeline.approval.person import Person, at_terminal, make_question
from tests.pipeline.approval.test_terminal import BY, RULE, no, plain

JSON = "(Enter keeps them): <"
AGAIN = "Edit again? [y/N] <"


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


async def test_typed_arguments_are_shown_with_their_hash_before_they_can_be_approved(person: Person) -> None:
    question = make_question({"command": "rm -rf ."})
    new_hash = hash_payload(
        canonical_payload(Payload("run_1", "call_1", "bash", {"command": "rm x"}, question.bound, 0))
    )

    answer = await person.answers(question, "e\n", JSON + '{"command": "rm x"}\n', "y\n")

    assert answer == Answer(approved=True, by=BY, arguments={"command": "rm x"})
    shown = plain(person).partition('{"command": "rm x"}')[2]
    assert shown.index("  command | rm x\n") < shown.index(f"hash: {new_hash}\n") < shown.index("These are YOUR arg")


async def test_edited_arguments_are_approved_once_and_make_no_rule(person: Person) -> None:
    question = make_question(scope="rule", suggested_rule=RULE)

    answer = await person.answers(question, "e\n", JSON + '{"command": "ls"}\n', "s\n", "r\n", "y\n")

    assert answer == Answer(approved=True, by=BY, arguments={"command": "ls"})


async def test_a_high_risk_takes_the_beginning_of_the_new_hash(person: Person) -> None:
    question = make_question(risk=("deletes files",))

    answer = await person.answers(question, "e\n", JSON + '{"command": "ls"}\n', "y\n", "of the hash: <5eed\n", "\n")

    assert answer == no()


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("{", "EOF while parsing"),
        ("[1]", "they are not an object"),
        ('{"a": 1, "a": 2}', "Detected duplicate key"),
        ('{"a": NaN}', "expected value"),
        ('{"a": 9007199254740993}', "beyond 2^53-1"),
        (r'{"a": "\ud800"}', "hex escape"),
    ],
)
async def test_arguments_that_cannot_be_are_said_and_asked_for_again(person: Person, typed: str, problem: str) -> None:
    question = make_question()

    answer = await person.answers(
        question, "e\n", f"{JSON}{typed}\n", f"{AGAIN}y\n", JSON + '{"command": "ls"}\n', "y\n"
    )

    assert answer == Answer(approved=True, by=BY, arguments={"command": "ls"})
    assert "these cannot be the arguments: " in plain(person)
    assert problem in plain(person)


async def test_after_an_edit_that_was_given_up_the_question_is_as_before(person: Person) -> None:
    kept = await person.answers(make_question(), "e\n", f"{JSON}\n", "y\n")
    given_up = await person.answers(make_question(), "e\n", f"{JSON}{{\n", f"{AGAIN}n\n", "y\n")
    ended = await person.answers(make_question(), "e\n", f"{JSON}{{\n", f"{AGAIN}\x04", "\n")
    same = await person.answers(make_question(), "e\n", JSON + '{"command":   "ls -la"}\n', "y\n")

    assert kept == given_up == same == Answer(approved=True, by=BY)
    assert ended == no()


async def test_going_back_to_the_arguments_as_asked_is_no_edit(person: Person) -> None:
    answer = await person.answers(
        make_question(), "e\n", JSON + '{"command": "ls"}\n', "e\n", JSON + '{"command": "ls -la"}\n', "y\n"
    )

    assert answer == Answer(approved=True, by=BY)


async def test_the_arguments_are_offered_with_nothing_unseen_in_them(person: Person) -> None:
    question = make_question({"command": 'a\u202eb\x7f\x1b\n\\ "\u6f22"'})

    await person.answers(question, "e\n", f"{JSON}\n", "\n")

    assert r'as JSON: {"command": "a\u202eb\u007f\u001b\n\\ \"' + '\u6f22\\""}' in plain(person)


async def test_an_editor_may_change_the_arguments(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "false")
    monkeypatch.setenv("VISUAL", editor_that("file.write_text(text.replace('-la', '-l'))", tmp_path))

    answer = await person.answers(make_question(), "e\n", "y\n")

    assert answer == Answer(approved=True, by=BY, arguments={"command": "ls -l"})
    assert "  command | ls -l\n" in plain(person)


async def test_an_editor_may_not_hide_most_of_a_long_result(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", editor_that("file.write_text(text.replace('ls', r'x\\n' * 400))", tmp_path))

    answer = await person.answers(make_question(), "e\n", "q stops] <q\n", "y\n", "\n")

    assert answer == no()
    assert "Not all of it was shown." in plain(person)


async def test_what_an_editor_left_that_is_not_json_can_be_edited_again(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    does = "file.write_text('{' if 'la' in text else text + '}')"
    monkeypatch.setenv("EDITOR", editor_that(does, tmp_path))

    answer = await person.answers(make_question(), "e\n", f"{AGAIN}y\n", "y\n")

    assert answer == Answer(approved=True, by=BY, arguments={})


@pytest.mark.parametrize(
    "does", ["sys.exit(3)", "file.unlink()", "file.write_bytes(b'\\xff')", "file.write_text(' ' * 2_000_000)"]
)
async def test_an_editor_that_fails_changes_nothing(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    monkeypatch.setenv("EDITOR", editor_that(does, tmp_path))

    assert await person.answers(make_question(), "e\n", "y\n") == Answer(approved=True, by=BY)
    assert "The arguments stay as they are." in plain(person)


@pytest.mark.parametrize("editor", ["/no/such/editor", "'"])
async def test_an_editor_that_is_not_there_changes_nothing(
    person: Person, monkeypatch: pytest.MonkeyPatch, editor: str
) -> None:
    monkeypatch.setenv("EDITOR", editor)
    typed = ["e\n", "y\n"] if editor != "'" else ["e\n", f"{JSON}\n", "y\n"]

    assert await person.answers(make_question(), *typed) == Answer(approved=True, by=BY)
