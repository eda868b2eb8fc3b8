"""What is shown of the output of a command.

When both streams have something to say, each has a section under its name; when one has, it stands alone, and where
there is no room for sections, both are shown as they came. Counts are bytes of the output without its secrets, so
`produced` is the size of the artifact, and markers name places in it. What is shown between two markers is an exact
slice of a stream, where each byte that is no UTF-8 is U+FFFD. Escape sequences are not taken out here: what the model
reads goes through `envelope.neutralize`, which makes them visible.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from ..rendering.excerpt import MIN_EXCERPT_CHARS, Excerpt, Span, excerpt_from, excerpt_of_bytes
from .long_output import LongOutput
from .spool import Spool
from .spool_index import STREAMS, Stream

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
