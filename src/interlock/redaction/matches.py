"""Operations on matches: map them back from a text with joined words, and replace them by marks."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..domain.rendering import INVISIBLE_CHARACTERS
from .encodings import find_long_runs
from .patterns import SecretMatch

_WRAP = r"(?:(?<=[A-Za-z0-9+/]{60}\n)|(?<=[A-Za-z0-9+/]{60}\r\n))(?=[A-Za-z0-9+/=])"
_WRAPPED = rf"\n{_WRAP}"
#: A line of base64 is wrapped at no fewer.
_WRAPPED_CHARS = 60
_VISIBLE_ASCII = r"[\t\n -~]+"
#: Unseen characters, and the line breaks inside wrapped base64. It starts with a plain class, which makes it fast.
_SPLIT = rf"[{INVISIBLE_CHARACTERS}\ufe0e\ufe0f\n](?:(?<!\n)[{INVISIBLE_CHARACTERS}\ufe0e\ufe0f]*|{_WRAP})"


def find_in_split_text(text: str, find: Callable[[str], list[SecretMatch]]) -> list[SecretMatch]:
    """Return the matches in the text, and those in the text with its split words joined."""
    found = find(text)
    if _has_split_words(text):
        joined = JoinedText.from_text(text)
        found += [joined.map_match(item) for item in find(joined.text)]
    return found


def _has_split_words(text: str) -> bool:
    """Return True if a word may be split. Fast for common text."""
    may_be_wrapped = "\n" in text and bool(find_long_runs(text, _WRAPPED_CHARS))
    if not text.isascii():
        return re.search(_SPLIT, text if may_be_wrapped else re.sub(_VISIBLE_ASCII, "", text)) is not None
    if "\n" in text:
        if may_be_wrapped and re.search(_WRAPPED, text):
            return True
        text = text.replace("\r\n", "").replace("\n", "")
    return not text.replace("\t", "").isprintable()


class JoinedText(NamedTuple):
    """A text without what splits its words, and the way back to the places in the original."""

    text: str
    #: Where a kept piece starts in the joined text, and how far it was moved.
    starts: list[int]
    shifts: list[int]

    @classmethod
    def from_text(cls, text: str) -> "JoinedText":
        """Join a text that is split over lines, and remember the positions."""
        pieces: list[str] = []
        starts, shifts = [0], [0]
        kept = end = 0
        for match in re.finditer(_SPLIT, text):
            pieces.append(text[end : match.start()])
            kept += match.start() - end
            end = match.end()
            starts.append(kept)
            shifts.append(end - kept)
        pieces.append(text[end:])
        return cls("".join(pieces), starts, shifts)

    def map_end(self, end: int) -> int:
        """Return where a piece of the original that ends with a kept character ends in the joined text."""
        at = bisect_right(
            range(len(self.starts)), end - 1, key=lambda number: self.starts[number] + self.shifts[number]
        )
        return end - self.shifts[at - 1]

    def map_match(self, found: SecretMatch) -> SecretMatch:
        """Map a match in the joined text to its position in the original."""
        return SecretMatch(self._map_position(found.start), self._map_position(found.end - 1) + 1, found.name)

    def _map_position(self, at: int) -> int:
        return at + self.shifts[bisect_right(self.starts, at) - 1]


def merge_overlapping(found: Iterable[SecretMatch]) -> list[SecretMatch]:
    """Return overlapping matches as one, in order, named after the most certain: the one found first."""
    merged: list[tuple[int, int, int, str]] = []
    for rank, (start, end, name) in sorted(enumerate(found), key=lambda item: item[1].start):
        if merged and start < merged[-1][1]:
            begin, last_end, surest, last_name = merged[-1]
            rank, name = min((surest, last_name), (rank, name))  # noqa: PLW2901 - the name of both
            merged[-1] = (begin, max(last_end, end), rank, name)
        else:
            merged.append((start, end, rank, name))
    return [SecretMatch(start, end, name) for start, end, _, name in merged]


def replace_matches(text: str, found: Iterable[SecretMatch]) -> str:
    """Return the text with one mark for each stretch of overlapping matches."""
    pieces: list[str] = []
    at = 0
    for start, end, name in merge_overlapping(found):
        pieces += (text[at:start], f"[redacted:{name}]")
        at = end
    return "".join((*pieces, text[at:]))
