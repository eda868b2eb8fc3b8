"""A text that is called plain has nothing in it to redact."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.redaction import patterns
from interlock.redaction.patterns import SECRET_PATTERNS, build_rare_first_pattern, compile_keyword_search
from interlock.redaction.redactor import SecretRedactor
from tests.each import each
from tests.redaction.test_stream import REDACTOR, SECRET, TOKEN, texts

WORDS = sorted({word for form in SECRET_PATTERNS for word in form.words})


@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text("abeghkmnopstwxy_-./:", max_size=5))).map("".join))
def test_a_word_is_found_exactly_where_one_is(text: str) -> None:
    assert (compile_keyword_search()(text) is not None) == any(word in text for word in WORDS)


@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text("aeKkmnost_-.\u017f\u212a\ud800", max_size=5))).map("".join))
def test_a_word_is_found_in_long_text_as_in_short(text: str) -> None:
    assert patterns.has_keyword(text.upper()) == (compile_keyword_search()(text.upper().lower()) is not None)


@each("word", WORDS)
def test_every_word_is_found_anywhere(word: str) -> None:
    for text in (word, f"a{word}", f"{word}a", f"--{word[:-1]} {word}"):
        assert compile_keyword_search()(text) is not None
    assert compile_keyword_search()(word[:-1]) is None or any(other in word[:-1] for other in WORDS)


def test_the_pattern_looks_for_seldom_letters() -> None:
    assert build_rare_first_pattern(["token", "cookie"]) == "k(?:ie(?<=cookie)|en(?<=token))"


_PIECES = [
    *WORDS,
    *("=", ": ", '"', "' ", "-", "/", "@", "<", ">", "\n", "\u00e9", "\u017f", "\u0130"),
    *("AKIA", "sk-", "ghp_", "SG.", "eyJ", "api", "access", "encryption", "Private", "rk_live_", "<password>", "</"),
    *("hunter2", "a1B2c3D4e5F6g7H8", "x" * 40, "A1" * 12, "-----BEGIN RSA PRIVATE KEY-----", "Bearer "),
]


@given(st.lists(st.one_of(st.sampled_from(_PIECES), st.text("aeknrst19_-", max_size=6)), max_size=30).map("".join))
def test_patterns_tried_at_keywords_find_what_a_search_finds(text: str) -> None:
    """Long enough that no text has too many keywords, which would be searched as a whole."""
    for each_text in (text + " " * 8_000, text):
        for prefix in ("", "\u00fc "):
            found = patterns.find_patterns(prefix + each_text)

            assert found == _search_whole(prefix + each_text)


def _search_whole(text: str) -> list[patterns.SecretMatch]:
    lowered = text.lower()
    return [
        found
        for form in SECRET_PATTERNS
        for found in patterns._find_matches(form, text, lowered, None)  # pyright: ignore[reportPrivateUsage]
    ]


@given(texts)
def test_nothing_is_found_in_a_plain_text(text: str) -> None:
    assert REDACTOR.find(text) == [] or not REDACTOR.is_plain(text)


@pytest.mark.parametrize(
    "text",
    [
        "12 passed in 0.34s\n",
        "at /usr/lib/python3/dist-packages/package/module.py:12\r\n",
        "caf\u00e9 \u2713 \U0001f600\n",
        "d41d8cd98f00b204e9800998ecf8427e  file.bin\n",
        "",
    ],
)
def test_common_lines_are_plain(text: str) -> None:
    assert SecretRedactor({"NAME": SECRET}).is_plain(text)


@pytest.mark.parametrize(
    "text", [SECRET, "a\u200bb", "a\0b", "a\rb", base64.b64encode(TOKEN.encode()).decode(), "b" * 60]
)
def test_what_may_hold_a_secret_is_not_plain(text: str) -> None:
    assert not SecretRedactor({"NAME": SECRET}).is_plain(text)
