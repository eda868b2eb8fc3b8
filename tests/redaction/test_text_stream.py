"""Text that a model writes piece by piece is released word by word, and no secret with it."""

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from interlock.redaction.redactor import SecretRedactor
from interlock.redaction.text_stream import RedactingText
from tests.redaction.test_forms import TOKENS

SPACED = "correct horse battery staple"
LINES = "first line of it\nsecond\n\nlast line"
PLAIN = "hunter2-and-more"
REDACTOR = SecretRedactor({"SPACED": SPACED, "LINES": LINES, "PLAIN": PLAIN})
SECRETS = (SPACED, LINES, PLAIN, *TOKENS)
PROSE = "There is nothing to see in these words. "

prose = st.one_of(st.sampled_from([" ", "\n", "word ", "see: ", PROSE, PROSE * 4]), st.text(" \nabcé.", max_size=9))
texts = st.lists(st.one_of(prose, st.sampled_from(SECRETS)), max_size=16).map("".join)
cuts = st.one_of(
    st.lists(st.integers(0, 4_000), max_size=8), st.integers(1, 40).map(lambda step: range(0, 4_000, step))
)


def pieces_of(text: str, places: Iterable[int]) -> list[str]:
    borders = sorted({0, len(text), *(place for place in places if place < len(text))})
    return [text[start:end] for start, end in pairwise(borders)]


def release(pieces: Iterable[str]) -> list[str]:
    redacting = RedactingText(REDACTOR)
    return [*map(redacting.feed, pieces), redacting.end()]


@given(texts, cuts)
def test_no_secret_is_released_however_it_is_split(text: str, places: Iterable[int]) -> None:
    released = "".join(release(pieces_of(text, places)))

    assert released == REDACTOR.redact(text)
    assert [secret for secret in SECRETS if secret in released] == []


@given(texts, cuts)
def test_nothing_is_taken_back(text: str, places: Iterable[int]) -> None:
    """What is released at any time is a beginning of the redacted text: no beginning of a secret is."""
    whole, released = REDACTOR.redact(text), ""
    for piece in release(pieces_of(text, places)):
        released += piece
        assert whole.startswith(released)


@given(st.lists(st.sampled_from(PROSE.split(" ")), min_size=60).map(" ".join))
def test_plain_text_comes_out_before_its_end(text: str) -> None:
    redacting = RedactingText(SecretRedactor())
    released = "".join(redacting.feed(text[at : at + 5]) for at in range(0, len(text), 5))

    assert released + redacting.end() == text
    assert len(text) - len(released) < 100


def test_long_piece_is_released_up_to_its_secret() -> None:
    redacting = RedactingText(REDACTOR)

    assert redacting.feed(PROSE * 12 + PLAIN + PROSE).startswith(PROSE * 4)
