"""Where a search begins: a real path from the workspace on, found before the search and judged at the gate; and what is
closed to it below.
"""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...domain.decision import Decision, Verdict
from ...domain.errors import PreconditionError
from ...domain.tool import Judged, Problem
from ...sandbox.workspace.workspace import PathRefused, Workspace
from ..files.boundary import LAYER
from ..files.file_content import cannot, not_now
from .glob_pattern import GlobPattern, read_pattern

_ALL_FILES = "**"
#: What ripgrep's paths begin with.
ROOT = b"./"


class SearchPlace(NamedTuple):
    #: "." for the workspace itself.
    relative: str
    pattern: GlobPattern
    #: The folder that the pattern begins in is not there, so nothing can be found.
    is_missing: bool = False

    def meant(self, paths: list[bytes]) -> list[bytes]:
        """Those of ripgrep's paths that the pattern means. It has looked at their last names only."""
        matches = self.pattern.matches
        if matches is None:
            return paths
        start = len("./") + (0 if self.relative == "." else len(os.fsencode(self.relative)) + 1)
        return [path for path in paths if matches(path[start:])]


def search_place(workspace: Workspace, path: str, glob: str, judged: Judged) -> SearchPlace:
    """Return where a search starts.

    `PathRefused` where tools may not go, `PreconditionError` where there is nothing to search.
    """
    pattern = read_pattern(glob or _ALL_FILES)
    with not_now():
        found = workspace.locate(path, judged=judged)
        match found.kind:
            case "missing":
                raise cannot(f"{found.relative} does not exist. See what is there with list_dir")
            case "file" if glob:
                raise cannot(f"{found.relative} is a file, and a glob needs a folder")
            case "file" | "folder" if not pattern.folder:
                return SearchPlace(found.relative, pattern)
            case "folder":
                begin = workspace.locate(_joined(path, pattern.folder), judged=judged, below=True)
                return SearchPlace(begin.relative, pattern, is_missing=begin.kind != "folder")
            case _:
                raise cannot(f"{found.relative} is neither a folder nor a plain file")


def search_problem(workspace: Workspace, path: str, glob: str) -> Problem | None:
    """For `check`. What is not allowed is left to the gate."""
    try:
        search_place(workspace, path, glob, None)
    except PreconditionError as error:
        return error.problem
    except PathRefused:
        return None
    return None


def search_opinion(workspace: Workspace, path: str, glob: str) -> Decision | None:
    """For `authorize`. What cannot be done is left to the check."""
    try:
        search_place(workspace, path, glob, None)
    except PathRefused as refused:
        rule = f"workspace:{refused.kind}"
        return Decision(verdict=Verdict.DENY, reason=str(refused), rule_ids=(rule,), layer=LAYER)
    except PreconditionError:
        return None
    return None


class Closed:
    """Which paths are closed to tools: what was hidden from the search, and what is by its name."""

    def __init__(self, workspace: Workspace, hidden: Iterable[str]) -> None:
        inside = workspace.root.rstrip("/") + "/"
        self._workspace = workspace
        self._paths = frozenset(printed(path.removeprefix(inside)) for path in hidden if path.startswith(inside))
        self._below = tuple(path + b"/" for path in self._paths)
        #: Those that are hidden only because nobody could look into them.
        self._unseen = frozenset(path for path in self._paths if self._is_locked(path) and not self._is_refused(path))

    def hides(self, path: bytes) -> bool:
        return path in self._paths or path.startswith(self._below)

    def forbids(self, path: bytes) -> bool:
        return self.hides(path) or self._is_refused(path)

    def open_among(self, paths: list[bytes]) -> list[bytes]:
        """For very many. Most names of secrets begin with a dot; others ripgrep leaves out, or sees empty. So what is
        shown in the end is to be asked about one by one.
        """
        together = b"\0".join(paths)
        closed = set(filter(self.forbids, _dotted(together)))
        if not together.isascii():
            closed.update(path for path in paths if not path.isascii() and self.forbids(path))
        if self._paths:
            closed.update(filter(self.hides, paths))
        return [path for path in paths if path not in closed] if closed else paths

    def folders_above(self) -> frozenset[bytes]:
        """All folders that a hidden folder is in."""
        return frozenset(above for path in self._paths if os.path.isdir(self._real(path)) for above in _above(path))

    def count_in(self, place: str) -> int:
        folder = printed(place) + b"/"
        return sum(path.startswith(folder) for path in self._paths - self._unseen)

    def unreadable_in(self, place: str, told: Iterable[bytes]) -> set[bytes]:
        """What could not be read there: what ripgrep has told, and what it was not shown for that reason."""
        unseen = (path for path in self._unseen if (path + b"/").startswith(printed(place) + b"/"))
        return {*unseen, *(path for path in told if not self.hides(path))}

    def _is_refused(self, path: bytes) -> bool:
        return self._workspace.refusal(os.fsdecode(path[len(ROOT) :])) is not None

    def _is_locked(self, path: bytes) -> bool:
        place = self._real(path)
        return os.path.isdir(place) and not os.access(place, os.R_OK | os.X_OK)

    def _real(self, path: bytes) -> bytes:
        return os.path.join(os.fsencode(self._workspace.root), path)


def _dotted(paths: bytes) -> Iterator[bytes]:
    """Of paths with NUL between them, those in which a name begins with a dot. They are few among many."""
    at = paths.find(b"/.")
    while at >= 0:
        start, end = paths.rfind(b"\0", 0, at) + 1, paths.find(b"\0", at)
        yield paths[start : end if end >= 0 else None]
        at = paths.find(b"/.", end) if end >= 0 else -1


def _above(path: bytes) -> Iterator[bytes]:
    """`./a/b` is in `./a` and in `.`."""
    while path := path.rpartition(b"/")[0]:
        yield path


def printed(relative: str) -> bytes:
    """As ripgrep prints it."""
    return b"." if relative == "." else ROOT + os.fsencode(relative)


def open_below(place: bytes, unlistable: frozenset[bytes], files: Iterable[bytes]) -> Iterator[bytes]:
    """Names to give a search of a place when some folders can be searched but not listed: of each of these files, the
    outermost folder that can be, or the file itself. All are as ripgrep prints them.
    """
    for path in files:
        end = len(place)
        while path[:end] in unlistable:
            end = path.find(b"/", end + 1)
            if end < 0:
                end = len(path)
        yield path[:end]


def _joined(path: str, folder: str) -> str:
    return folder if folder.startswith("/") else f"{path}/{folder}"
