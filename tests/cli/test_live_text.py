"""Text of a model in rows, while it comes."""

from unicodedata import category

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from interlock.cli.display.live_region import StreamedText, neutralize_text, wrap_line

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
