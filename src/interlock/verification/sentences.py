"""Splits an answer into the author's sentences: without code blocks and quoted lines, each in plain words.

A `Sentence` has the words as they stand in the answer, and the same in one plain form to look for words in: lower case,
single spaces, no emphasis, `not` spelled out, and of all signs only those that part or mark something.
"""

import re
from collections.abc import Iterator
from itertools import chain, starmap
from typing import NamedTuple

from .. import lazy_pattern

MAX_HEAD_CHARS = 16 * 1024
MAX_TAIL_CHARS = 48 * 1024
MAX_SENTENCE_CHARS = 1_000

_FENCE = lazy_pattern(r"[ \t]{0,20}(```|~~~)")
_FENCE_LINES = lazy_pattern(r"^[ \t]{0,20}(```|~~~)", re.MULTILINE)
_QUOTE = lazy_pattern(r"\s{0,20}>")
_ITEM = lazy_pattern(r"\s{0,20}(?:[-*+•#|]|\d{1,3}[.)]\s)")
_END = lazy_pattern(r"(?<![/\s.])[.!?\u2026]++[\"'\u201d\u2019)*_\]`]*+(?=\s)")
#: Of a list of things to do.
_OPEN_BOX, _CHECKED_BOX = "[ ]", "[x]"
_MARGIN = " \t\r\n-*+•#|>"
#: Signs that mean the same, those that part like a semicolon or a colon, and those that only look good.
_SYMBOLS = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u02bc\uff07\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u00ab\u00bb", '"'),
        **dict.fromkeys("✅✔☑🟢✓", "✅"),
        **dict.fromkeys("❌✗✘✖🔴", "❌"),
        **dict.fromkeys("\u2013\u2014", ";"),
        **dict.fromkeys("→=|", ":"),
        **dict.fromkeys("*~\ufe0f", ""),
    }
)
# Not `)*+`: in Python 3.11.2 a possessive group keeps what its last, failed try took: the full stop of a sentence.
_TOKEN = lazy_pattern(
    r"(?P<option>(?<![^\s`])--?\w[^\s`]*+)|[\w'](?:[\w'/%+-]|\.(?=\w)|::(?=\w))*|[,;:()✅❌\"`]|(?<= )-(?= )"
)
_EDGES = "_'/+-"


class Sentence(NamedTuple):
    """One sentence of an answer."""

    #: A part of the answer, as it is.
    text: str
    #: In plain form, with a space at both ends.
    plain: str
    #: Where there are quotes or code in the plain form: start and end.
    quoted: tuple[tuple[int, int], ...]

    @property
    def is_question(self) -> bool:
        """True if the sentence is a question."""
        return self.text.rstrip("*_\"')` ").endswith("?")

    def is_quoted(self, start: int, end: int) -> bool:
        """Return True if a range is inside quotes."""
        return any(opens <= start and end <= closes for opens, closes in self.quoted)


def split_sentences(text: str) -> Iterator[Sentence]:
    """Yield the sentences. Of a very long answer only the beginning and the end."""
    for passage in chain.from_iterable(starmap(_split_passages, _split_ends(text))):
        for part in _split_passage(passage):
            yield _normalize_sentence(part)


def _split_ends(text: str) -> Iterator[tuple[str, str]]:
    """Yield the beginning and the end of a long text, each with the fence of the code block that it begins in."""
    if len(text) <= MAX_HEAD_CHARS + MAX_TAIL_CHARS:
        yield text, ""
        return
    yield text[:MAX_HEAD_CHARS], ""
    fence = ""
    for mark in _FENCE_LINES.finditer(text, 0, len(text) - MAX_TAIL_CHARS):
        fence = _fence_after(fence, mark[1])
    yield text[-MAX_TAIL_CHARS:], fence


def _split_passages(text: str, fence: str) -> Iterator[str]:
    """Yield paragraphs, list items, headings and rows. A continuation line stays with the one before it."""
    start = end = 0
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        is_apart = bool(fence or mark or _QUOTE.match(line) or not line.strip())
        if is_apart or _ITEM.match(line):
            yield text[start:end]
            start = end + len(line) if is_apart else end
        if mark:
            fence = _fence_after(fence, mark[1])
        end += len(line)
    yield text[start:end]


def _fence_after(fence: str, mark: str) -> str:
    """Return the open fence after a mark: a block ends with the mark that it began with."""
    return mark if not fence else "" if mark == fence else fence


def _split_passage(passage: str) -> Iterator[str]:
    start = 0
    for match in _END.finditer(passage):
        yield from _split_long(passage[start : match.end()])
        start = match.end()
    yield from _split_long(passage[start:])


def _split_long(text: str) -> Iterator[str]:
    text = text.strip().strip(_MARGIN)
    if text.startswith(_OPEN_BOX):
        return
    for start in range(0, len(text), MAX_SENTENCE_CHARS):
        yield text[start : start + MAX_SENTENCE_CHARS]


def normalize_signs(text: str) -> str:
    """Return a text in lower case, with one sign for each meaning, and `not` spelled out."""
    written = text.translate(_SYMBOLS).lower()
    for short, long in (("n't", " not"), ("cannot", "can not"), (_CHECKED_BOX, "✅")):
        written = written.replace(short, long)
    return written


def _normalize_sentence(text: str) -> Sentence:
    written = normalize_signs(text)
    plain, quoted, opened = " ", list[tuple[int, int]](), dict[str, int]()
    for match in _TOKEN.finditer(written):
        word = match[0]
        if word in ('"', "`"):
            start = opened.pop(word, -1)
            if start >= 0:
                quoted.append((start, len(plain)))
            else:
                opened[word] = len(plain)
        elif not match["option"] and (word := ":" if word == "-" else word.strip(_EDGES)):
            plain += word + " "
    return Sentence(text, plain, tuple(quoted))
