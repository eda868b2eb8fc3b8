"""Replace exact texts in a text: each once, or everywhere; all of them, or none.

All edits are looked for in the text as it is, so their order does not matter, the line numbers in messages are those
of the file, and no edit sees what another one wrote. Two that touch the same place are refused.

A line break in an edit stands for `\n` and for `\r\n`, because readers are not shown which it is. What replaces it has
the line breaks of the place. Nothing else is matched loosely: a near miss is reported, and not changed.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice, pairwise
from typing import Literal, NamedTuple

import msgspec

_MAX_SEARCHED_CHARS = 2_000_000
_LINE_NUMBER = re.compile(r"^[ ]*\d+\t", re.MULTILINE)
_ESCAPE = re.compile(r"\\u\{[0-9a-f]{1,6}\}|\\x[0-9a-f]{2}")


def describe_near_miss(text: str, old: str) -> str:
    """Return what to add to "it was not found", with a separator, or nothing. Both texts have plain line breaks."""
    if len(text) > _MAX_SEARCHED_CHARS:
        return ""
    has_line_numbers = len(_LINE_NUMBER.findall(old)) == old.rstrip("\n").count("\n") + 1
    if has_line_numbers and _LINE_NUMBER.sub("", old) in text:
        return ": leave out the line numbers that the reading tool puts before each line"
    if "\\n" in old and old.replace("\\n", "\n") in text:
        return ": it has a backslash and an n where the file has a line break"
    if line := _find_ignoring_whitespace(text, old):
        return f": at line {line} there is the same text with other whitespace"
    if line := _find_ignoring_whitespace(text.casefold(), old.casefold()):
        return f": at line {line} there is the same text in other upper and lower case"
    return _describe_by_first_line(text, old)


def _find_ignoring_whitespace(text: str, old: str) -> int:
    """Return the line where the text begins if whitespace is ignored; 0 if it is not found."""
    wanted = "".join(old.split())
    if not wanted:
        return 0
    lines = ["".join(line.split()) for line in text.split("\n")]
    at = "".join(lines).find(wanted)
    return 0 if at < 0 else bisect_right(list(accumulate(map(len, lines))), at) + 1


def _describe_by_first_line(text: str, old: str) -> str:
    first, *others = (line.strip() for line in old.strip().split("\n"))
    if others and first:
        lines = [number for number, line in enumerate(text.split("\n"), 1) if line.strip() == first]
        if len(lines) == 1:
            return f": its first line is at line {lines[0]}, and what follows differs"
    if _ESCAPE.search(old):
        return ": signs like \\u{200b} or \\xe9 stand for characters that cannot be shown; choose a text without them"
    return ""


MAX_REPLACEMENTS = 100_000
_MAX_PLACES = 1_000
_MAX_LINES_NAMED = 20


class TextEdit(msgspec.Struct, frozen=True):
    """One replacement of exact text."""

    old_string: str
    new_string: str
    replace_all: bool = False


class EditResult(msgspec.Struct, frozen=True):
    """The edited text."""

    text: str
    replacements: int
    #: Line breaks of the edits stood for `\r\n`.
    line_endings_kept: bool


class EditFailure(msgspec.Struct, frozen=True):
    """Why the text was not changed, as the rest of a sentence that begins with the file."""

    reason: Literal["not_found", "ambiguous", "overlap", "no_change", "too_many"]
    message: str


class _Replacement(NamedTuple):
    start: int
    end: int
    new: str
    #: Which edit it is of.
    number: int


def apply_edits(text: str, edits: Sequence[TextEdit]) -> EditResult | EditFailure:
    """Return the edited text, or why no edit was applied."""
    searched = _SearchText(text)
    replacements: list[_Replacement] = []
    for number, edit in enumerate(edits, 1):
        found = _find_places(searched, edit)
        if isinstance(found, EditFailure):
            message = f"edit {number} of {len(edits)}: {found.message}"
            return found if len(edits) == 1 else EditFailure(found.reason, message)
        replacements += (searched.make_replacement(start, end, edit.new_string, number) for start, end in found)
        if len(replacements) > MAX_REPLACEMENTS:
            return EditFailure("too_many", f"there are more than {MAX_REPLACEMENTS:,} places to replace")
    replacements.sort()
    if overlap := _find_overlap(replacements):
        return overlap
    edited = "".join(_iterate_pieces(text, replacements))
    if edited == text:
        return EditFailure("no_change", "the edits change nothing: old and new text are the same")
    return EditResult(edited, len(replacements), searched.has_crlf)


class _SearchText:
    """A text with plain line breaks, and the way from a place in it to the place in the text itself."""

    def __init__(self, text: str) -> None:
        self.original = text
        self.has_crlf = "\r\n" in text
        self.text = text.replace("\r\n", "\n") if self.has_crlf else text
        #: Where lines begin in the plain text, after each line break that is two characters in the original.
        self._crlf_positions = (
            list(accumulate(len(line) + 1 for line in text.split("\r\n")))[:-1] if self.has_crlf else []
        )

    def make_replacement(self, start: int, end: int, new: str, number: int) -> _Replacement:
        start, end = self._to_original(start), self._to_original(end)
        if "\n" in new and (line_break := self._find_line_break(start, end)):
            new = new.replace("\r\n", "\n").replace("\n", line_break)
        return _Replacement(start, end, new, number)

    def _to_original(self, at: int) -> int:
        return at + bisect_right(self._crlf_positions, at)

    def _find_line_break(self, start: int, end: int) -> str:
        """Return the line break used at this place: of the first line that ends there, else the next, else the one
        before; empty if no line ends.
        """
        at = self.original.find("\n", start)
        if at < 0:
            at = self.original.rfind("\n", 0, end)
        if at < 0:
            return ""
        return "\r\n" if at > 0 and self.original[at - 1] == "\r" else "\n"


def _find_places(searched: _SearchText, edit: TextEdit) -> list[tuple[int, int]] | EditFailure:
    old = edit.old_string.replace("\r\n", "\n")
    if not old:
        return EditFailure("not_found", "old_string is empty; give the text to replace")
    if old == edit.new_string:
        return EditFailure("no_change", "old_string and new_string are the same, so there is nothing to change")
    step = len(old) if edit.replace_all else 1
    limit = MAX_REPLACEMENTS + 1 if edit.replace_all else _MAX_PLACES
    found = list(islice(_find_all(searched.text, old, step), limit))
    if not found:
        return EditFailure("not_found", f"old_string was not found{describe_near_miss(searched.text, old)}")
    if len(found) > 1 and not edit.replace_all:
        return _make_ambiguity(searched.text, found)
    return [(at, at + len(old)) for at in found]


def _find_all(text: str, part: str, step: int = 1) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + step)


def _make_ambiguity(text: str, found: list[int]) -> EditFailure:
    many = f"{_MAX_PLACES:,} times or more" if len(found) >= _MAX_PLACES else f"{len(found):,} times"
    numbers = list(dict.fromkeys(_iterate_line_numbers(text, found)))
    lines = ("line " if len(numbers) == 1 else "lines ") + ", ".join(map(str, numbers[:_MAX_LINES_NAMED]))
    more = ", ..." if len(numbers) > _MAX_LINES_NAMED else ""
    return EditFailure(
        "ambiguous",
        f"old_string was found {many}, beginning in {lines}{more}. Give more of the text around it, or set replace_all",
    )


def _iterate_line_numbers(text: str, found: Sequence[int]) -> Iterator[int]:
    line, before = 1, 0
    for at in found:
        line += text.count("\n", before, at)
        before = at
        yield line


def _find_overlap(replacements: Sequence[_Replacement]) -> EditFailure | None:
    for first, second in pairwise(replacements):
        if second.start < first.end:
            message = f"edits {first.number} and {second.number} change the same place. Make them one edit"
            return EditFailure("overlap", message)
    return None


def _iterate_pieces(text: str, replacements: Sequence[_Replacement]) -> Iterator[str]:
    end = 0
    for replacement in replacements:
        yield text[end : replacement.start]
        yield replacement.new
        end = replacement.end
    yield text[end:]


#: Texts that may have been there before: more are not looked at.
_MAX_TRIED = 8


def were_edits_applied(text: str, edits: Sequence[TextEdit]) -> bool | None:
    """Return True if a text is the result of the edits, False if it is not, None if unknown."""
    if isinstance(apply_edits(text, edits), EditResult):
        written = (any(new in text for new in _line_break_variants(edit.new_string)) for edit in edits)
        return None if all(written) else False
    return True if any(_results_in(before, edits, text) for before in _find_candidates_before(text, edits)) else None


def _results_in(before: str, edits: Sequence[TextEdit], text: str) -> bool:
    made = apply_edits(before, edits)
    return isinstance(made, EditResult) and made.text == text


def _find_candidates_before(text: str, edits: Sequence[TextEdit]) -> Sequence[str]:
    """Return some texts before the edits, each reverted where it may have been made."""
    texts = [text]
    for edit in edits:
        texts = list(islice((before for made in texts for before in _revert_edit(made, edit)), _MAX_TRIED))
    return texts


def _revert_edit(text: str, edit: TextEdit) -> Iterator[str]:
    if not edit.new_string:
        return
    for new in _line_break_variants(edit.new_string):
        for old in _line_break_variants(edit.old_string):
            if edit.replace_all and new in text:
                yield text.replace(new, old)
            elif not edit.replace_all:
                yield from (text[:at] + old + text[at + len(new) :] for at in _find_all(text, new))


def _line_break_variants(part: str) -> tuple[str, ...]:
    """Return the part unchanged and with each kind of line break that a file may use."""
    plain = part.replace("\r\n", "\n")
    return tuple(dict.fromkeys((part, plain, plain.replace("\n", "\r\n"))))
