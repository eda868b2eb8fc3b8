"""Text of a model in rows, while it comes."""

from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from interlock.cli.display.live_region import StreamedText, neutralize_text, wrap_line
from interlock.cli.display.markdown import MarkdownRows

WIDTH = 30
plain = st.text(st.sampled_from("ab cd\néß漢字 "), max_size=200)


def streamed(*pieces: str) -> list[str]:
    text = StreamedText(WIDTH)
    return [row for piece in pieces for row in text.add(piece)] + text.end()


def test_a_row_is_given_out_as_soon_as_it_cannot_change() -> None:
    text = StreamedText(WIDTH)

    assert text.add("a line\nand the beginning of") == ["a line"]
    assert text.partial_row == "and the beginning of"
    assert text.add(" a longer one") == ["and the beginning of a longer"]
    assert text.end() == ["one"]


def test_indented_lines_stay_indented_and_empty_lines_stay() -> None:
    assert streamed("def f():\n    return 1\n\n\tx\n") == ["def f():", "    return 1", "", "    x"]


@given(plain, st.data())
def test_how_a_text_is_cut_into_pieces_never_shows(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))

    assert streamed(text[:cut], text[cut:]) == streamed(text)


@given(st.text(max_size=200))
def test_no_row_is_wider_than_the_terminal_or_acts_on_it(text: str) -> None:
    rows = streamed(text)

    assert all(cell_len(row) <= WIDTH for row in rows)
    assert not any(category(character) in ("Cc", "Cs") for row in rows for character in row)


@given(plain)
def test_nothing_but_spaces_is_lost_at_the_end_of_rows(text: str) -> None:
    line = text.replace("\n", "")

    assert "".join(wrap_line(line, WIDTH)).replace(" ", "") == line.replace(" ", "")


def test_line_ends_of_windows_are_line_ends_even_in_two_pieces() -> None:
    assert streamed("one\r", "\ntwo\r\n") == ["one", "two"]


def test_escape_sequences_are_shown_as_what_they_are() -> None:
    assert neutralize_text("\x1b[2Jgone") == "\\u{1b}[2Jgone"


@pytest.mark.parametrize(
    ("row", "shown", "styles"),
    [
        ("## What I did", "## What I did", ["bold"]),
        ("Run `make` **now**.", "Run make now.", ["cyan", "bold"]),
        ("src/**/*.py and docs/**/*.md", "src/**/*.py and docs/**/*.md", []),
        ("2 ** 3 ** 4", "2 ** 3 ** 4", []),
        ("an `open one", "an `open one", []),
        ("<b>tag</b> [text](http://evil)", "<b>tag</b> [text](http://evil)", []),
        ("| a | **b** |", "| a | b |", ["bold"]),
    ],
)
def test_markdown_is_styled_and_nothing_else_left_out(row: str, shown: str, styles: list[str]) -> None:
    text = MarkdownRows().style(row)

    assert (text.plain, [str(span.style) for span in text.spans] or [str(text.style)]) == (shown, styles or [""])


def test_code_is_not_taken_for_markdown() -> None:
    rows = MarkdownRows()

    styled = [rows.style(row) for row in ("```diff", "-**old**", "+`new`", "```", "**end**")]

    assert [text.plain for text in styled] == ["```diff", "-**old**", "+`new`", "```", "end"]
    assert [str(text.style) for text in styled] == ["dim", "red", "green", "dim", ""]
