"""What is shown of the output of a command.

When both streams have something to say, each has a section under its name; when one has, it stands alone, and where
there is no room for sections, both are shown as they came. Counts are bytes of the output without its secrets, so
`produced` is the size of the artifact, and markers name places in it. What is shown between two markers is an exact
slice of a stream, where each byte that is no UTF-8 is U+FFFD. Escape sequences are not taken out here: what the model
reads goes through `envelope.neutralize`, which makes them visible.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import msgspec

from ...rendering.excerpt import (
    CAUSE,
    LOOK_CHARS,
    MIN_EXCERPT_CHARS,
    SIGNS,
    TRACEBACK,
    Excerpt,
    Piece,
    Span,
    end_of_trace,
    excerpt_from,
    excerpt_of_bytes,
    first_sign,
    head_of,
    hint,
    near_line_start,
    region_of,
    shown_text,
    tail_of,
)
from .spool import STREAMS, Spool, Stream

_MAX_CHAR_BYTES = 4
_PART_BYTES = 256 * 1024
#: Room for what is looked at on both sides of a word.
_OVERLAP_BYTES = 4 * LOOK_CHARS * _MAX_CHAR_BYTES


class _Window(NamedTuple):
    """Some bytes of the output as text."""

    start: int
    text: str

    def byte(self, at: int) -> int:
        """The place in the output of a character of the text."""
        return self.start + _size(self.text[:at])

    def character(self, at: int) -> int:
        return len(_text(self.text.encode(errors="surrogateescape")[: at - self.start]))

    def span(self, span: Span) -> Span:
        return Span(self.byte(span.start), self.byte(span.end))


class LongOutput:
    """A `Source`."""

    def __init__(
        self, read: Callable[[int, int], bytes], produced: int, places: Callable[[int, int], Span], artifact_bytes: int
    ) -> None:
        self._read = read
        self._places = places
        self.produced = produced
        self.artifact_bytes = artifact_bytes
        self._failing, self._trace_end = self._scan()

    def places(self, start: int, end: int) -> Span:
        return self._places(start, end)

    def failing(self) -> int:
        return self._failing

    def trace_end(self) -> int:
        return self._trace_end

    def around(self, at: int) -> str:
        return shown_text(hint(self._window(at, at + LOOK_CHARS * 2 * _MAX_CHAR_BYTES).text, 0))

    def head(self, room: int) -> Span:
        window = self._window(0, _bytes(room))
        return window.span(head_of(window.text, room))

    def tail(self, room: int) -> Span:
        window = self._window(self.produced - _bytes(room), self.produced)
        return window.span(tail_of(window.text, room))

    def last(self, room: int) -> Span:
        window = self._window(self.produced - _bytes(room), self.produced)
        return Span(window.byte(len(window.text) - room), self.produced)

    def ahead(self, at: int, room: int) -> Span:
        window = self._window(at, at + _bytes(room))
        return Span(at, window.byte(room))

    def region(self, at: int, room: int) -> Span:
        window = self._window(at - _bytes(room), at + _bytes(room))
        return window.span(region_of(window.text, window.character(at), room))

    def pieces(self, spans: list[Span]) -> Iterator[Piece]:
        for start, end in spans:
            yield Piece(start, end, shown_text(self._window(start, end).text))

    def _window(self, start: int, end: int) -> _Window:
        start = max(0, start)
        return _Window(start, _text(self._read(start, end - start)))

    def _scan(self) -> tuple[int, int]:
        """Where the first failing line is, and where the last traceback ends."""
        signs = [-1, -1]
        cause = trace = -1
        for part in self._parts():
            for sureness, words in enumerate(SIGNS):
                if signs[0] < 0 and signs[sureness] < 0:
                    signs[sureness] = self._first_sign(part, words)
            cause = _last(part, CAUSE, cause)
            trace = _last(part, TRACEBACK, trace)
        first = next((at for at in signs if at >= 0), -1)
        return self._line_start(first), max(cause, self._end_of_trace(trace))

    def _parts(self) -> Iterator[_Window]:
        for start in range(0, self.produced, _PART_BYTES):
            yield self._window(start - _OVERLAP_BYTES, start + _PART_BYTES)

    def _first_sign(self, part: _Window, words: tuple[str, ...]) -> int:
        """Not where its surroundings are cut off: the part before or after has them."""
        size = len(part.text)
        is_last = part.start + _size(part.text) >= self.produced
        start = LOOK_CHARS if part.start else 0
        at = first_sign(part.text, words, start, size if is_last else size - LOOK_CHARS)
        return -1 if at < 0 else part.byte(at)

    def _line_start(self, at: int) -> int:
        if at < 0:
            return -1
        window = self._window(at - LOOK_CHARS * _MAX_CHAR_BYTES, at)
        return window.byte(near_line_start(window.text, len(window.text)))

    def _end_of_trace(self, start: int) -> int:
        """After the first line break that an unindented line follows."""
        while 0 <= start < self.produced:
            window = self._window(start, start + _PART_BYTES)
            found = end_of_trace(window.text)
            if found is not None:
                return window.byte(found.end())
            start += _PART_BYTES - 1
        return -1


def _last(part: _Window, word: str, before: int) -> int:
    at = part.text.rfind(word)
    return before if at < 0 else part.byte(at)


def _bytes(room: int) -> int:
    """Enough for so many characters, and one that is cut at each end."""
    return (room + 2) * _MAX_CHAR_BYTES


def _text(content: bytes) -> str:
    return content.decode(errors="surrogateescape")


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogateescape"))


__all__ = ("OutputExcerpt", "Spool", "Stream", "excerpt")

#: What is held in memory to be cut.
_MAX_WHOLE_BYTES = 2**20
_NAMES: dict[Stream, str] = {stream: f"[{stream}]\n" for stream in STREAMS}


class OutputExcerpt(Excerpt, frozen=True, kw_only=True):
    """With two sections, the `ranges` are in the sections: they are of one stream."""

    sections: tuple[tuple[Stream, Excerpt], ...] = ()


def excerpt(spool: Spool, max_chars: int) -> OutputExcerpt:
    """All of the output when it fits, else an excerpt of at most that many characters, names and markers included."""
    room = max_chars - sum(map(len, _NAMES.values())) - 1
    if not all(map(spool.bytes_in, STREAMS)) or room < 2 * MIN_EXCERPT_CHARS:
        return OutputExcerpt(**msgspec.structs.asdict(_part_of(spool).cut(max_chars)))
    stdout, stderr = (_part_of(spool, stream) for stream in STREAMS)
    stdout_room = min(stdout.chars, max(room // 2, room - stderr.chars))
    return _joined({"stdout": stdout.cut(stdout_room), "stderr": stderr.cut(room - stdout_room)})


class _Part(NamedTuple):
    """A stream, or both."""

    read: Callable[[int, int], bytes]
    size: int
    #: Where bytes of it are in the artifact.
    places: Callable[[int, int], Span]
    artifact_bytes: int

    @property
    def chars(self) -> int:
        """Its characters, or more where it is so long that it does not matter."""
        return (
            self.size if self.size > _MAX_WHOLE_BYTES else len(self.read(0, self.size).decode(errors="surrogateescape"))
        )

    def cut(self, max_chars: int) -> Excerpt:
        if self.size > max(_MAX_WHOLE_BYTES, 4 * max_chars):
            return excerpt_from(LongOutput(*self), max_chars)
        content = self.read(0, self.size)
        return excerpt_of_bytes(content, max_chars, places=self.places, artifact_bytes=self.artifact_bytes)


def _part_of(spool: Spool, stream: Stream | None = None) -> _Part:
    if stream is None:
        return _Part(spool.read_all, spool.total_bytes, Span, spool.total_bytes)

    def places(start: int, end: int) -> Span:
        return Span(spool.place(stream, start), spool.place(stream, end - 1) + 1)

    return _Part(partial(spool.read, stream), spool.bytes_in(stream), places, spool.total_bytes)


def _joined(parts: dict[Stream, Excerpt]) -> OutputExcerpt:
    text = ""
    for stream, part in parts.items():
        text += ("\n" if text and not text.endswith("\n") else "") + _NAMES[stream] + part.text
    return OutputExcerpt(
        text=text,
        produced=sum(part.produced for part in parts.values()),
        shown=sum(part.shown for part in parts.values()),
        omitted=sum(part.omitted for part in parts.values()),
        around=next((part.around for part in parts.values() if part.around), ""),
        ranges=(),
        sections=tuple(parts.items()),
    )
