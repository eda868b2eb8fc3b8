"""A search in files, from the query to the page that is shown.

ripgrep uses all cores, so files come in any order. What it finds is sorted by path here, so that reading on from
`offset` gives everything once. Where there is too much for that, it is asked again in the order of paths, which takes
longer by file but ends with the page. Then the total is unknown: "at least" what was counted.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec
from pydantic import BaseModel, Field

from .glob_pattern import MAX_PATTERN_CHARS
from .ripgrep import (
    TOO_MUCH_REASONS,
    ClosedPaths,
    Ripgrep,
    build_name_options,
    build_search_options,
    make_unfinished_error,
)
from .search_output import (
    MAX_OFFSET,
    CountReader,
    MatchReader,
    NameReader,
    Page,
    build_line_page,
    build_match_page,
    display_name,
    find_suspects,
)
from .search_root import SearchRoot

OutputMode: TypeAlias = Literal["content", "files", "count"]

_Reader: TypeAlias = MatchReader | CountReader | NameReader

MAX_REGEX_CHARS = 4_000
MAX_CONTEXT = 10
DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000
#: More lines than this are not counted.
MAX_COUNTED = 50_000
MAX_TEXT_CHARS = 30_000
_MODE_OPTIONS: dict[OutputMode, tuple[str, ...]] = {
    "content": ("--line-number", "--column", "--with-filename", "--no-heading", "--no-context-separator", "--binary"),
    "files": ("--files-with-matches", "--binary"),
    "count": ("--count", "--with-filename", "--binary"),
}


class Query(BaseModel, frozen=True):
    """The arguments of `grep`."""

    pattern: str = Field(min_length=1, max_length=MAX_REGEX_CHARS)
    path: str = "."
    glob: str = Field(default="", max_length=MAX_PATTERN_CHARS)
    output: OutputMode = "content"
    context: int = Field(default=0, ge=0, le=MAX_CONTEXT)
    case_insensitive: bool = False
    literal: bool = False
    multiline: bool = False
    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)
    offset: int = Field(default=0, ge=0, le=MAX_OFFSET)


class SearchMatches(msgspec.Struct, frozen=True, kw_only=True):
    """The matches, and the page of them that is shown."""

    query: Query
    page: Page = Page("", 0)
    #: Lines that match, in all; 0 where only files were looked for.
    lines: int = 0
    files: int = 0
    #: Binary files that match: only named.
    binary: tuple[str, ...] = ()
    #: Files and folders that were left out, since they are closed to tools.
    closed: int = 0
    unreadable: int = 0
    #: Empty when all was seen, else a key of `ripgrep.STOP_REASONS`.
    stopped: str = ""
    #: Why ignore files were not obeyed; empty when they were.
    why_all: str = ""

    @property
    def total(self) -> int:
        """The number of lines or files, whichever is shown."""
        return self.lines if self.query.output == "content" else self.files

    @property
    def next_offset(self) -> int | None:
        """Offset of the next page, or None at the end."""
        after = self.query.offset + self.page.returned
        return after if self.page.returned and (after < self.total or self.stopped) else None


async def run_search(ripgrep: Ripgrep, query: Query, place: SearchRoot) -> SearchMatches:
    """Search with ripgrep and leave out what policy closes."""
    if place.is_missing:
        return SearchMatches(query=query)
    options = _build_options(query, place)
    reader, status = await ripgrep.run(options, place.relative, lambda: _make_reader(query, MAX_COUNTED))
    counts = reader.counts()
    candidates = place.filter_paths(list(counts))
    suspects = reader.suspects if isinstance(reader, NameReader) else find_suspects(b"\0".join(candidates))
    allowed = status.closed.filter_open(candidates, suspects)
    order, source = sorted(allowed), reader
    binary = _list_binary_files(reader, place, status.closed)
    if status.stopped in TOO_MUCH_REASONS:
        wanted = query.offset + query.limit
        source, _ = await ripgrep.run((*options, "--sort=path"), place.relative, lambda: _make_reader(query, wanted))
        order = place.filter_paths(list(source.counts()))
    elif status.stopped and not allowed and not binary:
        raise make_unfinished_error(status.stopped)
    return SearchMatches(
        query=query,
        page=_build_page(query, source, (path for path in order if not status.closed.is_closed(path))),
        lines=sum(counts[path] for path in allowed),
        files=len(allowed),
        binary=binary,
        closed=status.closed.count_below(place.relative) + len(candidates) - len(allowed),
        unreadable=status.unreadable,
        stopped=status.stopped,
        why_all=status.why_all(),
    )


def _build_options(query: Query, place: SearchRoot) -> tuple[str, ...]:
    words = build_search_options(
        query.pattern, literal=query.literal, multiline=query.multiline, case_insensitive=query.case_insensitive
    )
    context = (f"--context={query.context}",) if query.context and query.output == "content" else ()
    return (*_MODE_OPTIONS[query.output], *context, *build_name_options(place.pattern), *words)


def _make_reader(query: Query, wanted: int) -> _Reader:
    match query.output:
        case "content":
            return MatchReader(wanted, with_context=query.context > 0)
        case "count":
            return CountReader()
        case "files":
            return NameReader()


def _build_page(query: Query, reader: _Reader, paths: Iterable[bytes]) -> Page:
    first, limit = query.offset, query.limit
    match reader:
        case MatchReader():
            files = ((path, reader.lines[path]) for path in paths)
            return build_match_page(files, first, limit, query.context, MAX_TEXT_CHARS)
        case CountReader():
            counts = reader.counts()
            return build_line_page(
                (f"{display_name(path)}: {counts[path]}" for path in paths), first, limit, MAX_TEXT_CHARS
            )
        case NameReader():
            return build_line_page(map(display_name, paths), first, limit, MAX_TEXT_CHARS)


def _list_binary_files(reader: _Reader, place: SearchRoot, closed: ClosedPaths) -> tuple[str, ...]:
    if not isinstance(reader, MatchReader):
        return ()
    return tuple(display_name(path) for path in place.filter_paths(sorted(reader.binary)) if not closed.is_closed(path))
