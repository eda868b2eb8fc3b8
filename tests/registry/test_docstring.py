"""Docstrings of three styles say the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.registry.docstring import Docstring, parse_docstring

GOOGLE = """Copy a file.

    Links are followed.

    Args:
        source (str): The file to copy,
            which must exist.
        target (tuple(str), optional): Where to.
        *more: What else.

    Returns:
        Nothing: at all.

    Raises:
        OSError: When it cannot.
    """

NUMPY = """
    Copy a file.

    Links are followed.

    Parameters
    ----------
    source : str
        The file to copy,
        which must exist.
    target: tuple of str, optional
        Where to.
    *more
        What else.

    Returns
    -------
    None
        Nothing at all.
    """

SPHINX = """
    Copy a file.

    Links are followed.

    :param source: The file to copy,
        which must exist.
    :type source: str
    :param str target: Where to.
    :param more: What else.
    :returns: Nothing: at all.
    :raises OSError: When it cannot.
    """


@pytest.mark.requirement("R044")
@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_description_and_parameters_are_read(text: str) -> None:
    assert parse_docstring(text) == Docstring(
        description="Copy a file.\n\nLinks are followed.",
        parameters={
            "source": "The file to copy, which must exist.",
            "target": "Where to.",
            "more": "What else.",
        },
    )


def test_no_docstring_says_nothing() -> None:
    assert parse_docstring(None) == Docstring("", {})
    assert parse_docstring("") == Docstring("", {})


def test_notes_after_the_parameters_are_still_told() -> None:
    google = parse_docstring("Go.\n\nArgs:\n    x: Far.\n\nNote:\n    Not at night.")
    numpy = parse_docstring("Go.\n\nParameters\n----------\nx : int\n    Far.\n\nNotes\n-----\nNot at night.")
    sphinx = parse_docstring("Go.\n\n:param x: Far.\n\nNot at night.")

    assert google == Docstring("Go.\n\nNote:\n    Not at night.", {"x": "Far."})
    assert numpy == Docstring("Go.\n\nNotes\n-----\nNot at night.", {"x": "Far."})
    assert sphinx == Docstring("Go.\n\nNot at night.", {"x": "Far."})


def test_parameters_that_share_a_numpy_entry_share_its_text() -> None:
    text = "Add.\n\nParameters\n----------\na, b : int\n    Numbers."

    assert parse_docstring(text).parameters == {"a": "Numbers.", "b": "Numbers."}


def test_a_colon_or_a_role_in_prose_opens_no_section() -> None:
    text = "Do it:\n\n    args: not here\n\n:class:`Agent` does it.\nSee also: nothing."

    assert parse_docstring(text) == Docstring(text, {})


def test_text_under_args_that_is_no_entry_is_dropped() -> None:
    assert parse_docstring("Go.\n\nArgs:\n    nothing to say\n") == Docstring("Go.", {})


_lines = st.sampled_from(["Args:", "    x: far", "Parameters", "-----", ":param x: far", "", "Go.", "Returns:"])


@settings(deadline=None)
@given(st.text() | st.lists(_lines).map("\n".join))
def test_no_docstring_is_too_odd_to_read(text: str) -> None:
    parse_docstring(text)
