"""Diffs as lines that a page can show, each with words for those who do not see its sign."""

from collections.abc import Iterator
from difflib import unified_diff
from json import dumps
from typing import Any

from .edit_diff import DiffLine, LineKind

_KIND_BY_SIGN: dict[str, LineKind] = {"+": "added", "-": "removed", " ": "same"}
#: Comparing takes the square of this at worst.
_MAX_COMPARED_LINES = 1_000


def parse_unified_diff(text: str) -> list[DiffLine]:
    """The lines of a unified diff, all of them. A line that is not part of a change is a place."""
    return list(_parse_diff_lines(text.split("\n")))


def diff_json(old: Any, new: Any) -> list[DiffLine]:
    """From one JSON value to another, line by line; nothing when they are the same, or too long to be compared."""
    before, after = _format_json(old), _format_json(new)
    if before == after or max(len(before), len(after)) > _MAX_COMPARED_LINES:
        return []
    diff = unified_diff(before, after, lineterm="", n=2)
    return list(_parse_diff_lines(list(diff)[2:]))


def _parse_diff_lines(lines: list[str]) -> Iterator[DiffLine]:
    in_hunk = False
    for line in lines:
        if line.startswith("@@"):
            in_hunk = True
            yield DiffLine("place", line)
        elif in_hunk and line[:1] in _KIND_BY_SIGN:
            yield DiffLine(_KIND_BY_SIGN[line[:1]], line[1:])
        elif in_hunk and not line:
            yield DiffLine("same", "")
        else:
            in_hunk = in_hunk and line.startswith("\\")
            yield DiffLine("place", line)


def _format_json(value: Any) -> list[str]:
    return dumps(value, indent=2, ensure_ascii=False, sort_keys=True, default=str).split("\n")
