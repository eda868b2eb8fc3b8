"""Expansion of wildcards as bash does it, within a budget.

The quotes of the word are no longer seen here: a bracket may also stand for itself. Names that start with a dot count,
and so do `.` and `..`, which some versions of bash find. So there may be more names than bash finds, never fewer.
"""

import re
from collections.abc import Callable
from fnmatch import translate
from os import scandir
from os.path import join, lexists
from time import monotonic

MAX_ENTRIES = 5_000
MAX_SECONDS = 0.2
#: What it costs to compare a name grows with them.
_MAX_WILDCARDS = 64
_WILDCARD = re.compile(r"[*?\[]")


class ScanBudget:
    """The remaining file system budget of one decision."""

    def __init__(self, entries: int = MAX_ENTRIES, seconds: float = MAX_SECONDS) -> None:
        self._entries = entries
        self._seconds = seconds
        self._until: float | None = None

    def spend(self, entries: int = 1) -> bool:
        """Spend entries. Return False when the budget is used up. The time starts with the first use."""
        self._entries -= entries
        self._until = monotonic() + self._seconds if self._until is None else self._until
        return self._entries >= 0 and monotonic() < self._until


def expand_glob(pattern: str, folder: str, budget: ScanBudget) -> list[str] | None:
    """Return the paths that fit the pattern; None when it would take too long to find them all."""
    if len(_WILDCARD.findall(pattern)) > _MAX_WILDCARDS:
        return None
    found: list[str] | None = ["/" if pattern.startswith("/") else folder]
    for part in filter(None, pattern.split("/")):
        if found:
            found = (
                _find_children(found, part, budget) if _WILDCARD.search(part) else _find_existing(found, part, budget)
            )
    return found


def _find_existing(folders: list[str], name: str, budget: ScanBudget) -> list[str] | None:
    if not budget.spend(len(folders)):
        return None
    return [path for folder in folders if lexists(path := join(folder, name))]


def _find_children(folders: list[str], part: str, budget: ScanBudget) -> list[str] | None:
    fits, found = _compile_matcher(part), list[str]()
    for folder in folders:
        names = _list_names(folder, budget)
        if names is None:
            return None
        found += [join(folder, name) for name in (*names, ".", "..") if fits(name)]
    return found


def _list_names(folder: str, budget: ScanBudget) -> list[str] | None:
    names = list[str]()
    try:
        with scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                if not budget.spend():
                    return None
    except OSError:
        return []
    return names if budget.spend() else None


def _compile_matcher(part: str) -> Callable[[str], bool]:
    """Compile a glob component. Bash accepts `[^x]` for `[!x]`, and a quoted bracket as itself."""
    readings = dict.fromkeys((part, part.replace("[^", "[!"), part.replace("[", "[[]")))
    compared = [re.compile(translate(reading)) for reading in readings]
    hidden = part.startswith((".", "["))

    def fits(name: str) -> bool:
        return (hidden or name not in (".", "..")) and any(pattern.match(name) for pattern in compared)

    return fits
