"""Text for a person's eyes: nothing unseen, nothing ambiguous, and it reads back."""

from unicodedata import category, combining

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.rendering.escaping import MAX_PIECE_CELLS, escape_invisible, find_text_warnings, visible_pieces
from tests.each import each
from tests.pipeline.approval.display_reader import unescape_invisible

#: Everything that `str` can hold, lone surrogates too, and more of what is troublesome than chance would bring.
TRICKY = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.lists(
        st.sampled_from(
            [
                *("\x1b[2K", "\r", "\n", "\t", "\\", "\\n", "\\u{20}", "[4 spaces]", "[400 spaces]", "[", "]", " "),
                *("    ", " " * 400, "\u0301", "\u0301" * 9, "\u200b", "\u202e", "\ufe0f", "\U000e0041", "\ud800"),
                *("\u3164", "\u2800", "\u1161", "a", "\u0430", "\U0001f600", "\u6f22", "spaces]", "7", "\x7f", "\x9b"),
            ]
        )
    ).map("".join),
)


def is_seen(character: str) -> bool:
    return character == " " or category(character) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}


@each(
    ("text", "shown"),
    [
        ("ls -la ~/x", "ls -la ~/x"),
        ("/x/ls ", r"/x/ls\u{20}"),
        ("  a  b  ", r"\u{20}\u{20}a  b\u{20}\u{20}"),
        (" ", r"\u{20}"),
        ("a" + " " * 400 + "b", "a[400 spaces]b"),
        ("a    ", "a[4 spaces]"),
        ("[400 spaces]", r"\u{5b}400 spaces]"),
        ("[x] [4 space]", "[x] [4 space]"),
        ("a\\n\n\t\r", r"a\\n\n\t\r"),
        ("\x1b[2K\x9b\x7f\x00", r"\u{1b}[2K\u{9b}\u{7f}\u{0}"),
        ("r\u200bm \u202egnp\u2066\u2028", r"r\u{200b}m \u{202e}gnp\u{2066}\u{2028}"),
        (
            "\u00a0\u3000\u3164\u115f\u1160\u2800\uffa0\u034f",
            r"\u{a0}\u{3000}\u{3164}\u{115f}\u{1160}\u{2800}\u{ffa0}\u{34f}",
        ),
        ("x\U000e0041\ufe0f\U000e0100", r"x\u{e0041}\u{fe0f}\u{e0100}"),
        ("\ud800\ue000\uffff\U0010ffff", r"\u{d800}\u{e000}\u{ffff}\u{10ffff}"),
        ("e\u0301 \u0301", "e\u0301 " + r"\u{301}"),
        ("e" + "\u0301" * 5, "e\u0301\u0301\u0301" + r"\u{301}\u{301}"),
        ("a\u0338b\u20dd", r"a\u{338}b\u{20dd}"),
        ("\u304b\u3099\u6f22\u0301", "\u304b" + r"\u{3099}" + "\u6f22" + r"\u{301}"),
        ("\u1112\u1161\u11ab", "\u1112" + r"\u{1161}\u{11ab}"),
        ("\u0939\u093f a\u093f \u0e01\u0e34 a\u0e34", "\u0939\u093f a" + r"\u{93f}" + " \u0e01\u0e34 a" + r"\u{e34}"),
        ("caf\u00e9 \u6f22\u5b57 \u05e9 \U0001f600", "caf\u00e9 \u6f22\u5b57 \u05e9 \U0001f600"),
    ],
)
def test_what_nobody_would_see_is_written_out(text: str, shown: str) -> None:
    assert escape_invisible(text) == shown
    assert unescape_invisible(shown) == text


@given(TRICKY)
def test_every_text_reads_back(text: str) -> None:
    assert unescape_invisible(escape_invisible(text)) == text


@given(TRICKY)
def test_nothing_unseen_is_ever_shown(text: str) -> None:
    shown = escape_invisible(text)

    assert all(map(is_seen, shown))
    assert "    " not in shown
    assert shown == shown.strip(" ")
    assert not shown or not combining(shown[0])


@given(TRICKY, TRICKY)
def test_different_texts_are_shown_differently(one: str, other: str) -> None:
    assert (escape_invisible(one) == escape_invisible(other)) == (one == other)


@given(TRICKY, st.integers(0, 24))
def test_behind_a_margin_only_the_spaces_in_front_stand_for_themselves(text: str, indent: int) -> None:
    shown = "".join(visible_pieces(text, indent))

    assert unescape_invisible(shown) == text
    assert len(shown) - len(shown.lstrip(" ")) <= indent
    assert shown == shown.rstrip(" ")


@given(TRICKY)
def test_the_units_that_stay_together_are_small(text: str) -> None:
    assert max(map(len, visible_pieces(text)), default=0) <= MAX_PIECE_CELLS


def test_every_single_character_reads_back_and_is_seen() -> None:
    for code in range(0, 0x110000, 7):
        text = f"a{chr(code)}"

        assert unescape_invisible(escape_invisible(text)) == text
        assert all(map(is_seen, escape_invisible(text)))


def test_more_spaces_than_one_mark_holds_take_several() -> None:
    text = "a" + " " * 10_000_001 + "b"

    assert escape_invisible(text) == r"a[9999999 spaces]\u{20}\u{20}b"
    assert unescape_invisible(escape_invisible(text)) == text


@each(
    ("text", "warning"),
    [
        ("p\u0430ypal", "mixes alphabets inside a word: p\u0430ypal"),
        ("cat /etc/p\u03b1sswd", "mixes alphabets inside a word: p\u03b1sswd"),
        ("\uff52m -rf", "mixes alphabets inside a word: \uff52m"),
        ("/bin/\u0441\u0440 a b", "has words that look Latin and are not: \u0441\u0440"),
        ("r\u200bm\u200b", "holds 2 invisible characters: U+200B"),
        ("\x1b[2K", "holds 1 invisible character: U+001B"),
        ("cafe\u0301", "is not in its normal form (NFC): other text may look the same"),
        ("\u05e9\u05dc", "has right-to-left letters, so a terminal may show parts of it in another order"),
        ("x" * 20_000, "is very long: 20,000 characters"),
    ],
)
def test_a_person_is_warned(text: str, warning: str) -> None:
    assert find_text_warnings(text) == (warning,)


@pytest.mark.parametrize(
    "text",
    [
        "ls -la | grep x\n\tdone \\",
        "na\u00efve caf\u00e9 \u00fcber stra\u00dfe",
        "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440",
        "T\u30b7\u30e3\u30c4 \u6f22\u5b57 \ud55c\uad6d\uc5b4",
        "",
    ],
)
def test_ordinary_text_has_no_warnings(text: str) -> None:
    assert find_text_warnings(text) == ()


def test_a_warning_names_a_few_and_counts_the_rest() -> None:
    (warning,) = find_text_warnings("\x01\x02\x03\x04\x05\x06\x07")

    assert warning == ("holds 7 invisible characters: U+0001, U+0002, U+0003, U+0004, U+0005 and 2 more")


@given(TRICKY)
def test_a_warning_can_be_shown_whatever_it_is_about(text: str) -> None:
    assert all(is_seen(character) for warning in find_text_warnings(text) for character in warning)
