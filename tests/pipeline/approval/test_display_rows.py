"""Rows that fit, break between words where they can, and lose nothing."""

import sys

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import get_character_cell_size
from wcwidth import wcwidth

from interlock.rendering.argument_outline import cell_width, wrap_pieces
from interlock.rendering.escaping import visible_pieces
from tests.each import each
from tests.pipeline.approval.test_visible import TRICKY


@given(TRICKY, st.integers(21, 200), st.integers(21, 200))
def test_rows_fit_and_together_are_the_text(text: str, first: int, rest: int) -> None:
    rows = wrap_pieces(visible_pieces(text), first, rest)

    assert "".join(rows) == "".join(visible_pieces(text))
    assert cell_width(rows[0]) <= first
    assert all(0 < cell_width(row) <= rest for row in rows[1:])
    assert not any(row.endswith(" ") for row in rows)


@each(
    ("text", "rows"),
    [
        ("", [""]),
        ("short", ["short"]),
        ("one two three four", ["one two", " three", " four"]),
        ("one verylongword", ["one", " verylong", "word"]),
        ("abcdefghijklmnopqrs", ["abcdefghi", "jklmnopqr", "s"]),
        ("a   bcdefghij", ["a", "   bcdefg", "hij"]),
        ("\u6f22\u5b57\u6f22\u5b57\u6f22", ["\u6f22\u5b57\u6f22\u5b57", "\u6f22"]),
        (" " * 12, [" " * 9, " " * 3]),
    ],
)
def test_a_row_ends_before_the_spaces_in_front_of_its_last_word(text: str, rows: list[str]) -> None:
    assert wrap_pieces(text, 9, 9) == rows


def test_no_terminal_shows_a_character_wider_than_it_is_taken_for() -> None:
    shown = (
        character
        for character in map(chr, range(0x20, sys.maxunicode, 11))
        if visible_pieces("a" + character)[-1][-1] == character
    )

    assert [c for c in shown if cell_width(c) < max(wcwidth(c), get_character_cell_size(c))] == []
