r"""Replace exact texts in a text: each once, or everywhere; all of them, or none.

All edits are looked for in the text as it is, so their order does not matter, the line numbers in messages are those
of the file, and no edit sees what another one wrote. Two that touch the same place are refused.

A line break in an edit stands for `\n` and for `\r\n`, because readers are not shown which it is. What replaces it has
the line breaks of the place. Nothing else is matched loosely: a text that is nearly there is told of, and not changed.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

import msgspec

from .near_miss import near_miss

MAX_REPLACEMENTS = 100_000
_MAX_PLACES = 1_000
_MAX_LINES_NAMED = 20


class Edit(msgspec.Struct, frozen=True):
    old_string: str
    new_string: str
    replace_all: bool = False


class Edited(msgspec.Struct, frozen=True):
    text: str
    replacements: int
    #: Line breaks of the edits stood for `\r\n`.
    line_endings_kept: bool


class NotEdited(msgspec.Struct, frozen=True):
    """Why the text was not changed, in words that follow on the name of the file."""

    reason: Literal["not_found", "ambiguous", "overlap", "no_change", "too_many"]
    message: str


class _Replacement(NamedTuple):
    start: int
    end: int
    new: str
    #: Which edit it is of.
    number: int


def apply_edits(text: str, edits: Sequence[Edit]) -> Edited | NotEdited:
    """The edited text, or why it is not."""
    searched = _Searched(text)
    replacements: list[_Replacement] = []
    for number, edit in enumerate(edits, 1):
        found = _places(searched, edit)
        if isinstance(found, NotEdited):
            return _of_several(found, number, len(edits))
        replacements += (searched.replacement(start, end, edit.new_string, number) for start, end in found)
        if len(replacements) > MAX_REPLACEMENTS:
            return NotEdited("too_many", f"there are more than {MAX_REPLACEMENTS:,} places to replace")
    replacements.sort()
    if clash := _overlap(replacements):
        return clash
    edited = "".join(_pieces(text, replacements))
    if edited == text:
        return NotEdited("no_change", "the edits change nothing: old and new text are the same")
    return Edited(edited, len(replacements), searched.has_returns)


class _Searched:
    """A text with plain line breaks, and the way from a place in it to the place in the text itself."""

    def __init__(self, text: str) -> None:
        self.original = text
        self.has_returns = "\r\n" in text
        self.text = text.replace("\r\n", "\n") if self.has_returns else text
        #: Where lines begin in the plain text, after each line break that is two characters in the original.
        self._returns = list(accumulate(len(line) + 1 for line in text.split("\r\n")))[:-1] if self.has_returns else []

    def replacement(self, start: int, end: int, new: str, number: int) -> _Replacement:
        start, end = self._original(start), self._original(end)
        if "\n" in new and (line_break := self._line_break(start, end)):
            new = new.replace("\r\n", "\n").replace("\n", line_break)
        return _Replacement(start, end, new, number)

    def _original(self, at: int) -> int:
        return at + bisect_right(self._returns, at)

    def _line_break(self, start: int, end: int) -> str:
        """How do lines end at this place? As the first that ends in it, or else as the next, or the one before; empty
        where none ends at all."""
        at = self.original.find("\n", start)
        if at < 0:
            at = self.original.rfind("\n", 0, end)
        if at < 0:
            return ""
        return "\r\n" if at > 0 and self.original[at - 1] == "\r" else "\n"


def _places(searched: _Searched, edit: Edit) -> list[tuple[int, int]] | NotEdited:
    old = edit.old_string.replace("\r\n", "\n")
    if not old:
        return NotEdited("not_found", "old_string is empty; give the text to replace")
    if old == edit.new_string:
        return NotEdited("no_change", "old_string and new_string are the same, so there is nothing to change")
    step = len(old) if edit.replace_all else 1
    limit = MAX_REPLACEMENTS + 1 if edit.replace_all else _MAX_PLACES
    found = list(_find_all(searched.text, old, step, limit))
    if not found:
        return NotEdited("not_found", f"old_string was not found{near_miss(searched.text, old)}")
    if len(found) > 1 and not edit.replace_all:
        return _ambiguous(searched.text, found)
    return [(at, at + len(old)) for at in found]


def _find_all(text: str, old: str, step: int, limit: int) -> Iterator[int]:
    at = text.find(old)
    while at >= 0 and limit > 0:
        yield at
        limit -= 1
        at = text.find(old, at + step)


def _ambiguous(text: str, found: list[int]) -> NotEdited:
    many = f"{_MAX_PLACES:,} times or more" if len(found) >= _MAX_PLACES else f"{len(found):,} times"
    numbers = list(dict.fromkeys(_line_numbers(text, found)))
    lines = ("line " if len(numbers) == 1 else "lines ") + ", ".join(map(str, numbers[:_MAX_LINES_NAMED]))
    more = ", ..." if len(numbers) > _MAX_LINES_NAMED else ""
    return NotEdited(
        "ambiguous",
        f"old_string was found {many}, beginning in {lines}{more}. Give more of the text around it, or set replace_all",
    )


def _line_numbers(text: str, found: Sequence[int]) -> Iterator[int]:
    line, before = 1, 0
    for at in found:
        line += text.count("\n", before, at)
        before = at
        yield line


def _overlap(replacements: Sequence[_Replacement]) -> NotEdited | None:
    for first, second in pairwise(replacements):
        if second.start < first.end:
            message = f"edits {first.number} and {second.number} change the same place. Make them one edit"
            return NotEdited("overlap", message)
    return None


def _of_several(found: NotEdited, number: int, count: int) -> NotEdited:
    return found if count == 1 else NotEdited(found.reason, f"edit {number} of {count}: {found.message}")


def _pieces(text: str, replacements: Sequence[_Replacement]) -> Iterator[str]:
    end = 0
    for replacement in replacements:
        yield text[end : replacement.start]
        yield replacement.new
        end = replacement.end
    yield text[end:]
