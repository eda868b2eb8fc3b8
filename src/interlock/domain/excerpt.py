"""What to show of an output that is too long: the parts a reader needs, and exactly what was left out.

A plain head-cut hides the failure, which is what the reader came for. The excerpt keeps the head, the region of the
first failing line, the end of the last traceback and the tail, in their order, with a marker line in every gap:

    [... 84,231 bytes omitted (bytes 1,024-85,255) ...]

All counts are bytes of the output in UTF-8, so they fit the artifact that holds all of it. What stands between two
markers is an exact slice of the output. The work is a few linear scans for fixed words, whatever the output holds.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

#: Under this limit there is only room for a marker and a little of the end.
MIN_EXCERPT_CHARS = 200

_MAX_HINT_CHARS = 60
_LINES_BEFORE = 3
#: How many harmless lines with one word are passed over before the word is given up.
_MAX_HARMLESS = 1_000
#: A gap shorter than any marker is shown instead.
_MIN_GAP_CHARS = 40

#: Words of failing lines, the sure ones first: the others count only where none of these is found.
_SIGNS = (
    (
        *("Traceback (most recent call last)", "Error:", "ERROR", "error:", "error[", "FAIL", "AssertionError"),
        *("panic:", "panicked at", "fatal:", "FATAL", "Exception", "not ok ", "npm ERR!", "Segmentation fault"),
        *("✗", "✕", "✖", "Caused by:", "undefined reference", "command not found", "No such file"),
    ),
    ("Expected", "expected", "Error", "error", "Failed", "failed", "Failure", "failure", "exception", "assert"),
)
#: What makes such a word harmless: it says that there was none. Before the word, and from it on.
_none_before = re.compile(r"(?:(?<![\w.])0|\b(?:no|zero|without)) \w*$", re.IGNORECASE).search
_none_after = re.compile(r"\w*[\"']?\s?[:=]\s{0,2}0\b").match
_TRACEBACK = "Traceback (most recent call last)"
_unindented_line = re.compile(r"\n(?=[^\s|])").search


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    #: `produced = shown + omitted`, in bytes of UTF-8.
    produced: int
    shown: int
    omitted: int
    #: What to look for in the full output: the start of the first failing line.
    around: str
    #: The bytes of the output that are shown, as (start, end), in order.
    ranges: tuple[tuple[int, int], ...]

    @property
    def truncated(self) -> bool:
        return self.omitted > 0


class _Span(NamedTuple):
    """Characters from `start` to before `end`."""

    start: int
    end: int


def apply_tool_output_limits(text: str, max_output_chars: int) -> Excerpt:
    """The whole text when it fits, else an excerpt of at most that many characters, markers included."""
    produced = _size(text)
    if len(text) <= max(0, max_output_chars):
        return Excerpt(text=text, produced=produced, shown=produced, omitted=0, around="", ranges=((0, produced),))
    failing = _first_failure(text)
    marker_chars = len(_marker(produced, produced, produced)) + 2
    spans = _merged(_spans(text, max_output_chars, marker_chars, failing))
    around = "" if failing < 0 else _hint(text, failing)
    return _assembled(text, spans, produced, around)


def _spans(text: str, limit: int, marker_chars: int, failing: int) -> list[_Span]:
    """What to keep. Together with a marker in every gap it is within the limit."""
    size = len(text)
    if limit < MIN_EXCERPT_CHARS:
        return [_Span(size - max(0, limit - marker_chars), size)]
    if failing < 0:
        room = limit - marker_chars
        head = _head(text, room * 2 // 5)
        return [head, _tail(text, room - head.end)]
    if limit < 6 * marker_chars:
        room = limit - 2 * marker_chars
        return [_Span(failing, min(size, failing + room // 2)), _tail(text, room // 2)]
    room = limit - 3 * marker_chars
    kept = [_head(text, room // 5), _region(text, failing, room * 2 // 5)]
    trace_end = _last_trace_end(text)
    if trace_end >= 0:
        kept.append(_region(text, trace_end, room // 5))
    used = sum(span.end - span.start for span in _merged(kept))
    return [*kept, _tail(text, max(room // 5, room - used))]


def _first_failure(text: str) -> int:
    """Where the first failing line tells of its failure; -1 when none does."""
    for words in _SIGNS:
        end = len(text)
        for word in words:
            at = _find_sign(text, word, end)
            end = end if at < 0 else at
        if end < len(text):
            return _near_line_start(text, end)
    return -1


def _find_sign(text: str, word: str, end: int) -> int:
    """The word's first place before `end` that tells of a failure."""
    at = text.find(word, 0, end)
    for _ in range(_MAX_HARMLESS):
        if at < 0 or not (_none_before(text[max(0, at - 16) : at]) or _none_after(text[at : at + 24])):
            return at
        at = text.find(word, at + 1, end)
    return -1


def _near_line_start(text: str, at: int) -> int:
    earliest = max(0, at - _MAX_HINT_CHARS)
    line_start = text.rfind("\n", earliest, at) + 1
    return line_start if line_start or not earliest else at


def _last_trace_end(text: str) -> int:
    """The line that ends the last traceback with its error, or the last cause; -1 without either."""
    cause = text.rfind("Caused by:")
    start = text.rfind(_TRACEBACK)
    end = _unindented_line(text, start) if start >= 0 else None
    return cause if end is None else max(end.end(), cause)


def _hint(text: str, at: int) -> str:
    """The start of the line, as far as it can be printed, so that it can be looked for as it is."""
    end = text.find("\n", at, at + 2 * _MAX_HINT_CHARS)
    line = text[at : at + 2 * _MAX_HINT_CHARS if end < 0 else end].strip()[:_MAX_HINT_CHARS]
    if line.isprintable():
        return line.strip()
    return next((part for part in _printable_parts(line) if part), "")


def _printable_parts(line: str) -> Iterable[str]:
    return (part.strip() for part in "".join(c if c.isprintable() else "\0" for c in line).split("\0"))


def _head(text: str, room: int) -> _Span:
    line_end = text.rfind("\n", room // 2, room) + 1
    return _Span(0, line_end or room)


def _tail(text: str, room: int) -> _Span:
    start = len(text) - room
    line_start = text.find("\n", start, start + room // 2) + 1
    return _Span(line_start or start, len(text))


def _region(text: str, at: int, room: int) -> _Span:
    """Some lines before the place and what follows it, cut at the end of a line where there is one."""
    start = at
    for _ in range(_LINES_BEFORE):
        line_start = text.rfind("\n", max(0, at - room // 4), max(0, start - 1)) + 1
        if line_start == 0:
            break
        start = line_start
    stop = min(len(text), start + room)
    line_end = text.rfind("\n", at + room // 4, stop) + 1
    return _Span(start, line_end or stop)


def _merged(spans: Iterable[_Span]) -> list[_Span]:
    merged: list[_Span] = []
    for span in sorted(spans):
        if merged and span.start - merged[-1].end < _MIN_GAP_CHARS:
            merged[-1] = _Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def _assembled(text: str, spans: list[_Span], produced: int, around: str) -> Excerpt:
    pieces: list[str] = []
    ranges: list[tuple[int, int]] = []
    chars = bytes_before = 0
    for start, end in spans:
        if start == end:
            continue
        if start > chars:
            gap = _size(text[chars:start])
            pieces.append(_gap_line(pieces, bytes_before, gap))
            bytes_before += gap
        piece = text[start:end]
        pieces.append(piece)
        ranges.append((bytes_before, bytes_before + _size(piece)))
        bytes_before, chars = ranges[-1][1], end
    if chars < len(text):
        pieces.append(_gap_line(pieces, bytes_before, produced - bytes_before).rstrip("\n"))
    shown = sum(end - start for start, end in ranges)
    return Excerpt(
        text="".join(pieces),
        produced=produced,
        shown=shown,
        omitted=produced - shown,
        around=around,
        ranges=tuple(ranges),
    )


def _gap_line(pieces: list[str], start: int, size: int) -> str:
    before = "\n" if pieces and not pieces[-1].endswith("\n") else ""
    return f"{before}{_marker(size, start, start + size)}\n"


def _marker(size: int, start: int, end: int) -> str:
    return f"[... {size:,} bytes omitted (bytes {start:,}-{end:,}) ...]"


def _size(text: str) -> int:
    """In UTF-8. A lone surrogate counts like the character that replaces it."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
