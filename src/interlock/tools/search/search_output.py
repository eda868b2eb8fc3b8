r"""Parses the output of ripgrep as it comes, and formats pages of it.

With `--null` each found line is `path NUL number:column:text`, or `path NUL number-text` for a line around it. Of a
binary file there is only `path: binary file matches (...)`. A path may hold newlines; then it comes in several lines,
and the NUL shows where it ends. So what looks like the line of a binary file is one only if another path or nothing
follows. Paths stay as they come, bytes that begin with `./`, until they are shown.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple

#: More than any search finds.
MAX_OFFSET = 1_000_000_000
#: What is kept of one line while searching, and what is shown of it.
_MAX_KEPT_BYTES = 2_000
_MAX_SHOWN_BYTES = 400
#: A line longer than this is read no further.
_MAX_LINE_BYTES = 4 << 20
#: To find the first of so many times as many is faster than to sort them all.
_MIN_SPARED = 50
#: Between lines that do not follow each other.
_GAP = "--"
_CUT = "…"
_MARK = _CUT.encode()

_binary_file = re.compile(rb"(.+): binary file matches \(found .{1,8} byte around offset \d+\)\n", re.DOTALL).fullmatch
_found_line = re.compile(rb"\d+:").match
#: Line number, `:` or `-`, and the column of a line that was found.
_line_start = re.compile(rb"(\d+)(?::(\d+):|-)").match
#: Half characters where a line was cut.
_split_character = re.compile(f"{_CUT}\ufffd+|\ufffd+{_CUT}")


class EnoughOutputError(Exception):
    """Raised by the reader of an output: the rest is not wanted."""


class MatchReader:
    """Collects matches by file. Raises `EnoughOutputError` when there are more than wanted."""

    def __init__(self, wanted: int, *, with_context: bool) -> None:
        self.lines: defaultdict[bytes, list[bytes]] = defaultdict(list)
        self._binary: set[bytes] = set()
        self._found = 0
        self._wanted = wanted
        self._with_context = with_context
        self._rest = b""
        #: The lines of a path that are already there, or the line of a binary file.
        self._path = b""
        self._skipping = False

    def feed(self, chunk: bytes) -> None:
        """Add output of ripgrep and parse complete lines."""
        if self._skipping:
            _, newline, chunk = chunk.partition(b"\n")
            self._skipping = not newline
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._read(line)
        if len(self._rest) > _MAX_LINE_BYTES:
            self._read(self._rest + _MARK)
            self._rest, self._skipping = b"", True
        if self._found > self._wanted:
            raise EnoughOutputError

    @property
    def binary(self) -> set[bytes]:
        """Files that match, and of which no lines are shown."""
        last = _binary_file(self._path)
        return self._binary | {last[1]} if last else self._binary

    def counts(self) -> dict[bytes, int]:
        """Return how many lines were found in each file."""
        if not self._with_context:
            return {path: len(lines) for path, lines in self.lines.items()}
        return {path: sum(_found_line(line) is not None for line in lines) for path, lines in self.lines.items()}

    def _read(self, line: bytes) -> None:
        if self._path and line.startswith(b"./") and (binary := _binary_file(self._path)):
            self._binary.add(binary[1])
            self._path = b""
        path, nul, text = line.partition(b"\0")
        if self._path:
            path, self._path = self._path + path, b""
        if nul:
            self.lines[path].append(text if len(text) <= _MAX_KEPT_BYTES else truncate_line(text, _MAX_KEPT_BYTES))
            self._found += not self._with_context or _found_line(text) is not None
        else:
            self._path = path + b"\n"


class NameReader:
    """Reader of `path NUL path NUL ...`. The sandbox bounds the size."""

    def __init__(self) -> None:
        #: Without an unfinished one.
        self.names: list[bytes] = []
        #: Those of the names that may be closed to tools by their names.
        self.suspects: list[bytes] = []
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """Add output of ripgrep and split it, while the search continues."""
        text = self._rest + chunk
        end = text.rfind(b"\0")
        self._rest = text[end + 1 :]
        if end >= 0:
            finished = text[:end]
            self.names += finished.split(b"\0")
            self.suspects += find_suspects(finished)

    def counts(self) -> dict[bytes, int]:
        """Return the found names without counts."""
        return dict.fromkeys(self.names, 0)


def find_suspects(names: bytes) -> Iterator[bytes]:
    """Yield those of the names between NULs that may be names of secrets: a part of them begins with a dot, or they are
    not ASCII. They are few among many.
    """
    at = names.find(b"/.")
    while at >= 0:
        start, end = names.rfind(b"\0", 0, at) + 1, names.find(b"\0", at)
        yield names[start : end if end >= 0 else None]
        at = names.find(b"/.", end) if end >= 0 else -1
    if not names.isascii():
        yield from (name for name in names.split(b"\0") if not name.isascii())


class CountReader:
    """`path NUL count newline path NUL ...`."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def feed(self, chunk: bytes) -> None:
        """Add output of ripgrep."""
        self._chunks.append(chunk)

    def counts(self) -> dict[bytes, int]:
        """Return the number of matches in each file."""
        path, *rest = b"".join(self._chunks).split(b"\0")
        counts: dict[bytes, int] = {}
        for piece in rest:
            count, newline, following = piece.partition(b"\n")
            if newline:
                counts[path] = int(count)
            path = following
        return counts


def iterate_sorted(paths: list[bytes], wanted: int) -> Iterator[bytes]:
    """Yield paths in order. Of very many, only the first `wanted` are sorted; the others when they are asked for."""
    if wanted * _MIN_SPARED < len(paths):
        yield from (first := nsmallest(wanted, paths))
        paths = [path for path in paths if path > first[-1]]
    yield from sorted(paths)


class Page(NamedTuple):
    """One page of results."""

    text: str
    #: How many found lines are in it.
    returned: int


class _PageBuilder:
    """Lines for a page: as many items as wanted and as fit, but one at least."""

    def __init__(self, wanted: int, chars: int) -> None:
        self.lines: list[str] = []
        self.returned = 0
        self._wanted = wanted
        self._chars = chars

    def add(self, block: Sequence[str]) -> bool:
        """Add a block. Return False if the page is full."""
        self._chars -= sum(map(len, block)) + len(block)
        if self.returned == self._wanted or (self._chars < 0 and self.returned):
            return False
        self.lines += block
        self.returned += 1
        return True

    def build(self) -> Page:
        return Page("\n".join(self.lines), self.returned)


def build_line_page(lines: Iterable[str], first: int, limit: int, room_chars: int) -> Page:
    """Build a page from lines, within both limits."""
    builder = _PageBuilder(limit, room_chars)
    for line in islice(lines, first, None):
        if not builder.add([line]):
            break
    return builder.build()


def describe_page(offset: int, returned: int, total: int) -> str:
    """Return which of all results a page shows."""
    if not returned:
        return f"none after the first {offset:,}"
    if returned == total:
        return "all shown"
    return f"{offset + 1:,} to {offset + returned:,} shown"


def build_match_page(
    files: Iterable[tuple[bytes, Sequence[bytes]]], first: int, limit: int, context: int, room_chars: int
) -> Page:
    """Return the found lines from `first` on, with the lines around them."""
    builder = _PageBuilder(limit, room_chars)
    for path, lines in files:
        found = [at for at, line in enumerate(lines) if _found_line(line)]
        free = 0
        for at in found[first:]:
            start, end = _find_context_range(lines, at, context, free)
            block = [format_line(path, line) for line in lines[start:end]]
            if context and builder.lines and not _is_adjacent(lines, start, free):
                block.insert(0, _GAP)
            if not builder.add(block):
                return builder.build()
            free = end
        first = max(0, first - len(found))
    return builder.build()


def _find_context_range(lines: Sequence[bytes], at: int, context: int, free: int) -> tuple[int, int]:
    """Return the range of context lines around a match: not into other matches, nor before `free`."""
    number = _parse_line_number(lines[at])
    start, end = at, at + 1
    while (
        start > free and not _found_line(lines[start - 1]) and _parse_line_number(lines[start - 1]) >= number - context
    ):
        start -= 1
    while end < len(lines) and not _found_line(lines[end]) and _parse_line_number(lines[end]) <= number + context:
        end += 1
    return start, end


def _is_adjacent(lines: Sequence[bytes], start: int, free: int) -> bool:
    """Return True if a line follows those that are shown."""
    return 0 < start == free and _parse_line_number(lines[start]) == _parse_line_number(lines[start - 1]) + 1


def _parse_line_number(line: bytes) -> int:
    start = _line_start(line)
    return int(start[1]) if start else 0


def format_line(path: bytes, line: bytes) -> str:
    """Return `path:number: text`, with dashes for context lines."""
    line = truncate_line(line, _MAX_SHOWN_BYTES)
    start = _line_start(line)
    if start is None:
        return display_name(path)
    mark = ":" if start[2] else "-"
    text = line[start.end() :].removesuffix(b"\r").decode(errors="replace")
    return f"{display_name(path)}{mark}{start[1].decode()}{mark} {_split_character.sub(_CUT, text)}"


def truncate_line(line: bytes, room: int) -> bytes:
    """Return a long line cut around the match, with a mark on each side that is missing."""
    start = _line_start(line)
    if start is None or len(line) - start.end() <= room:
        return line
    text = line[start.end() :]
    place = int(start[2] or 1) - 1
    begin = max(0, min(place - room // 4, len(text) - room))
    before = _MARK if begin else b""
    after = _MARK if begin + room < len(text) else b""
    kept = before + text[begin : begin + room] + after
    if not start[2]:
        return start[0] + kept
    return b"%b:%d:%b" % (start[1], place - begin + len(before) + 1, kept)


def display_name(path: bytes) -> str:
    r"""Return a path on one line. What is not text is quoted: `"a\\nb"`, `"\\xff"`."""
    text = os.fsdecode(path).removeprefix("./")
    if text.isprintable():
        return text
    escaped = "".join(letter if letter.isprintable() else _escape(letter) for letter in text)
    return f'"{escaped}"'


def _escape(letter: str) -> str:
    # Bytes that are no UTF-8 come as half characters.
    return f"\\x{ord(letter) - 0xDC00:02x}" if 0xDC80 <= ord(letter) <= 0xDCFF else ascii(letter)[1:-1]  # noqa: PLR2004
