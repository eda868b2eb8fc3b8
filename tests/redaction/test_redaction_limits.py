"""Redaction is stable, cheap on plain text and linear on hostile text."""

import sys
from time import process_time
from types import FrameType

from hypothesis import given
from hypothesis import strategies as st

from interlock.redaction.patterns import SECRET_PATTERNS
from interlock.redaction.redactor import SecretRedactor
from tests.each import each

WORDS = sorted({word for form in SECRET_PATTERNS for word in form.words})
MEBIBYTE = 2**20

pieces = st.one_of(
    st.text(max_size=6),
    st.sampled_from(WORDS),
    st.sampled_from(
        [
            "password=",
            "token: ",
            '"',
            "'",
            "=",
            ": ",
            "\n",
            " ",
            "\u200b",
            "hunter2x",
            "ghp_" + "a1" * 18,
            "[redacted:x]",
        ]
    ),
)


@given(st.lists(pieces, max_size=12).map("".join))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    redactor = SecretRedactor({"NAME": "hunter2x"})
    once = redactor.redact(text)

    assert redactor.redact(once) == once


@given(st.lists(pieces, max_size=12).map("".join))
def test_what_is_not_redacted_is_left_as_it_was(text: str) -> None:
    redacted = SecretRedactor().redact(text)

    kept = [part.partition("]")[2] if number else part for number, part in enumerate(redacted.split("[redacted:"))]
    at = 0
    for part in kept:
        at = text.find(part, at)
        assert at >= 0
        at += len(part)


@each("between", ["", "a" * 40, "=a", '="', ": ", "\\", "1" * 600, "\u200b"])
def test_text_made_to_be_slow_is_redacted_in_bounded_time(between: str) -> None:
    redactor = SecretRedactor({"NAME": "hunter2-and-more"})
    size = MEBIBYTE // 16
    for word in (
        *WORDS,
        "Z2hwX",
        "6768705f",
        "AKIAIOSFODNN7EXAMPLE ",
        "-----BEGIN PRIVATE KEY-----",
        "://a:",
        "<",
        "hunter2-",
    ):
        unit = word.upper() + between + word + between
        text = (unit * (size // len(unit) + 1))[:size]

        started = process_time()
        redactor.redact(text)

        # What grows with the square of the size would take two seconds for twice as much.
        assert process_time() - started < 0.5, unit[:60]


@each("filler", ["a", "=", " ", "\n", '"', "-", "/", ":", "\u200b", "A1", "\\", "eyJ", "ey.J."])
def test_ten_mebibytes_of_one_thing_are_redacted_in_bounded_time(filler: str) -> None:
    text = filler * (10 * MEBIBYTE // len(filler))

    started = process_time()
    SecretRedactor().redact(text)

    assert process_time() - started < 20


def test_plain_text_costs_few_function_calls() -> None:
    redactor = SecretRedactor({"NAME": "hunter2-and-more"})
    text = "3 files changed, 12 insertions(+), 4 deletions(-)\n" * 4
    redactor.redact(text)
    calls: list[str] = []

    def count(frame: FrameType, event: str, _arg: object) -> None:
        if event in ("call", "c_call"):
            calls.append(f"{event} {frame.f_code.co_name}")

    sys.setprofile(count)
    try:
        redactor.redact(text)
    finally:
        sys.setprofile(None)

    assert len(calls) <= 20, calls
