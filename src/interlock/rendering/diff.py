r"""Unified diffs of two texts, with exact counts.

Lines that are unique in both texts and come in the same order are what they have in common; between them the same is
looked for again. That takes about as long as the texts are, whatever is in them, where the usual search for the
smallest difference can be made to take the square of it.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

import msgspec

CONTEXT_LINES = 3
_MAX_DEPTH = 8
_NO_NEWLINE = "\\ No newline at end of file\n"

TextLines: TypeAlias = Sequence[str]


class ChangedBlock(NamedTuple):
    """Lines `old_start` to before `old_end` became lines `new_start` to before `new_end`; the first line is 0."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


class Hunk(NamedTuple):
    """A place in a diff: some blocks and the lines around them. The first line is 1, as in the diff."""

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    blocks: tuple[ChangedBlock, ...]


class Diff(msgspec.Struct, frozen=True):
    """A unified diff with its counts."""

    hunks: tuple[Hunk, ...]
    added: int
    removed: int
    #: All of it.
    text: str

    @property
    def counts(self) -> str:
        """Added and removed lines, as `+1 -2`."""
        return f"+{self.added:,} -{self.removed:,}"


class DiffExcerpt(NamedTuple):
    """A truncated diff, and how much of it is shown."""

    text: str
    #: In bytes of UTF-8: what is shown, and what of the diff is not.
    shown: int
    omitted: int


def make_unified_diff(old: str | None, new: str, path: str) -> Diff:
    """Return the diff from the old text to the new. None: there was no file."""
    before, after = split_lines(old or ""), split_lines(new)
    blocks = list(find_changed_blocks(before, after))
    hunks = tuple(_group_hunks(blocks, len(before), len(after)))
    header = f"--- {'/dev/null' if old is None else _quote_name(f'a/{path}')}\n+++ {_quote_name(f'b/{path}')}\n"
    pieces = chain((header,), chain.from_iterable(_format_hunk(hunk, before, after) for hunk in hunks))
    added = sum(block.new_end - block.new_start for block in blocks)
    removed = sum(block.old_end - block.old_start for block in blocks)
    return Diff(hunks, added, removed, "".join(pieces))


def truncate_diff(diff: Diff, max_chars: int) -> DiffExcerpt:
    """Return as many whole lines as fit, and how much is not shown."""
    produced = _count_bytes(diff.text)
    if len(diff.text) <= max_chars:
        return DiffExcerpt(diff.text, produced, 0)
    shown = diff.text[: diff.text.rfind("\n", 0, max_chars) + 1] or diff.text[:max_chars]
    omitted = produced - _count_bytes(shown)
    end = "" if shown.endswith("\n") else "\n"
    return DiffExcerpt(f"{shown}{end}[... {omitted:,} bytes of the diff omitted ...]", produced - omitted, omitted)


def split_lines(text: str) -> list[str]:
    """Return the lines with their line breaks; only `\\n` ends a line."""
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def find_changed_blocks(old: TextLines, new: TextLines) -> Iterator[ChangedBlock]:
    """Yield the changed blocks, in order. Lines outside of them are the same."""
    return _find_blocks(old, new, ChangedBlock(0, len(old), 0, len(new)), _MAX_DEPTH)


def _find_blocks(old: TextLines, new: TextLines, within: ChangedBlock, depth: int) -> Iterator[ChangedBlock]:
    within = _trim_common(old, new, within)
    old_start, old_end, new_start, new_end = within
    if old_start == old_end and new_start == new_end:
        return
    anchors = _find_anchors(old, new, within) if depth and old_start < old_end and new_start < new_end else []
    if not anchors:
        yield within
        return
    for old_at, new_at in (*anchors, (old_end, new_end)):
        yield from _find_blocks(old, new, ChangedBlock(old_start, old_at, new_start, new_at), depth - 1)
        old_start, new_start = old_at + 1, new_at + 1


def _trim_common(old: TextLines, new: TextLines, within: ChangedBlock) -> ChangedBlock:
    """Trim equal lines at both ends."""
    old_start, old_end, new_start, new_end = within
    while old_start < old_end and new_start < new_end and old[old_start] == new[new_start]:
        old_start, new_start = old_start + 1, new_start + 1
    while old_start < old_end and new_start < new_end and old[old_end - 1] == new[new_end - 1]:
        old_end, new_end = old_end - 1, new_end - 1
    return ChangedBlock(old_start, old_end, new_start, new_end)


def _find_anchors(old: TextLines, new: TextLines, within: ChangedBlock) -> list[tuple[int, int]]:
    """Find lines that occur once in each part, as many as are in the same order in both."""
    old_part, new_part = old[within.old_start : within.old_end], new[within.new_start : within.new_end]
    in_new = Counter(new_part)
    once = {line for line, count in Counter(old_part).items() if count == 1 and in_new[line] == 1}
    place = {line: at for at, line in enumerate(new_part, within.new_start) if line in once}
    pairs = [(at, place[line]) for at, line in enumerate(old_part, within.old_start) if line in once]
    return _longest_increasing(pairs)


def _longest_increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence of the pairs whose second numbers rise (patience sorting)."""
    tops: list[int] = []
    top_pairs: list[int] = []
    before: list[int] = []
    for number, (_, new_at) in enumerate(pairs):
        pile = bisect_left(tops, new_at)
        before.append(top_pairs[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [new_at]
        top_pairs[pile : pile + 1] = [number]
    rising: list[tuple[int, int]] = []
    number = top_pairs[-1] if top_pairs else -1
    while number >= 0:
        rising.append(pairs[number])
        number = before[number]
    return rising[::-1]


def _group_hunks(blocks: Sequence[ChangedBlock], old_count: int, new_count: int) -> Iterator[Hunk]:
    group: list[ChangedBlock] = []
    for block in blocks:
        if group and block.old_start - group[-1].old_end > 2 * CONTEXT_LINES:
            yield _make_hunk(group, old_count, new_count)
            group = []
        group.append(block)
    if group:
        yield _make_hunk(group, old_count, new_count)


def _make_hunk(blocks: Sequence[ChangedBlock], old_count: int, new_count: int) -> Hunk:
    lead = min(CONTEXT_LINES, blocks[0].old_start)
    trail = min(CONTEXT_LINES, old_count - blocks[-1].old_end)
    old_start, new_start = blocks[0].old_start - lead, blocks[0].new_start - lead
    old_lines, new_lines = blocks[-1].old_end + trail - old_start, blocks[-1].new_end + trail - new_start
    # By convention the number of an empty part is that of the line before it.
    return Hunk(old_start + (old_lines > 0), old_lines, new_start + (new_lines > 0), new_lines, tuple(blocks))


def _quote_name(path: str) -> str:
    """Quote a name so that it stays on one line."""
    return path if path.isprintable() else f'"{path.encode("unicode_escape").decode()}"'


def _format_hunk(hunk: Hunk, old: TextLines, new: TextLines) -> Iterator[str]:
    yield f"@@ -{_format_range(hunk.old_start, hunk.old_lines)} +{_format_range(hunk.new_start, hunk.new_lines)} @@\n"
    at = hunk.old_start - (hunk.old_lines > 0)
    end = at + hunk.old_lines
    for block in hunk.blocks:
        yield from _prefix_lines(" ", old[at : block.old_start])
        yield from _prefix_lines("-", old[block.old_start : block.old_end])
        yield from _prefix_lines("+", new[block.new_start : block.new_end])
        at = block.old_end
    yield from _prefix_lines(" ", old[at:end])


def _prefix_lines(sign: str, lines: TextLines) -> Iterator[str]:
    for line in lines:
        yield sign + line if line.endswith("\n") else f"{sign}{line}\n{_NO_NEWLINE}"


def _format_range(start: int, lines: int) -> str:
    return str(start) if lines == 1 else f"{start},{lines}"


def _count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
