"""The root of a search: a real path, resolved before the search and evaluated by policy; and the closed paths below
it.
"""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...domain.decision import Decision
from ...domain.errors import PreconditionError
from ...domain.tool import CheckProblem, EvaluatedPaths
from ...sandbox.workspace.refusals import PathRefusedError
from ...sandbox.workspace.workspace import Workspace
from ..files.file_content import find_problem, make_precondition_error, refusals_as_preconditions
from ..files.path_boundary import deny_path
from .glob_pattern import GlobPattern, parse_pattern

_ALL_FILES = "**"
#: What ripgrep's paths begin with.
ROOT_PREFIX = b"./"


class SearchRoot(NamedTuple):
    """Where a search starts, and its pattern."""

    #: "." for the workspace itself.
    relative: str
    pattern: GlobPattern
    #: The folder that the pattern begins in is not there, so nothing can be found.
    is_missing: bool = False

    def filter_paths(self, paths: list[bytes]) -> list[bytes]:
        """Return the paths of ripgrep that match the pattern. It has matched their last names only."""
        matches = self.pattern.matches
        if matches is None:
            return paths
        start = len("./") + (0 if self.relative == "." else len(os.fsencode(self.relative)) + 1)
        return [path for path in paths if matches(path[start:])]


def find_search_root(workspace: Workspace, path: str, glob: str, judged: EvaluatedPaths) -> SearchRoot:
    """Return where a search starts.

    `PathRefusedError` where tools may not go, `PreconditionError` where there is nothing to search.
    """
    pattern = parse_pattern(glob or _ALL_FILES)
    with refusals_as_preconditions():
        found = workspace.locate(path, judged=judged)
        match found.kind:
            case "missing":
                raise make_precondition_error(f"{found.relative} does not exist. List the files with list_dir")
            case "file" if glob:
                raise make_precondition_error(f"{found.relative} is a file, and a glob needs a folder")
            case "file" | "folder" if not pattern.folder:
                return SearchRoot(found.relative, pattern)
            case "folder":
                start = pattern.folder if pattern.folder.startswith("/") else f"{path}/{pattern.folder}"
                begin = workspace.locate(start, judged=judged, below=True)
                return SearchRoot(begin.relative, pattern, is_missing=begin.kind != "folder")
            case _:
                raise make_precondition_error(f"{found.relative} is neither a folder nor a plain file")


def check_search(workspace: Workspace, path: str, glob: str) -> CheckProblem | None:
    """Return the problem for `check`."""
    return find_problem(find_search_root, workspace, path, glob, None)


def authorize_search(workspace: Workspace, path: str, glob: str) -> Decision | None:
    """Return the decision for `authorize`. Problems are for the check."""
    try:
        find_search_root(workspace, path, glob, None)
    except PathRefusedError as refused:
        return deny_path(refused)
    except PreconditionError:
        pass
    return None


class ClosedPaths:
    """The paths that are closed to tools: hidden from the search, or by name."""

    def __init__(self, workspace: Workspace, hidden: Iterable[str]) -> None:
        inside = workspace.root.rstrip("/") + "/"
        self._workspace = workspace
        self._paths = frozenset(
            to_printed_path(path.removeprefix(inside)) for path in hidden if path.startswith(inside)
        )
        self._below = tuple(path + b"/" for path in self._paths)
        #: Those that are hidden only because they could not be read.
        self._unreadable = frozenset(
            path for path in self._paths if self._is_locked(path) and not self._is_refused(path)
        )

    def is_hidden(self, path: bytes) -> bool:
        """Return True if a path is hidden, or below something hidden."""
        return path in self._paths or path.startswith(self._below)

    def is_closed(self, path: bytes) -> bool:
        """Return True if a path is hidden or refused by policy."""
        return self.is_hidden(path) or self._is_refused(path)

    def filter_open(self, paths: list[bytes], suspects: Iterable[bytes]) -> list[bytes]:
        """Return the open paths of very many, quickly: see `find_suspects`. Most names of secrets begin with a dot;
        others ripgrep leaves out or sees empty. What is shown in the end must be checked one by one.
        """
        closed = set(filter(self.is_closed, suspects))
        if self._paths:
            closed.update(filter(self.is_hidden, paths))
        return [path for path in paths if path not in closed] if closed else paths

    def find_parent_folders(self) -> frozenset[bytes]:
        """Return all folders that a hidden folder is in."""
        return frozenset(
            above for path in self._paths if os.path.isdir(self._real_path(path)) for above in _iterate_parents(path)
        )

    def count_below(self, place: str) -> int:
        """Count closed paths below a folder."""
        folder = to_printed_path(place) + b"/"
        return sum(path.startswith(folder) for path in self._paths - self._unreadable)

    def find_unreadable(self, place: str, reported: Iterable[bytes]) -> set[bytes]:
        """Return what could not be read there: as reported by ripgrep, or hidden for that reason."""
        unreadable = (path for path in self._unreadable if (path + b"/").startswith(to_printed_path(place) + b"/"))
        return {*unreadable, *(path for path in reported if not self.is_hidden(path))}

    def _is_refused(self, path: bytes) -> bool:
        return self._workspace.find_refusal(os.fsdecode(path[len(ROOT_PREFIX) :])) is not None

    def _is_locked(self, path: bytes) -> bool:
        place = self._real_path(path)
        return os.path.isdir(place) and not os.access(place, os.R_OK | os.X_OK)

    def _real_path(self, path: bytes) -> bytes:
        return os.path.join(os.fsencode(self._workspace.root), path)


def _iterate_parents(path: bytes) -> Iterator[bytes]:
    """Yield the parent folders of a path: for `./a/b`, `./a` and `.`."""
    while path := path.rpartition(b"/")[0]:
        yield path


def to_printed_path(relative: str) -> bytes:
    """Return a path as ripgrep prints it."""
    return b"." if relative == "." else ROOT_PREFIX + os.fsencode(relative)


def list_open_below(place: bytes, unlistable: frozenset[bytes], files: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the arguments for a search of a folder when some folders can be searched but not listed: of each file, the
    outermost folder that can be listed, or the file itself, as ripgrep prints them.
    """
    for path in files:
        end = len(place)
        while path[:end] in unlistable:
            end = path.find(b"/", end + 1)
            if end < 0:
                end = len(path)
        yield path[:end]
