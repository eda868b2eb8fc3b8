"""Diffs of what a call would do to a file, as far as its arguments say: a help beside the arguments themselves."""

from collections.abc import Iterator
from difflib import unified_diff
from json import dumps
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..domain.payload import FileOperand
from ..domain.tool import JsonObject
from .diff import find_changed_blocks, make_unified_diff, split_lines

_MAX_CHARS = 200_000
_MAX_EDITS = 100

LineKind: TypeAlias = Literal["added", "removed", "same", "place"]
_SIGNS: dict[LineKind, tuple[str, str]] = {
    "added": ("+", "added"),
    "removed": ("-", "removed"),
    "same": (" ", ""),
    "place": ("@", ""),
}


class DiffLine(msgspec.Struct, frozen=True, gc=False):
    """One line of a diff."""

    kind: LineKind
    text: str

    @property
    def sign(self) -> str:
        """Sign before the line: `+`, `-`, `@` or a space."""
        return _SIGNS[self.kind][0]

    @property
    def words(self) -> str:
        """The text for screen readers."""
        return _SIGNS[self.kind][1]


class EditDiff(msgspec.Struct, frozen=True):
    """The diff of an edit."""

    path: str
    lines: tuple[DiffLine, ...]
    #: What the diff cannot say.
    remark: str = ""

    @property
    def added(self) -> int:
        """Number of added lines."""
        return sum(line.kind == "added" for line in self.lines)

    @property
    def removed(self) -> int:
        """Number of removed lines."""
        return sum(line.kind == "removed" for line in self.lines)


def build_edit_diff(
    arguments: JsonObject, files: tuple[FileOperand, ...], old_content: str | None = None
) -> EditDiff | None:
    """Return the diff; None where the arguments are not those of an edit, or are too long.

    Args:
        old_content: All of the file that would be replaced, where it is known.
    """
    path = arguments.get("path")
    if not isinstance(path, str):
        return None
    edits = _parse_edits(arguments)
    if edits is not None:
        return None if _count_chars(edits) > _MAX_CHARS else EditDiff(path, tuple(_diff_edits(edits)))
    content = arguments.get("content")
    if not isinstance(content, str) or len(content) > _MAX_CHARS:
        return None
    if old_content is not None and len(old_content) <= _MAX_CHARS:
        return EditDiff(path, tuple(parse_unified_diff(make_unified_diff(old_content, content, path).text)[2:-1]))
    return EditDiff(
        path, tuple(DiffLine("added", line) for line in content.split("\n")), _describe_overwrite(path, files)
    )


def diff_texts(old: str, new: str) -> Iterator[DiffLine]:
    """Yield every line of both texts."""
    before, after = split_lines(old), split_lines(new)
    at = 0
    for block in find_changed_blocks(before, after):
        yield from _to_diff_lines("same", before[at : block.old_start])
        yield from _to_diff_lines("removed", before[block.old_start : block.old_end])
        yield from _to_diff_lines("added", after[block.new_start : block.new_end])
        at = block.old_end
    yield from _to_diff_lines("same", before[at:])


def _parse_edits(arguments: JsonObject) -> list[tuple[str, str]] | None:
    if isinstance(arguments.get("old_string"), str) and arguments["old_string"]:
        return _to_pairs([arguments])
    edits: Any = arguments.get("edits")
    return _to_pairs(cast(list[Any], edits)) if isinstance(edits, list) and edits else None


def _to_pairs(edits: list[Any]) -> list[tuple[str, str]] | None:
    pairs: list[tuple[str, str]] = []
    for edit in edits[: _MAX_EDITS + 1]:
        if not isinstance(edit, dict):
            return None
        old, new = cast(JsonObject, edit).get("old_string"), cast(JsonObject, edit).get("new_string")
        if not isinstance(old, str) or not isinstance(new, str):
            return None
        pairs.append((old, new))
    return pairs if len(pairs) <= _MAX_EDITS else None


def _diff_edits(edits: list[tuple[str, str]]) -> Iterator[DiffLine]:
    for at, (old, new) in enumerate(edits, 1):
        if len(edits) > 1:
            yield DiffLine("place", f"edit {at} of {len(edits)}")
        yield from diff_texts(old, new)
        if new and old.endswith("\n") != new.endswith("\n"):
            yield DiffLine("place", "the line break at the end is " + ("removed" if old.endswith("\n") else "added"))


def _to_diff_lines(kind: LineKind, lines: list[str]) -> Iterator[DiffLine]:
    return (DiffLine(kind, line.removesuffix("\n")) for line in lines)


def _count_chars(edits: list[tuple[str, str]]) -> int:
    return sum(len(old) + len(new) for old, new in edits)


def _describe_overwrite(path: str, files: tuple[FileOperand, ...]) -> str:
    known = next((file for file in files if file.path == path or file.path.endswith(f"/{path}")), None)
    if known is None:
        return ""
    return "It replaces all of the file that is there." if known.sha256 else "There is no such file yet."


_KIND_BY_SIGN: dict[str, LineKind] = {"+": "added", "-": "removed", " ": "same"}
#: Comparing takes the square of this at worst.
_MAX_COMPARED_LINES = 1_000


def parse_unified_diff(text: str) -> list[DiffLine]:
    """Return the lines of a unified diff. A line that is not part of a change is a location."""
    return list(_parse_diff_lines(text.split("\n")))


def diff_json(old: Any, new: Any) -> list[DiffLine]:
    """Return the diff of two JSON values, line by line; empty when they are equal, or too long to compare."""
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
