r"""Numbered lines of a text for the model: `12`, a tab, the line.

Long lines are cut, and there are only as many lines as there is room for; what is left out is counted in bytes of the
file. Making the numbers would cost more than all the rest, so they are kept for the next time.
"""

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate

import msgspec

from ...domain.outcome import OutputSize
from .text_file import Encoding, TextFile, count_encoded_bytes, count_lines, has_longer_line

MAX_LINE_CHARS = 2_000
#: Of the numbered text.
MAX_TEXT_CHARS = 120_000
_USUAL_LINES = 2_000


class NumberedText(msgspec.Struct, frozen=True):
    """Numbered lines, and how much of the text they are."""

    text: str
    #: How many lines are shown, how many there are in all, and how many of the shown ones are cut.
    shown: int
    total: int
    cut: int
    #: How much of the text from the first line on is shown. None: all of it.
    size: OutputSize | None


class _LineRange(msgspec.Struct, frozen=True):
    """Some lines as they are in the file, without their ends, and how many lines there are in all."""

    lines: list[str]
    total: int
    #: Where the first of them begins in the text.
    start: int


def number_lines(text: TextFile, offset: int, limit: int) -> NumberedText:
    """Return lines from `offset` on, the first line being 1. None are shown when there are fewer."""
    found = _split_range(text.text, offset, limit)
    has_long = has_longer_line(text.text, MAX_LINE_CHARS)
    numbered, count = _number_and_limit(_display_lines(found.lines, text, has_long), offset)
    cut = [line for line in found.lines[:count] if len(line) > MAX_LINE_CHARS] if has_long else []
    has_more = offset + count - 1 < found.total
    return NumberedText(
        numbered, count, found.total, len(cut), _measure_output(found, count, cut, text) if cut or has_more else None
    )


def _split_range(text: str, offset: int, limit: int) -> _LineRange:
    """Split only as many lines as needed; the rest is counted."""
    end = offset - 1 + limit
    lines = text.split("\n", end)
    rest = lines.pop()
    if len(lines) == end:
        total = end + count_lines(rest)
    else:
        if rest:
            lines.append(rest)
        total = len(lines)
    if offset == 1:
        return _LineRange(lines, total, 0)
    start = sum(map(len, lines[: offset - 1])) + offset - 1
    return _LineRange(lines[offset - 1 :], total, start)


def _display_lines(lines: list[str], text: TextFile, has_long: bool) -> list[str]:
    """Return the lines as they are shown. Most are unchanged."""
    if text.encoding != "unknown-8bit" and "\r" not in text.text and not has_long:
        return lines
    return [_display_line(line, text.encoding) for line in lines]


def _display_line(line: str, encoding: Encoding) -> str:
    head, omitted = line[:MAX_LINE_CHARS], line[MAX_LINE_CHARS:]
    shown = TextFile(head if omitted else head.removesuffix("\r"), encoding).display_text
    if not omitted:
        return shown
    return f"{shown} [... {count_encoded_bytes(omitted, encoding):,} bytes of this line omitted ...]"


def _number_and_limit(lines: list[str], offset: int) -> tuple[str, int]:
    """Number as many lines as there is room for. Return the text and their count."""
    count = len(lines)
    text = _join_numbered(lines, offset)
    if len(text) > MAX_TEXT_CHARS:
        ends = accumulate(map(len, _interleave_numbers(lines, offset)))
        # Number and line come one after the other, so every second end is that of a line.
        count = max(1, bisect_right(list(ends)[1::2], MAX_TEXT_CHARS))
        text = _join_numbered(lines[:count], offset)
    return text, count


def _join_numbered(lines: list[str], offset: int) -> str:
    pieces = _interleave_numbers(lines, offset)
    pieces[:1] = [piece[1:] for piece in pieces[:1]]  # not of the joined text, which would be copied
    return "".join(pieces)


def _interleave_numbers(lines: list[str], offset: int) -> list[str]:
    pieces = [""] * (2 * len(lines))
    pieces[::2] = _make_prefixes(offset, max(len(lines), _USUAL_LINES))[: len(lines)]
    pieces[1::2] = lines
    return pieces


@lru_cache(maxsize=4)
def _make_prefixes(first: int, count: int) -> list[str]:
    """Return the text before each line. Cached: most reads begin at the first one."""
    return [f"\n{number}\t" for number in range(first, first + count)]


def _measure_output(found: _LineRange, count: int, cut: list[str], text: TextFile) -> OutputSize:
    """Measure the output in bytes of the file, from the first requested line to its end."""
    end = found.start + sum(map(len, found.lines[:count])) + count
    produced = count_encoded_bytes(text.text[found.start :], text.encoding)
    shown = count_encoded_bytes(text.text[found.start : end], text.encoding)
    shown -= sum(count_encoded_bytes(line[MAX_LINE_CHARS:], text.encoding) for line in cut)
    return OutputSize(produced=produced, kept=0, shown=shown, omitted=produced - shown)
