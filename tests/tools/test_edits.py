"""Replacing exact texts: once or everywhere, all or none, with the line endings of the place."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from interlock.tools.files import edits as edits_module
from interlock.tools.files.edits import EditFailure, EditResult, TextEdit, apply_edits

TEXT = "def f():\n    return 1\n\ndef g():\n    return 1\n"


def edited(text: str, *edits: TextEdit) -> str:
    result = apply_edits(text, edits)
    assert isinstance(result, EditResult), result
    return result.text


def refused(text: str, *edits: TextEdit) -> tuple[str, str]:
    result = apply_edits(text, edits)
    assert isinstance(result, EditFailure), result
    return result.reason, result.message


def test_a_text_that_is_there_once_is_replaced() -> None:
    assert edited(TEXT, TextEdit("def g", "def h")) == TEXT.replace("def g", "def h")


def test_a_text_that_is_there_more_than_once_is_named_with_its_lines() -> None:
    reason, message = refused(TEXT, TextEdit("return 1", "return 2"))

    assert reason == "ambiguous"
    assert message.startswith("old_string was found 2 times, beginning in lines 2, 5.")


def test_replace_all_replaces_every_place() -> None:
    result = apply_edits(TEXT, [TextEdit("return 1", "return 2", True)])

    assert result == EditResult(TEXT.replace("return 1", "return 2"), 2, False)


def test_a_line_with_several_places_is_named_once() -> None:
    assert "found 3 times, beginning in line 1." in refused("x x x\n", TextEdit("x", "y"))[1]
    assert "found 3 times, beginning in lines 1, 2." in refused("x x\nx\n", TextEdit("x", "y"))[1]


def test_places_that_overlap_each_other_are_ambiguous() -> None:
    assert refused("aaa", TextEdit("aa", "b"))[0] == "ambiguous"
    assert edited("aaa", TextEdit("aa", "b", True)) == "ba"


def test_many_places_are_counted_up_to_a_bound() -> None:
    assert "1,000 times or more, beginning in lines 1, 2, 3," in refused("x\n" * 5_000, TextEdit("x", "y"))[1]


def test_more_replacements_than_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edits_module, "MAX_REPLACEMENTS", 10)

    assert edited("x" * 10, TextEdit("x", "y", True)) == "y" * 10
    assert refused("x" * 11, TextEdit("x", "y", True))[0] == "too_many"


def test_several_edits_see_the_text_as_it_was_in_any_order() -> None:
    edits = [TextEdit("two", "one"), TextEdit("one", "two"), TextEdit("three", "")]

    assert edited("one two three", *edits) == edited("one two three", *reversed(edits)) == "two one "


def test_one_edit_that_fails_fails_all_and_is_named() -> None:
    assert refused(TEXT, TextEdit("def g", "def h"), TextEdit("nowhere", "x")) == (
        "not_found",
        "edit 2 of 2: old_string was not found",
    )


def test_edits_of_the_same_place_are_refused() -> None:
    assert refused("abcd", TextEdit("cd", "x"), TextEdit("bc", "y")) == (
        "overlap",
        "edits 2 and 1 change the same place. Make them one edit",
    )
    assert edited("abcd", TextEdit("ab", "x"), TextEdit("cd", "y")) == "xy"


def test_an_edit_that_changes_nothing_is_refused() -> None:
    assert refused("a", TextEdit("a", "a"))[0] == "no_change"
    assert refused("a\r\nb", TextEdit("a\nb", "a\nb"))[0] == "no_change"
    assert refused("a\r\nb", TextEdit("a\r\nb", "a\nb"))[0] == "no_change"
    assert refused("ab ba", TextEdit("ab", "ba"), TextEdit(" ba", " ba"))[0] == "no_change"


def test_an_empty_text_is_found_nowhere() -> None:
    assert refused("a", TextEdit("", "b"))[0] == "not_found"


def test_line_breaks_match_those_of_the_file_and_new_ones_are_alike() -> None:
    result = apply_edits("one\r\ntwo\r\nthree\r\n", [TextEdit("one\ntwo", "1\n2\n2b")])

    assert result == EditResult("1\r\n2\r\n2b\r\nthree\r\n", 1, True)
    assert edited("one\r\ntwo", TextEdit("one\r\ntwo", "1\r\n2")) == "1\r\n2"


def test_windows_line_breaks_in_an_edit_are_those_of_the_file() -> None:
    assert edited("one\ntwo\n", TextEdit("one\r\ntwo", "1\r\n2\r\n2b")) == "1\n2\n2b\n"
    assert edited("a\r\nb\nc\n", TextEdit("b", "b\r\nB")) == "a\r\nb\nB\nc\n"
    assert edited("one", TextEdit("one", "1\r\n2")) == "1\r\n2"
    assert refused("one\n", TextEdit("one\n", "one\r\n"))[0] == "no_change"


def test_in_a_file_with_both_line_endings_each_line_keeps_its_own() -> None:
    text = "a\r\nb\nc\r\nd\n"

    assert edited(text, TextEdit("b", "b\nB")) == "a\r\nb\nB\nc\r\nd\n"
    assert edited(text, TextEdit("c", "c\nC")) == "a\r\nb\nc\r\nC\r\nd\n"
    assert edited(text, TextEdit("\nd", "\nD")) == "a\r\nb\nc\r\nD\n"
    assert edited("a\r\nend", TextEdit("end", "end\nmore")) == "a\r\nend\r\nmore"


PARTS = st.text("ab\n", max_size=12)


@given(PARTS, st.text("cd\n", min_size=1, max_size=4), PARTS, st.text("ef\n", max_size=4))
def test_only_the_text_itself_changes(before: str, old: str, after: str, new: str) -> None:
    text = before + old + after
    assume(old != new)
    result = apply_edits(text, [TextEdit(old, new)])

    if isinstance(result, EditResult):
        assert result.text == before + new + after
    else:
        assert result.reason in ("ambiguous", "no_change")


@given(PARTS, st.text("cd\n", min_size=1, max_size=4), PARTS, st.text("ef\n", max_size=4))
def test_windows_line_endings_change_nothing_but_the_line_endings(before: str, old: str, after: str, new: str) -> None:
    text = before + old + after
    plain = apply_edits(text, [TextEdit(old, new)])
    windows = apply_edits(text.replace("\n", "\r\n"), [TextEdit(old, new)])

    if isinstance(plain, EditResult):
        assert "\n" not in text or isinstance(windows, EditResult)
        if isinstance(windows, EditResult) and "\n" in text:
            assert windows.text == plain.text.replace("\n", "\r\n")
    else:
        assert isinstance(windows, EditFailure)
        assert windows.reason == plain.reason


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("1\tdef f():\n2\t    return 1", "leave out the line numbers"),
        ("return  1", "at line 2 there is the same text with other whitespace"),
        ("def g():\n\treturn 1", "at line 4 there is the same text with other whitespace"),
        ("DEF G", "at line 4 there is the same text in other upper and lower case"),
        ("def g():\\n    return 1", "a backslash and an n where the file has a line break"),
        ("def g():\n    return 7", "its first line is at line 4, and what follows differs"),
        ("say \\u{200b}", "stand for characters that cannot be shown"),
    ],
)
def test_a_near_miss_is_told_by_its_line_and_what_differs(old: str, hint: str) -> None:
    reason, message = refused(TEXT, TextEdit(old, "x"))

    assert reason == "not_found"
    assert hint in message


def test_a_miss_tells_nothing_of_the_text() -> None:
    assert refused("the password is swordfish\n", TextEdit("the password is", "x"), TextEdit("tuna", "y"))[1] == (
        "edit 2 of 2: old_string was not found"
    )


@given(st.text(max_size=60), st.lists(st.builds(TextEdit, st.text(max_size=5), st.text(max_size=5), st.booleans())))
def test_any_edits_of_any_text_have_an_outcome(text: str, edits: list[TextEdit]) -> None:
    assert isinstance(apply_edits(text, edits), EditResult | EditFailure)
