"""Excerpts of the output of a command.

When both streams have something to say, each has a section under its name; when one has, it stands alone, and where
there is no room for sections, both are shown as they came. Counts are bytes of the output without its secrets, so
`produced` is the size of the artifact, and markers name places in it. What is shown between two markers is an exact
slice of a stream, where each byte that is no UTF-8 is U+FFFD. Escape sequences are not taken out here: what the model
reads goes through `rendering.neutralize`, which makes them visible.
"""

from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from typing import NamedTuple

import msgspec

from ...domain.file_kind import detect_file_kind
from ...rendering.binary import format_binary, is_binary
from ...rendering.excerpt import (
    CAUSED_BY,
    CONTEXT_CHARS,
    FAILURE_WORDS,
    MIN_EXCERPT_CHARS,
    TRACEBACK,
    Excerpt,
    ExcerptPiece,
    TextSpan,
    build_excerpt,
    build_search_hint,
    excerpt_bytes,
    find_first_word,
    find_near_line_start,
    find_trace_end,
    head_span,
    region_span,
    replace_surrogates,
    tail_span,
)
from .spool import STREAMS, OutputSpool, OutputStream

_MAX_CHAR_BYTES = 4
_PART_BYTES = 256 * 1024
#: Room for what is looked at on both sides of a word.
_OVERLAP_BYTES = 4 * CONTEXT_CHARS * _MAX_CHAR_BYTES


class _TextWindow(NamedTuple):
    """Some bytes of the output as text."""

    start: int
    text: str

    def byte(self, at: int) -> int:
        """Return the position in the output of a character of the text."""
        return self.start + _count_bytes(self.text[:at])

    def character(self, at: int) -> int:
        return len(_decode(self.text.encode(errors="surrogateescape")[: at - self.start]))

    def span(self, span: TextSpan) -> TextSpan:
        return TextSpan(self.byte(span.start), self.byte(span.end))


class LongOutput:
    """A spooled output as a source of excerpts."""

    def __init__(
        self,
        read: Callable[[int, int], bytes],
        produced: int,
        places: Callable[[int, int], TextSpan],
        artifact_bytes: int,
    ) -> None:
        self._read = read
        self._places = places
        self.produced = produced
        self.artifact_bytes = artifact_bytes
        self._failing, self._trace_end = self._scan()

    def places(self, start: int, end: int) -> TextSpan:
        """Return where the artifact has these bytes."""
        return self._places(start, end)

    def failing(self) -> int:
        """Return the position of the first failing line; -1 without any."""
        return self._failing

    def trace_end(self) -> int:
        """Return where the last traceback ends; -1 without any."""
        return self._trace_end

    def around(self, at: int) -> str:
        """Return what to look for to find the position."""
        return replace_surrogates(build_search_hint(self._window(at, at + CONTEXT_CHARS * 2 * _MAX_CHAR_BYTES).text, 0))

    def head(self, room: int) -> TextSpan:
        """Return the beginning, cut at a line end if one is near."""
        window = self._window(0, _estimate_bytes(room))
        return window.span(head_span(window.text, room))

    def tail(self, room: int) -> TextSpan:
        """Return the end, cut at a line start if one is near."""
        window = self._window(self.produced - _estimate_bytes(room), self.produced)
        return window.span(tail_span(window.text, room))

    def last(self, room: int) -> TextSpan:
        """Return exactly so many characters at the end."""
        window = self._window(self.produced - _estimate_bytes(room), self.produced)
        return TextSpan(window.byte(len(window.text) - room), self.produced)

    def ahead(self, at: int, room: int) -> TextSpan:
        """Return what follows the position."""
        window = self._window(at, at + _estimate_bytes(room))
        return TextSpan(at, window.byte(room))

    def region(self, at: int, room: int) -> TextSpan:
        """Return some lines before the position and what follows it."""
        window = self._window(at - _estimate_bytes(room), at + _estimate_bytes(room))
        return window.span(region_span(window.text, window.character(at), room))

    def pieces(self, spans: list[TextSpan]) -> Iterator[ExcerptPiece]:
        """Read the spans as text."""
        for start, end in spans:
            yield ExcerptPiece(start, end, replace_surrogates(self._window(start, end).text))

    def _window(self, start: int, end: int) -> _TextWindow:
        start = max(0, start)
        return _TextWindow(start, _decode(self._read(start, end - start)))

    def _scan(self) -> tuple[int, int]:
        """Find the first failing line and the end of the last traceback."""
        signs = [-1, -1]
        cause = trace = -1
        for part in self._parts():
            for sureness, words in enumerate(FAILURE_WORDS):
                if signs[0] < 0 and signs[sureness] < 0:
                    signs[sureness] = self._first_sign(part, words)
            cause = _find_last(part, CAUSED_BY, cause)
            trace = _find_last(part, TRACEBACK, trace)
        first = next((at for at in signs if at >= 0), -1)
        return self._line_start(first), max(cause, self._end_of_trace(trace))

    def _parts(self) -> Iterator[_TextWindow]:
        for start in range(0, self.produced, _PART_BYTES):
            yield self._window(start - _OVERLAP_BYTES, start + _PART_BYTES)

    def _first_sign(self, part: _TextWindow, words: tuple[str, ...]) -> int:
        """Find the first sign of failure. Skip the edges of the part: its neighbours contain their context."""
        size = len(part.text)
        is_last = part.start + _count_bytes(part.text) >= self.produced
        start = CONTEXT_CHARS if part.start else 0
        at = find_first_word(part.text, words, start, size if is_last else size - CONTEXT_CHARS)
        return -1 if at < 0 else part.byte(at)

    def _line_start(self, at: int) -> int:
        if at < 0:
            return -1
        window = self._window(at - CONTEXT_CHARS * _MAX_CHAR_BYTES, at)
        return window.byte(find_near_line_start(window.text, len(window.text)))

    def _end_of_trace(self, start: int) -> int:
        """Return the position after the first line break that is followed by an unindented line; -1 without one."""
        while 0 <= start < self.produced:
            window = self._window(start, start + _PART_BYTES)
            found = find_trace_end(window.text)
            if found is not None:
                return window.byte(found.end())
            start += _PART_BYTES - 1
        return -1


def _find_last(part: _TextWindow, word: str, before: int) -> int:
    at = part.text.rfind(word)
    return before if at < 0 else part.byte(at)


def _estimate_bytes(room: int) -> int:
    """Return enough bytes for so many characters, and a cut one at each end."""
    return (room + 2) * _MAX_CHAR_BYTES


def _decode(content: bytes) -> str:
    return content.decode(errors="surrogateescape")


def _count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogateescape"))


#: What is held in memory to be cut.
_MAX_WHOLE_BYTES = 2**20
#: Of each end, so much is looked at to know whether it is text.
_SAMPLE_BYTES = 32 * 1024
_SECTION_TITLES: dict[OutputStream, str] = {stream: f"[{stream}]\n" for stream in STREAMS}


class OutputExcerpt(Excerpt, frozen=True, kw_only=True):
    """An excerpt of an output. With two sections, the `ranges` are relative to their streams."""

    sections: tuple[tuple[OutputStream, Excerpt], ...] = ()


def make_excerpt(spool: OutputSpool, max_chars: int) -> OutputExcerpt:
    """Return all of the output when it fits, else an excerpt of at most that many characters, names and markers
    included.
    """
    room = max_chars - sum(map(len, _SECTION_TITLES.values())) - 1
    if not all(map(spool.bytes_in, STREAMS)) or room < 2 * MIN_EXCERPT_CHARS:
        return OutputExcerpt(**msgspec.structs.asdict(_make_part(spool).cut(max_chars)))
    stdout, stderr = (_make_part(spool, stream) for stream in STREAMS)
    stdout_room = min(stdout.chars, max(room // 2, room - stderr.chars))
    return _join_sections({"stdout": stdout.cut(stdout_room), "stderr": stderr.cut(room - stdout_room)})


class _StreamPart(NamedTuple):
    """A stream, or both."""

    read: Callable[[int, int], bytes]
    size: int
    #: Where bytes of it are in the artifact.
    places: Callable[[int, int], TextSpan]
    artifact_bytes: int

    @property
    def chars(self) -> int:
        """Its characters, or more where it is so long that it does not matter."""
        return (
            self.size if self.size > _MAX_WHOLE_BYTES else len(self.read(0, self.size).decode(errors="surrogateescape"))
        )

    def cut(self, max_chars: int) -> Excerpt:
        ends = self.read(0, _SAMPLE_BYTES) + self.read(max(_SAMPLE_BYTES, self.size - _SAMPLE_BYTES), _SAMPLE_BYTES)
        if max_chars >= MIN_EXCERPT_CHARS and is_binary(ends):
            text = format_binary(self.size, detect_file_kind(ends), self._compute_digest())
            return Excerpt(text=text, produced=self.size, shown=0, omitted=self.size, around="", ranges=())
        if self.size > max(_MAX_WHOLE_BYTES, 4 * max_chars):
            return build_excerpt(LongOutput(*self), max_chars)
        content = self.read(0, self.size)
        return excerpt_bytes(content, max_chars, places=self.places, artifact_bytes=self.artifact_bytes)

    def _compute_digest(self) -> str:
        digest = sha256()
        for start in range(0, self.size, _PART_BYTES):
            digest.update(self.read(start, min(_PART_BYTES, self.size - start)))
        return digest.hexdigest()


def _make_part(spool: OutputSpool, stream: OutputStream | None = None) -> _StreamPart:
    if stream is None:
        return _StreamPart(spool.read_all, spool.total_bytes, TextSpan, spool.total_bytes)

    def places(start: int, end: int) -> TextSpan:
        return TextSpan(spool.find_position(stream, start), spool.find_position(stream, end - 1) + 1)

    return _StreamPart(partial(spool.read, stream), spool.bytes_in(stream), places, spool.total_bytes)


def _join_sections(parts: dict[OutputStream, Excerpt]) -> OutputExcerpt:
    text = ""
    for stream, part in parts.items():
        text += ("\n" if text and not text.endswith("\n") else "") + _SECTION_TITLES[stream] + part.text
    return OutputExcerpt(
        text=text,
        produced=sum(part.produced for part in parts.values()),
        shown=sum(part.shown for part in parts.values()),
        omitted=sum(part.omitted for part in parts.values()),
        around=next((part.around for part in parts.values() if part.around), ""),
        ranges=(),
        sections=tuple(parts.items()),
    )
