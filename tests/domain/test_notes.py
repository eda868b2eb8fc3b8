"""A note lies in a file where others may read it and write it: no secret goes in, and anything may come out."""

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.call import Answer
from interlock.domain.commands import (
    MAX_COMMAND_BYTES,
    AnswerCommand,
    CancelCommand,
    Command,
    decode_command,
    encode_command,
    redact_command,
)
from interlock.domain.errors import AnswerRefusedError
from tests.each import each

SECRET = "d3clar3d-Zebra-77-value"


def redact(text: str) -> str:
    return text.replace(SECRET, "[redacted]")


def answer_with(value: bytes) -> bytes:
    return b'{"type":"answer","action_id":"act_1","answer":{"approved":true,' + value + b"}}"


def test_a_secret_is_taken_out_of_what_people_say() -> None:
    said = AnswerCommand("act_1", Answer(approved=False, by=f"me {SECRET}", reason=f"since {SECRET}"), "hash")

    assert redact_command(said, redact) == AnswerCommand(
        "act_1", Answer(approved=False, by="me [redacted]", reason="since [redacted]"), "hash"
    )
    assert redact_command(CancelCommand(f"since {SECRET}"), redact) == CancelCommand("since [redacted]")


@pytest.mark.parametrize(
    "answer",
    [
        Answer(approved=True, arguments={"to": [f"x{SECRET}"]}),
        Answer(approved=True, arguments={SECRET: 1}),
        Answer(approved=True, value=SECRET),
        Answer(approved=True, scope="rule", rule=f"send({SECRET})"),
    ],
)
def test_what_is_to_be_run_is_not_left_without_its_secret_but_refused(answer: Answer) -> None:
    with pytest.raises(AnswerRefusedError, match=r"Nothing was changed. Leave the secret out") as refused:
        redact_command(AnswerCommand("act_1", answer), redact)

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "arguments", [{"a": "\ud800"}, {"a": float("inf")}, {"a": 2**60}, {"a": "x" * MAX_COMMAND_BYTES}]
)
def test_what_could_not_be_read_again_is_not_left(arguments: dict[str, object]) -> None:
    with pytest.raises(AnswerRefusedError, match="Nothing was changed"):
        redact_command(AnswerCommand("act_1", Answer(approved=True, arguments=arguments)), redact)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
any_text = st.text(st.characters(codec=None), max_size=8)
answers = st.builds(
    Answer,
    approved=st.booleans(),
    reason=any_text,
    by=any_text,
    value=json_values,
    until=st.just(0),
    arguments=st.none() | st.dictionaries(st.text(max_size=3), json_values, max_size=2),
)


@given(st.builds(AnswerCommand, st.just("act_1"), answers) | st.builds(CancelCommand, any_text))
def test_a_note_that_is_left_is_read_as_it_was_left(note: Command) -> None:
    left = redact_command(note, redact)

    assert decode_command(encode_command(left)) == left


def test_the_end_of_a_window_in_nanoseconds_is_read() -> None:
    note = AnswerCommand("act_1", Answer(approved=True, scope="window", until=1_900_000_000_000_000_000))

    assert decode_command(encode_command(redact_command(note, redact))) == note


@each(
    "body",
    [
        b"",
        b"\xff",
        b'{"type":"later"}',
        b'{"type":"cancel","message":"\xff"}',
        b'{"type":"cancel","message":"' + b"x" * MAX_COMMAND_BYTES + b'"}',
        answer_with(b'"value":' + b"[" * 3000 + b"]" * 3000),
        answer_with(b'"arguments":{"to":' + b"[" * 900 + b"]" * 900 + b"}"),
        answer_with(b'"arguments":{"to":1e999}'),
        answer_with(b'"by":"\\ud800"'),
    ],
)
def test_a_note_that_nobody_left_so_cannot_be_read(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_command(body)


@given(st.binary(max_size=40) | st.binary(max_size=20).map(lambda inner: answer_with(b'"value":' + inner)))
def test_reading_a_note_never_raises_anything_else(body: bytes) -> None:
    with suppress(msgspec.MsgspecError):
        decode_command(body)
