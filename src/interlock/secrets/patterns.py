"""Redacts declared secrets in every usual spelling, and what looks like a secret.

A declared value is found as it is, in base64, hex, URL and JSON form, and with unseen characters or the line breaks
of base64 put between its letters. `forms` knows what secrets look like that nobody declared. A secret becomes
`[redacted:NAME]`, so a reader sees that something was there and what.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..domain.envelope import UNSEEN
from .encodings import MIN_ENCODED_CHARS, RUN_CHARACTER, base64_end, base64_stems, find_encoded, spellings
from .forms import Found, any_word, find_forms

MIN_SECRET_CHARS = 6

_WRAP = r"(?:(?<=[A-Za-z0-9+/]{60}\n)|(?<=[A-Za-z0-9+/]{60}\r\n))(?=[A-Za-z0-9+/=])"
_WRAPPED = rf"\n{_WRAP}"
#: Unseen characters, and the line breaks inside wrapped base64.
_SPLIT = rf"[{UNSEEN}\ufe0e\ufe0f\n](?:(?<!\n)|{_WRAP})"


#: What a secret that has no word of a form cannot do without: a long run of such characters, or something that may
#: split it. A text with neither has nothing to redact, and most texts are told at one look: every byte becomes a sign
#: for its kind, and the signs are searched.
_RUN, _PLAIN, _ODD = b"r", b"p", b"o"
_LONG_RUN = _RUN * MIN_ENCODED_CHARS


def _kind(character: str) -> bytes:
    if re.fullmatch(RUN_CHARACTER, character):
        return _RUN
    return _PLAIN if character in "\t\n" or (character.isascii() and character.isprintable()) else _ODD


_KINDS = b"".join(_kind(chr(code)) for code in range(256))


class SecretRedactor:
    """A `Redactor`. Declared values are name to value; a value that is too short to be told apart is refused."""

    __slots__ = ("_base64", "_plain_stems", "_spellings", "_suspect", "declares")

    def __init__(self, declared: Mapping[str, str] = {}) -> None:
        for name, value in declared.items():
            if len(value) < MIN_SECRET_CHARS:
                raise ValueError(f"secret {name!r} has fewer than {MIN_SECRET_CHARS} characters")
        self._spellings = tuple({text: name for name, value in declared.items() for text in spellings(value)}.items())
        self._base64 = tuple(
            {stem: name for name, value in declared.items() for stem, _ in base64_stems(value)}.items()
        )
        self._plain_stems = tuple(text for text, _ in (*self._spellings, *self._base64))
        self._suspect = any_word()
        self.declares = bool(declared)

    def redact(self, text: str) -> str:
        if self._suspect(text.lower()) is None and not _is_unusual(text):
            for stem in self._plain_stems:
                if stem in text:
                    break
            else:
                return text
        return _redacted(text, self._find)

    def redact_declared(self, text: str) -> str:
        return _redacted(text, self._find_declared)

    def _find(self, text: str) -> list[Found]:
        return self._find_declared(text) + find_forms(text) + find_encoded(text)

    def _find_declared(self, text: str) -> list[Found]:
        found: list[Found] = []
        for spelling, name in self._spellings:
            if spelling in text:
                found += [Found(m.start(), m.end(), name) for m in re.finditer(re.escape(spelling), text)]
        for stem, name in self._base64:
            if stem in text:
                found += [Found(m.start(), base64_end(text, m.end()), name) for m in re.finditer(re.escape(stem), text)]
        return found


def _is_unusual(text: str) -> bool:
    try:
        kinds = text.encode("ascii").translate(_KINDS)
    except UnicodeEncodeError:
        return True
    return _LONG_RUN in kinds or _ODD in kinds


def _redacted(text: str, find: Callable[[str], list[Found]]) -> str:
    found = find(text)
    if _is_split(text):
        joined = _Joined.of(text)
        found += [joined.back(item) for item in find(joined.text)]
    return _replaced(text, found) if found else text


def _is_split(text: str) -> bool:
    """May there be a word that is split? Quick for the common text."""
    if not text.isascii():
        return re.search(_SPLIT, text) is not None
    if "\n" in text:
        if re.search(_WRAPPED, text):
            return True
        text = text.replace("\r\n", "").replace("\n", "")
    return not text.replace("\t", "").isprintable()


class _Joined(NamedTuple):
    """A text without what splits its words, and the way back to the places in the original."""

    text: str
    #: Where a kept piece starts in the joined text, and how far it was moved.
    starts: list[int]
    shifts: list[int]

    @classmethod
    def of(cls, text: str) -> "_Joined":
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

    def back(self, found: Found) -> Found:
        return Found(self._original(found.start), self._original(found.end - 1) + 1, found.name)

    def _original(self, at: int) -> int:
        return at + self.shifts[bisect_right(self.starts, at) - 1]


def _replaced(text: str, found: list[Found]) -> str:
    """Each stretch of overlapping finds becomes one mark, named after the surest of them: the one found first."""
    pieces: list[str] = []
    end = 0
    surest = len(found)
    for rank in sorted(range(len(found)), key=lambda rank: found[rank].start):
        item = found[rank]
        if item.start >= end:
            if end:
                pieces.append(f"[redacted:{found[surest].name}]")
            pieces.append(text[end : item.start])
            surest = rank
        surest = min(surest, rank)
        end = max(end, item.end)
    return "".join((*pieces, f"[redacted:{found[surest].name}]", text[end:]))
