"""What ripgrep prints, in pieces of any size, and the lines that are made of it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.tools.search.ripgrep import EnoughOutputError
from interlock.tools.search.search_output import (
    CountReader,
    MatchReader,
    NameReader,
    Page,
    build_line_page,
    build_match_page,
    display_name,
    format_line,
    iterate_sorted,
    truncate_line,
)

PRINTED = (
    b'./a\0001:1:one\n./a\0002-two\n./b: binary file matches (found "\\0" byte around offset 3)\n'
    b'./new\n\nline\0007:2:seven\n./c\0001:1:x\n./c: binary file matches (found "\\0" byte around offset 9)\n'
)


def pieces(content: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
    return [content[start:end] for start, end in pairwise(edges)]


@given(st.lists(st.integers(0, 1_000), max_size=8))
def test_lines_are_read_in_pieces_of_any_size(cuts: list[int]) -> None:
    reader = MatchReader(100, with_context=True)
    for piece in pieces(PRINTED, cuts):
        reader.feed(piece)

    assert reader.lines == {b"./a": [b"1:1:one", b"2-two"], b"./new\n\nline": [b"7:2:seven"], b"./c": [b"1:1:x"]}
    assert reader.counts() == {b"./a": 1, b"./new\n\nline": 1, b"./c": 1}
    assert reader.binary == {b"./b", b"./c"}


def test_what_looks_like_a_binary_file_is_one_only_if_another_path_follows() -> None:
    line = b': binary file matches (found "\\0" byte around offset 3)\n'
    reader = MatchReader(100, with_context=False)
    reader.feed(b"./a" + line + b"rest\0001:1:x\n./b" + line + b"./c" + line)

    assert reader.lines == {b"./a" + line + b"rest": [b"1:1:x"]}
    assert reader.binary == {b"./b", b"./c"}


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_whatever_is_printed_is_read(chunks: list[bytes]) -> None:
    readers = (MatchReader(5, with_context=True), NameReader())
    for reader in readers:
        try:
            for chunk in chunks:
                reader.feed(chunk)
        except EnoughOutputError:
            pass
        reader.counts()


@given(
    st.dictionaries(st.binary(min_size=1, max_size=8).filter(lambda name: b"\0" not in name), st.integers(1, 99)),
    st.lists(st.integers(0, 1_000), max_size=5),
)
def test_names_and_counts_are_exact_whatever_is_in_a_name(counts: dict[bytes, int], cuts: list[int]) -> None:
    names, counted = NameReader(), CountReader()
    for piece in pieces(b"".join(name + b"\0" for name in counts), cuts):
        names.feed(piece)
    for piece in pieces(b"".join(b"%b\0%d\n" % item for item in counts.items()), cuts):
        counted.feed(piece)

    assert names.names == [*counts]
    assert counted.counts() == counts


@given(st.sets(st.binary(min_size=1, max_size=3), max_size=200), st.integers(1, 4))
def test_paths_are_sorted_however_few_are_wanted(names: set[bytes], wanted: int) -> None:
    assert [*iterate_sorted([*names], wanted)] == sorted(names)


def test_what_was_not_finished_is_left_out() -> None:
    names, counts = NameReader(), CountReader()
    names.feed(b"./a\0./b")
    counts.feed(b"./a\0002\n./b\0001")

    assert names.names == [b"./a"]
    assert counts.counts() == {b"./a": 2}


def test_reading_ends_when_there_is_more_than_wanted() -> None:
    reader = MatchReader(2, with_context=False)
    reader.feed(b"./a\0001:1:x\n" * 2)
    with pytest.raises(EnoughOutputError):
        reader.feed(b"./a\0001:1:x\n")


def test_a_line_without_end_is_kept_to_a_bound() -> None:
    reader = MatchReader(100, with_context=False)
    for _ in range(100):
        reader.feed(b"./a\0001:1:x" if not reader.lines else b"" + b"y" * 100_000)
        reader.feed(b"y" * 100_000)
    reader.feed(b"\n./b\0002:1:z\n")

    assert [len(line) for lines in reader.lines.values() for line in lines] == [2_007, 5]


@given(st.integers(0, 3_000), st.integers(0, 3_000), st.integers(20, 500))
def test_a_cut_line_shows_the_match_and_marks_what_is_missing(before: int, after: int, room: int) -> None:
    line = b"%d:%d:%b!%b" % (7, before + 1, b"a" * before, b"b" * after)
    cut = truncate_line(line, room)
    start, column, text = cut.split(b":", 2)

    assert start == b"7"
    assert text[int(column) - 1 : int(column)] == b"!"
    assert text.startswith("…".encode()) == (text.count(b"a") < before)
    assert text.endswith("…".encode()) == (text.count(b"b") < after)
    assert len(text) <= room + 6
    assert truncate_line(cut, room + 6) == cut


def test_half_a_character_at_a_cut_is_not_shown() -> None:
    line = b"1:500:" + "é".encode() * 1_000

    assert "\ufffd" not in format_line(b"./a", line)


@pytest.mark.parametrize(
    ("name", "shown"),
    [(b"./a b.py", "a b.py"), (b"./a\nb", '"a\\nb"'), (b"./\xff", '"\\xff"'), ("./\u202e".encode(), '"\\u202e"')],
)
def test_a_name_stands_on_one_line(name: bytes, shown: str) -> None:
    assert display_name(name) == shown


def test_a_page_has_what_fits_and_one_item_at_least() -> None:
    assert build_line_page(["a" * 10, "b" * 10, "c" * 10], 0, 5, 25) == Page("a" * 10 + "\n" + "b" * 10, 2)
    assert build_line_page(["a" * 10, "b"], 0, 5, 1) == Page("a" * 10, 1)
    assert build_line_page(["a", "b", "c"], 1, 1, 100) == Page("b", 1)
    assert build_line_page(["a"], 5, 1, 100) == Page("", 0)


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(1, 4))
def test_pages_show_every_line_once(sizes: list[int], limit: int) -> None:
    files = [(b"./%d" % file, [b"%d:1:x" % number for number in range(1, size + 1)]) for file, size in enumerate(sizes)]
    shown = list[str]()
    while page := build_match_page(files, len(shown), limit, 0, 10_000).text:
        shown += page.split("\n")

    assert shown == [f"{file}:{number}: x" for file, size in enumerate(sizes) for number in range(1, size + 1)]
