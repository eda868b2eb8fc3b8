"""Whether edits were made, told from the text alone: never the opposite of what happened."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.tools.files.edits import EditResult, TextEdit, apply_edits, were_edits_applied

TEXT = "def add(a, b):\n    return a - b\n\n\ndef sub(a, b):\n    return a - c\n"
MENDED = TextEdit("return a - b", "return a + b")


def edited(text: str, *edits: TextEdit) -> str:
    result = apply_edits(text, edits)
    assert isinstance(result, EditResult), result
    return result.text


#: Few letters, so that old and new text are in each other, overlap, and are there by chance.
LETTERS = st.text("ab\n\r", max_size=10)
EDITS = st.lists(
    st.builds(TextEdit, st.text("ab\n\r", min_size=1, max_size=4), st.text("ab\n\r", max_size=4), st.booleans()),
    min_size=1,
    max_size=3,
)


@pytest.mark.requirement("D15")
@given(LETTERS, EDITS)
def test_what_is_told_is_never_the_opposite_of_what_happened(text: str, edits: list[TextEdit]) -> None:
    made = apply_edits(text, edits)

    if isinstance(made, EditResult):
        assert were_edits_applied(text, edits) is not True
        assert were_edits_applied(made.text, edits) is not False


PARTS = st.text("xy \n", max_size=12)


@given(PARTS, st.text("cd", min_size=1, max_size=4), PARTS, st.text("ef\n", min_size=1, max_size=4), st.booleans())
def test_an_edit_of_which_nothing_else_has_a_trace_is_always_told(
    before: str, old: str, after: str, new: str, windows: bool
) -> None:
    """What is written is not in the file yet, and what it takes the place of is not left in it."""
    new = f"<{new}>"
    text = (before + old + after).replace("\n", "\r\n" if windows else "\n")
    made = edited(text, TextEdit(old, new))

    assert (were_edits_applied(text, [TextEdit(old, new)]), were_edits_applied(made, [TextEdit(old, new)])) == (
        False,
        True,
    )


@given(st.text(max_size=60), st.lists(st.builds(TextEdit, st.text(max_size=5), st.text(max_size=5), st.booleans())))
def test_any_text_and_any_edits_have_an_answer(text: str, edits: list[TextEdit]) -> None:
    assert were_edits_applied(text, edits) in (True, False, None)


def test_several_edits_are_told_together() -> None:
    edits = [MENDED, TextEdit("return a - c", "return a - b"), TextEdit("def ", "async def ", replace_all=True)]

    assert (were_edits_applied(TEXT, edits), were_edits_applied(edited(TEXT, *edits), edits)) == (False, True)


def test_a_name_that_was_replaced_everywhere_is_told() -> None:
    edit = TextEdit("return", "yield", replace_all=True)

    assert (were_edits_applied(TEXT, [edit]), were_edits_applied(edited(TEXT, edit), [edit])) == (False, True)


def test_what_was_inserted_could_be_inserted_again_so_only_that_it_is_missing_is_told() -> None:
    edit = TextEdit("def add", "@cache\ndef add")

    assert (were_edits_applied(TEXT, [edit]), were_edits_applied(edited(TEXT, edit), [edit])) == (False, None)


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        # What is removed leaves no trace, and what is there now may be left of something longer.
        (TEXT, TextEdit("return a - b\n", "")),
        (edited(TEXT, TextEdit("return a - b\n", "")), TextEdit("return a - b\n", "")),
        ("aabb", TextEdit("ab", "")),
        # Old and new text are both there, or neither is: somebody else was here.
        ("return a - b; return a + b\n", MENDED),
        ("return a\n", MENDED),
        ("", MENDED),
        # The new text is there, and the old one so often that the edit could never have been made.
        ("return a + b\nreturn a - b\nreturn a - b\n", MENDED),
    ],
)
def test_what_cannot_be_told_is_not_guessed(text: str, edit: TextEdit) -> None:
    assert were_edits_applied(text, [edit]) is None


def test_edits_that_fit_in_many_places_take_no_more_time() -> None:
    edits = [TextEdit(f"old{number}", "}") for number in range(100)]

    assert were_edits_applied("}" * 50_000, edits) is None
