"""Excerpts of an output that is too long: the relevant parts, and exactly what was left out.

A plain head-cut hides the failure, which is what the reader came for. The excerpt keeps the head, the region of the
first failing line, the end of the last traceback and the tail, in their order, with a marker line in every gap:

    [... 84,231 bytes omitted (bytes 1,024-85,255) ...]

All counts are bytes of the output in UTF-8, so they fit the artifact that holds all of it. What stands between two
markers is an exact slice of the output. The work is a few linear scans for fixed words, whatever the output holds.

An output may be one of two that an artifact holds interleaved. Then a marker counts the bytes of the one output, and
its places are those of the artifact: all that is missing is between them, perhaps with something of the other output.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, Protocol

import msgspec

from .. import lazy_pattern

#: Words of failing lines, the sure ones first: the others count only where none of these is found.
FAILURE_WORDS = (
    (
        *("Traceback (most recent call last)", "Error:", "ERROR", "error:", "error[", "FAIL", "AssertionError"),
        *("panic:", "panicked at", "fatal:", "FATAL", "Exception", "not ok ", "npm ERR!", "Segmentation fault"),
        *("✗", "✕", "✖", "Caused by:", "undefined reference", "command not found", "No such file"),
    ),
    ("Expected", "expected", "Error", "error", "Failed", "failed", "Failure", "failure", "exception", "assert"),
)
TRACEBACK = "Traceback (most recent call last)"
CAUSED_BY = "Caused by:"
#: The line after a traceback that says what went wrong begins after such a place.
find_trace_end = lazy_pattern(r"\n(?=[^\s|])").search
#: How many characters before and after a word of a failing line are looked at.
CONTEXT_CHARS = 64

_MAX_HINT_CHARS = 60
#: How many harmless lines with one word are passed over before the word is given up.
_MAX_HARMLESS = 1_000
#: What makes such a word harmless: it says that there was none. Before the word, and from it on.
_none_before = lazy_pattern(r"(?:(?<![\w.])0|\b(?:no|zero|without)) \w*$", re.IGNORECASE).search
_none_after = lazy_pattern(r"\w*[\"']?\s?[:=]\s{0,2}0\b").match


def find_first_failure(text: str) -> int:
    """Return the position of the first failing line; -1 when there is none."""
    for words in FAILURE_WORDS:
        at = find_first_word(text, words, 0, len(text))
        if at >= 0:
            return find_near_line_start(text, at)
    return -1


def find_first_word(text: str, words: Iterable[str], start: int, end: int) -> int:
    """Return the first position in the range where one of the words indicates a failure; -1 when none does."""
    first = -1
    for word in words:
        at = _find_word(text, word, start, end)
        if at >= 0:
            first = end = at
    return first


def _find_word(text: str, word: str, start: int, end: int) -> int:
    at = text.find(word, start, end)
    for _ in range(_MAX_HARMLESS):
        if at < 0 or not (_none_before(text[max(0, at - 16) : at]) or _none_after(text[at : at + 24])):
            return at
        at = text.find(word, at + 1, end)
    return -1


def find_near_line_start(text: str, at: int) -> int:
    """Return the start of the line that contains a position, or the position if it is far away."""
    earliest = max(0, at - _MAX_HINT_CHARS)
    line_start = text.rfind("\n", earliest, at) + 1
    return line_start if line_start or not earliest else at


def find_last_trace_end(text: str) -> int:
    """Return the line that ends the last traceback with its error, or the last cause; -1 without either."""
    cause = text.rfind(CAUSED_BY)
    start = text.rfind(TRACEBACK)
    end = find_trace_end(text, start) if start >= 0 else None
    return cause if end is None else max(end.end(), cause)


def build_search_hint(text: str, at: int) -> str:
    """Return the start of the line, as far as it can be printed, so that it can be looked for as it is."""
    end = text.find("\n", at, at + 2 * _MAX_HINT_CHARS)
    line = text[at : at + 2 * _MAX_HINT_CHARS if end < 0 else end].strip()[:_MAX_HINT_CHARS]
    if line.isprintable():
        return line.strip()
    return next((part for part in _printable_parts(line) if part), "")


def _printable_parts(line: str) -> Iterable[str]:
    return (part.strip() for part in "".join(c if c.isprintable() else "\0" for c in line).split("\0"))


#: Under this limit there is only room for a marker and a little of the end.
MIN_EXCERPT_CHARS = 200

_LINES_BEFORE = 3
#: A gap shorter than any marker is shown instead.
_MIN_GAP_CHARS = 40
#: What a lone surrogate stands for: itself, or a byte that is no UTF-8.
_Surrogates = Literal["surrogatepass", "surrogateescape"]
_REPLACED = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """An excerpt of an output, with byte counts."""

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
        """True if something was left out."""
        return self.omitted > 0


class TextSpan(NamedTuple):
    """A span from `start` to before `end`."""

    start: int
    end: int


class ExcerptPiece(NamedTuple):
    """Bytes `start` to before `end` of the output, as text."""

    start: int
    end: int
    text: str


class ExcerptSource(Protocol):
    """An output that is too long. Places and spans are its own, such as characters of a text or bytes of a file.

    Room is always characters: a span that is asked for by its room has no more of them.
    """

    @property
    def produced(self) -> int:
        """The number of bytes."""
        ...

    @property
    def artifact_bytes(self) -> int:
        """The size of the artifact that holds it, which may hold more."""
        ...

    def places(self, start: int, end: int) -> TextSpan:
        """Return where the artifact has these bytes."""
        ...

    def failing(self) -> int:
        """Return where the first failing line is; -1 without any."""
        ...

    def trace_end(self) -> int:
        """Return where the last traceback ends with its error; -1 without any."""
        ...

    def around(self, at: int) -> str:
        """Return what to look for to find the place."""
        ...

    def head(self, room: int) -> TextSpan: ...

    def tail(self, room: int) -> TextSpan: ...

    def last(self, room: int) -> TextSpan:
        """Return the span of exactly so many characters at the end."""
        ...

    def ahead(self, at: int, room: int) -> TextSpan:
        """Return what follows the place."""
        ...

    def region(self, at: int, room: int) -> TextSpan:
        """Return the span of some lines before the position and what follows it."""
        ...

    def pieces(self, spans: list[TextSpan]) -> Iterable[ExcerptPiece]: ...


def apply_tool_output_limits(text: str, max_output_chars: int) -> Excerpt:
    """Return the whole text when it fits, else an excerpt of at most that many characters, markers included."""
    produced = _utf8_size(text, "surrogatepass")
    return _limit(_TextSource(text, produced, "surrogatepass", produced, TextSpan), max_output_chars)


def excerpt_bytes(
    content: bytes,
    max_output_chars: int,
    *,
    places: Callable[[int, int], TextSpan] = TextSpan,
    artifact_bytes: int | None = None,
) -> Excerpt:
    """Return an excerpt of bytes, with their counts. What is no UTF-8 is shown as U+FFFD, one for each byte."""
    text = content.decode(errors="surrogateescape")
    artifact_bytes = len(content) if artifact_bytes is None else artifact_bytes
    return _limit(_TextSource(text, len(content), "surrogateescape", artifact_bytes, places), max_output_chars)


def build_excerpt(source: ExcerptSource, max_output_chars: int) -> Excerpt:
    """Return an excerpt of an output that is known to be too long."""
    failing = source.failing()
    marker_chars = len(_marker(source.produced, source.artifact_bytes, source.artifact_bytes)) + 2
    spans = _merge_spans(_choose_spans(source, max_output_chars, marker_chars, failing))
    around = "" if failing < 0 else source.around(failing)
    return _assemble(source, source.pieces(spans), around)


def _limit(source: "_TextSource", limit: int) -> Excerpt:
    if len(source.text) > max(0, limit):
        return build_excerpt(source, limit)
    produced = source.produced
    text = source.displayable(source.text)
    return Excerpt(text=text, produced=produced, shown=produced, omitted=0, around="", ranges=((0, produced),))


def _choose_spans(source: ExcerptSource, limit: int, marker_chars: int, failing: int) -> list[TextSpan]:
    """Return what to keep. Together with a marker in every gap it is within the limit."""
    if limit < MIN_EXCERPT_CHARS:
        return [source.last(max(0, limit - marker_chars))]
    if failing < 0:
        room = limit - marker_chars
        head_room = room * 2 // 5
        head = source.head(head_room)
        return [head, source.tail(max(room - head_room, room - head.end))]
    if limit < 6 * marker_chars:
        room = limit - 2 * marker_chars
        return [source.ahead(failing, room // 2), source.tail(room // 2)]
    room = limit - 3 * marker_chars
    kept = [source.head(room // 5), source.region(failing, room * 2 // 5)]
    trace_end = source.trace_end()
    if trace_end >= 0:
        kept.append(source.region(trace_end, room // 5))
    used = sum(span.end - span.start for span in _merge_spans(kept))
    return [*kept, source.tail(max(room // 5, room - used))]


def replace_surrogates(text: str) -> str:
    """Return the text with U+FFFD for every lone surrogate."""
    return text.translate(_REPLACED)


class _TextSource(NamedTuple):
    """A `Source` whose places are characters."""

    text: str
    produced: int
    surrogates: _Surrogates
    artifact_bytes: int
    place: Callable[[int, int], TextSpan]

    def places(self, start: int, end: int) -> TextSpan:
        return self.place(start, end)

    def displayable(self, piece: str) -> str:
        return piece if self.surrogates == "surrogatepass" or piece.isascii() else replace_surrogates(piece)

    def failing(self) -> int:
        return find_first_failure(self.text)

    def trace_end(self) -> int:
        return find_last_trace_end(self.text)

    def around(self, at: int) -> str:
        return build_search_hint(self.text, at)

    def head(self, room: int) -> TextSpan:
        return head_span(self.text, room)

    def tail(self, room: int) -> TextSpan:
        return tail_span(self.text, room)

    def last(self, room: int) -> TextSpan:
        return TextSpan(len(self.text) - room, len(self.text))

    def ahead(self, at: int, room: int) -> TextSpan:
        return TextSpan(at, min(len(self.text), at + room))

    def region(self, at: int, room: int) -> TextSpan:
        return region_span(self.text, at, room)

    def pieces(self, spans: list[TextSpan]) -> Iterator[ExcerptPiece]:
        chars = end_bytes = 0
        for start, end in spans:
            start_bytes = end_bytes + _utf8_size(self.text[chars:start], self.surrogates)
            piece = self.text[start:end]
            end_bytes = start_bytes + _utf8_size(piece, self.surrogates)
            chars = end
            yield ExcerptPiece(start_bytes, end_bytes, self.displayable(piece))


def head_span(text: str, room: int) -> TextSpan:
    """Return the beginning of a text, cut at a line end if one is near."""
    line_end = text.rfind("\n", room // 2, room) + 1
    return TextSpan(0, line_end or room)


def tail_span(text: str, room: int) -> TextSpan:
    """Return the end of a text, cut at a line start if one is near."""
    start = len(text) - room
    line_start = text.find("\n", start, start + room // 2) + 1
    return TextSpan(line_start or start, len(text))


def region_span(text: str, at: int, room: int) -> TextSpan:
    """Return the span of some lines before the position and what follows it, cut at the end of a line where
    possible.
    """
    start = at
    for _ in range(_LINES_BEFORE):
        line_start = text.rfind("\n", max(0, at - room // 4), max(0, start - 1)) + 1
        if line_start == 0:
            break
        start = line_start
    stop = min(len(text), start + room)
    line_end = text.rfind("\n", at + room // 4, stop) + 1
    return TextSpan(start, line_end or stop)


def _merge_spans(spans: Iterable[TextSpan]) -> list[TextSpan]:
    merged: list[TextSpan] = []
    for span in sorted(spans):
        if merged and span.start - merged[-1].end < _MIN_GAP_CHARS:
            merged[-1] = TextSpan(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def _assemble(source: ExcerptSource, shown: Iterable[ExcerptPiece], around: str) -> Excerpt:
    pieces: list[str] = []
    ranges: list[tuple[int, int]] = []
    at = 0
    for start, end, text in shown:
        if start == end:
            continue
        if start > at:
            pieces.append(_gap_line(source, pieces, at, start))
        pieces.append(text)
        ranges.append((start, end))
        at = end
    if at < source.produced:
        pieces.append(_gap_line(source, pieces, at, source.produced).rstrip("\n"))
    shown_bytes = sum(end - start for start, end in ranges)
    return Excerpt(
        text="".join(pieces),
        produced=source.produced,
        shown=shown_bytes,
        omitted=source.produced - shown_bytes,
        around=around,
        ranges=tuple(ranges),
    )


def _gap_line(source: ExcerptSource, pieces: list[str], start: int, end: int) -> str:
    before = "\n" if pieces and not pieces[-1].endswith("\n") else ""
    return f"{before}{_marker(end - start, *source.places(start, end))}\n"


def _marker(size: int, start: int, end: int) -> str:
    return f"[... {size:,} bytes omitted (bytes {start:,}-{end:,}) ...]"


def _utf8_size(text: str, surrogates: _Surrogates) -> int:
    """Return the number of bytes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", surrogates))
