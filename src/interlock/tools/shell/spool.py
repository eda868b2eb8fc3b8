"""The spool of a command's output on disk: both streams, in order, redacted.

The bytes go through a filter for each stream and then into one file without a name, so nothing is left behind whatever
happens. What a filter withholds, such as a line that is not yet complete, comes when it is released: within a
stream nothing changes its place, and between the streams whole lines keep their order.
"""

import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Literal, NamedTuple, Self, TypeAlias

from ...domain.tool import ByteFilter
from ...rendering.escaping import output_lines
from ...sandbox.host.descriptors import write_all

OutputStream: TypeAlias = Literal["stdout", "stderr"]
STREAMS: tuple[OutputStream, OutputStream] = ("stdout", "stderr")
#: Even, so that every block begins with stdout.
_BLOCK_SEGMENTS = 8_192


class ByteRun(NamedTuple):
    """Consecutive bytes of one stream in the interleaving."""

    start: int
    size: int


class SpoolIndex:
    """The index of a spool: which bytes belong to which stream."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._last = array("Q")
        #: How many bytes of each stream come before a block.
        self._before: tuple[list[int], list[int]] = ([0], [0])
        self._sizes = [0, 0]

    def close(self) -> None:
        """Close the temporary file."""
        if self._file is not None:
            self._file.close()

    def bytes_in(self, stream: OutputStream) -> int:
        """Return the number of bytes of a stream."""
        return self._sizes[STREAMS.index(stream)]

    def add(self, stream: OutputStream, size: int) -> None:
        """Add the next bytes of this stream."""
        side = STREAMS.index(stream)
        last = len(self._last) - 1
        if last >= 0 and last % 2 == side:
            self._last[last] += size
        else:
            if len(self._last) == _BLOCK_SEGMENTS:
                self._spill()
            self._last.extend((size,) if len(self._last) % 2 == side else (0, size))
        self._sizes[side] += size

    def iterate_runs(self, stream: OutputStream, start: int, size: int) -> Iterator[ByteRun]:
        """Yield where these bytes of the stream are, in order."""
        side = STREAMS.index(stream)
        end = min(start + size, self._sizes[side])
        block = bisect_right(self._before[side], start) - 1
        at, before = self._before[0][block] + self._before[1][block], self._before[side][block]
        while before < end:
            for number, segment in enumerate(self._block(block)):
                if number % 2 == side:
                    first, last = max(start, before), min(end, before + segment)
                    if first < last:
                        yield ByteRun(at + first - before, last - first)
                    before += segment
                    if before >= end:
                        return
                at += segment
            block += 1

    def json_chunks(self) -> Iterator[bytes]:
        """Yield `{"streams":["stdout","stderr"],"lengths":[12,5,...]}`: the lengths of the segments, in turns."""
        yield b'{"streams":["stdout","stderr"],"lengths":['
        for number in range(len(self._before[0])):
            lengths = ",".join(map(str, self._block(number)))
            yield f"{',' if number and lengths else ''}{lengths}".encode()
        yield b"]}"

    def _block(self, number: int) -> "array[int]":
        if self._file is None or number == len(self._before[0]) - 1:
            return self._last
        block = array("Q")
        size = _BLOCK_SEGMENTS * block.itemsize
        block.frombytes(os.pread(self._file.fileno(), size, number * size))
        return block

    def _spill(self) -> None:
        if self._file is None:
            self._file = TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - `close` closes it
        write_all(self._file.fileno(), self._last.tobytes())
        self._last = array("Q")
        for side in (0, 1):
            self._before[side].append(self._sizes[side])


_CHUNK_BYTES = 256 * 1024
_MAX_LINE_CHARS = 200
#: Where the last lines are looked for.
_LAST_BYTES = 4_096


class OutputSpool:
    """Spools both streams of a command into one file."""

    def __init__(self, secrets_out: Callable[[], ByteFilter], folder: str | Path | None = None) -> None:
        self._filters: dict[OutputStream, ByteFilter] = {stream: secrets_out() for stream in STREAMS}
        self._index = SpoolIndex(folder)
        self._file = TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - `close` closes it
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the temporary files."""
        self._file.close()
        self._index.close()

    def write(self, stream: OutputStream, chunk: bytes) -> None:
        """Redact and write a chunk of a stream."""
        self._add(stream, self._filters[stream].feed(chunk))

    def finish(self) -> None:
        """Flush the filters; nothing more will come. Calling it twice is fine."""
        if not self._ended:
            self._ended = True
            for stream, secrets_out in self._filters.items():
                self._add(stream, secrets_out.end())

    @property
    def total_bytes(self) -> int:
        """Number of bytes of both streams."""
        return sum(map(self._index.bytes_in, STREAMS))

    def bytes_in(self, stream: OutputStream) -> int:
        """Return the number of bytes of a stream."""
        return self._index.bytes_in(stream)

    def read(self, stream: OutputStream, start: int, size: int) -> bytes:
        """Return bytes of one stream."""
        return b"".join(self._read_runs(self._index.iterate_runs(stream, start, size)))

    def read_all(self, start: int, size: int) -> bytes:
        """Return bytes of both streams as they came."""
        return os.pread(self._file.fileno(), size, start)

    def tail(self, size: int) -> bytes:
        """Read from the end of the output."""
        return self.read_all(max(0, self.total_bytes - size), size)

    def find_position(self, stream: OutputStream, at: int) -> int:
        """Return where the byte of the stream is in all of it."""
        return next(self._index.iterate_runs(stream, at, 1)).start

    def index_chunks(self) -> Iterator[bytes]:
        """Yield JSON that says which bytes belong to which stream."""
        return self._index.json_chunks()

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines that are not blank, at most so many, in a form that is safe for a terminal."""
        lines = [line for line in output_lines(self.tail(_LAST_BYTES).decode("utf-8", "replace")) if line]
        if self.total_bytes > _LAST_BYTES:
            lines = lines[1:] or lines  # The first one is cut.
        return [line[:_MAX_LINE_CHARS] for line in lines[-count:]]

    def _add(self, stream: OutputStream, content: bytes) -> None:
        if content:
            write_all(self._file.fileno(), content)
            self._index.add(stream, len(content))

    def _read_runs(self, runs: Iterator[ByteRun]) -> Iterator[bytes]:
        """Read runs; short ones that are near each other at once."""
        window, window_start = b"", 0
        for start, size in runs:
            if size >= _CHUNK_BYTES:
                yield self.read_all(start, size)
                continue
            if start + size > window_start + len(window):
                window, window_start = self.read_all(start, _CHUNK_BYTES), start
            yield window[start - window_start : start - window_start + size]
