"""The baseline of a file: which version a run saw, which lines of it were shown, and whether it knows all of it.

It is kept in the state of the run under the real path of the file, so that an edit can check whether the file was read
and whether it is unchanged. The content's digest decides that; times are only reported.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from ...domain.tool import JsonObject

_STATE_PREFIX = "file:"
#: Forgetting one costs a second look at some lines, no more.
_MAX_RANGES = 200


class FileBaseline(msgspec.Struct, frozen=True, kw_only=True):
    """What a run knows of a file."""

    sha256: str
    size_bytes: int
    mtime_ns: int
    encoding: str
    #: How many there are.
    lines: int
    #: The lines of this version that were shown, first and last, in order and apart from each other.
    ranges: tuple[tuple[int, int], ...] = ()
    #: Whether one of them was shown only in part, because it is so long.
    cut: bool = False
    #: Whether all of this version is known, because it was shown or because the run itself wrote it.
    whole: bool = False

    def has_shown_lines(self, first: int, last: int) -> bool:
        """Return True if all of these lines were shown."""
        return (self.lines == 0 and self.whole) or any(start <= first and last <= end for start, end in self.ranges)

    def with_shown_lines(self, first: int, last: int, *, cut: bool = False) -> "FileBaseline":
        """Return the baseline with these lines shown as well."""
        ranges = _merge_ranges((*self.ranges, (first, last)) if first <= last else self.ranges)[-_MAX_RANGES:]
        cut = cut or self.cut
        whole = self.whole or (not cut and ranges in ((), ((1, self.lines),)) and (self.lines == 0) == (ranges == ()))
        return msgspec.structs.replace(self, ranges=ranges, cut=cut, whole=whole)

    def to_state(self, relative: str) -> JsonObject:
        """Return the state for `NormalizedOutput.state`. Nanoseconds exceed what a JSON number holds, so they are
        text.
        """
        fields = msgspec.to_builtins(self) | {"mtime_ns": str(self.mtime_ns), "ranges": list(map(list, self.ranges))}
        return {baseline_key(relative): fields}


def load_baseline(state: Mapping[str, Any], relative: str) -> FileBaseline | None:
    """Return what the run knows of the file. Unreadable state counts as unknown."""
    try:
        return msgspec.convert(state.get(baseline_key(relative)), FileBaseline, strict=False)
    except msgspec.ValidationError:
        return None


def baseline_key(relative: str) -> str:
    """Return the state key under which a file's baseline is stored."""
    return _STATE_PREFIX + display_path(relative)


def display_path(relative: str) -> str:
    """Return a real path as text: bytes in it that are no UTF-8 are written as escapes."""
    return relative if relative.isascii() else relative.encode("utf-8", "backslashreplace").decode()


def _merge_ranges(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)
