"""Which bytes of an interleaved output are of which stream: the lengths of its segments, in turns, stdout first.

A command that writes to both streams in turns makes millions of segments, so only the last ones are in memory. The
others are in a file without a name, and of every block of them it is known where it starts.
"""

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Literal, NamedTuple, TypeAlias

Stream: TypeAlias = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, Stream] = ("stdout", "stderr")
#: Even, so that every block begins with stdout.
_BLOCK_SEGMENTS = 8_192


class Run(NamedTuple):
    """Bytes of one stream that stand together in the interleaving."""

    start: int
    size: int


class SpoolIndex:
    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._last = array("Q")
        #: How many bytes of each stream come before a block.
        self._before: tuple[list[int], list[int]] = ([0], [0])
        self._sizes = [0, 0]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def bytes_in(self, stream: Stream) -> int:
        return self._sizes[STREAMS.index(stream)]

    def add(self, stream: Stream, size: int) -> None:
        """The next bytes are of this stream."""
        side = STREAMS.index(stream)
        last = len(self._last) - 1
        if last >= 0 and last % 2 == side:
            self._last[last] += size
        else:
            if len(self._last) == _BLOCK_SEGMENTS:
                self._spill()
            self._last.extend((size,) if len(self._last) % 2 == side else (0, size))
        self._sizes[side] += size

    def runs(self, stream: Stream, start: int, size: int) -> Iterator[Run]:
        """Where these bytes of the stream are, in order."""
        side = STREAMS.index(stream)
        end = min(start + size, self._sizes[side])
        block = bisect_right(self._before[side], start) - 1
        at, before = self._before[0][block] + self._before[1][block], self._before[side][block]
        while before < end:
            for number, segment in enumerate(self._block(block)):
                if number % 2 == side:
                    first, last = max(start, before), min(end, before + segment)
                    if first < last:
                        yield Run(at + first - before, last - first)
                    before += segment
                    if before >= end:
                        return
                at += segment
            block += 1

    def json_chunks(self) -> Iterator[bytes]:
        """`{"streams":["stdout","stderr"],"lengths":[12,5,...]}`: the lengths of the segments, in turns."""
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


def write_all(file: int, content: bytes) -> None:
    """At the end of what was written before. `OSError` when there is no room."""
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
