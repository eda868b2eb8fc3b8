"""What a run knows of a file: which lines of which version were shown, and all of it or not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.json import check_value
from interlock.tools.files.baseline import FileBaseline, baseline_key, load_baseline

FIVE = FileBaseline(sha256="ab", size_bytes=10, mtime_ns=1_790_000_000_123_456_789, encoding="utf-8", lines=5)


@pytest.mark.requirement("R272")
def test_a_baseline_is_plain_json_and_the_same_again() -> None:
    baseline = FIVE.with_shown_lines(1, 2).with_shown_lines(4, 4, cut=True)
    state = baseline.to_state("src/ä.py")

    check_value(state)
    assert list(state) == ["file:src/ä.py"]
    assert load_baseline(state, "src/ä.py") == baseline
    assert load_baseline(state, "src/b.py") is None


@pytest.mark.parametrize("stored", [None, "x", 5, [], {}, {"sha256": 1}, {"redacted": "..."}])
def test_what_cannot_be_understood_is_not_known(stored: object) -> None:
    assert load_baseline({"file:a": stored}, "a") is None


def test_a_name_that_is_no_text_has_a_key_all_the_same() -> None:
    assert baseline_key("b\udcff/x") == "file:b\\udcff/x"


def test_a_file_is_known_as_a_whole_when_all_its_lines_were_shown() -> None:
    assert not FIVE.with_shown_lines(1, 4).whole
    assert not FIVE.with_shown_lines(1, 2).with_shown_lines(4, 5).whole
    assert FIVE.with_shown_lines(4, 5).with_shown_lines(1, 3).whole
    assert not FIVE.with_shown_lines(1, 5, cut=True).whole
    assert not FIVE.with_shown_lines(1, 3, cut=True).with_shown_lines(4, 5).whole


def test_an_empty_file_is_known_once_it_was_read() -> None:
    empty = FileBaseline(sha256="", size_bytes=0, mtime_ns=0, encoding="utf-8", lines=0)

    assert not empty.has_shown_lines(1, 0)
    assert empty.with_shown_lines(1, 0).whole
    assert empty.with_shown_lines(1, 0).has_shown_lines(1, 0)


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 6)), max_size=15))
def test_exactly_the_lines_of_all_reads_are_shown(reads: list[tuple[int, int]]) -> None:
    baseline = FileBaseline(sha256="", size_bytes=1, mtime_ns=0, encoding="utf-8", lines=36)
    shown = set[int]()
    for first, more in reads:
        baseline = baseline.with_shown_lines(first, first + more)
        shown |= set(range(first, first + more + 1))

    assert {line for line in range(1, 37) if baseline.has_shown_lines(line, line)} == shown
    assert baseline.whole == (shown == set(range(1, 37)))
    assert all(before[1] + 1 < after[0] for before, after in zip(baseline.ranges, baseline.ranges[1:], strict=False))


def test_ranges_are_bounded() -> None:
    baseline = FileBaseline(sha256="", size_bytes=1, mtime_ns=0, encoding="utf-8", lines=10_000)
    for line in range(1, 2_000, 2):
        baseline = baseline.with_shown_lines(line, line)

    assert len(baseline.ranges) == 200
    assert baseline.has_shown_lines(1_999, 1_999)
