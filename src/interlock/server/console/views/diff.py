"""Diffs as lines that a page can show, each with words for those who do not see its sign."""

from collections.abc import Iterator
from difflib import unified_diff
from json import dumps
from typing import Any

from .edit_diff import DiffLine, LineKind

_KINDS: dict[str, LineKind] = {"+": "added", "-": "removed", " ": "same"}
#: Comparing takes the square of this at worst.
_MAX_COMPARED_LINES = 1_000


def diff_lines(text: str) -> list[DiffLine]:
    """The lines of a unified diff, all of them. A line that is not part of a change is a place."""
    return list(_lines(text.split("\n")))


def changed_lines(was: Any, now: Any) -> list[DiffLine]:
    """From one JSON value to another, line by line; nothing when they are the same, or too long to be compared."""
    before, after = _written(was), _written(now)
    if before == after or max(len(before), len(after)) > _MAX_COMPARED_LINES:
        return []
    compared = unified_diff(before, after, lineterm="", n=2)
    return list(_lines(list(compared)[2:]))


def _lines(lines: list[str]) -> Iterator[DiffLine]:
    inside = False
    for line in lines:
        if line.startswith("@@"):
            inside = True
            yield DiffLine("place", line)
        elif inside and line[:1] in _KINDS:
            yield DiffLine(_KINDS[line[:1]], line[1:])
        elif inside and not line:
            yield DiffLine("same", "")
        else:
            inside = inside and line.startswith("\\")
            yield DiffLine("place", line)


def _written(value: Any) -> list[str]:
    return dumps(value, indent=2, ensure_ascii=False, sort_keys=True, default=str).split("\n")
