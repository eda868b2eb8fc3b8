"""Where a search begins: a real path from the workspace on, found before the search and judged at the gate."""

import os
from typing import NamedTuple

from ..domain.decision import Decision, Verdict
from ..domain.errors import PreconditionError
from ..domain.tool import Problem
from ..sandbox.workspace import PathRefused, Workspace
from .boundary import LAYER
from .file_content import cannot, not_now
from .glob_pattern import GlobPattern, read_pattern

_ALL_FILES = "**"


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


def search_place(workspace: Workspace, path: str, glob: str) -> SearchPlace:
    """`PathRefused` where tools may not go, `PreconditionError` where there is nothing to search."""
    pattern = read_pattern(glob or _ALL_FILES)
    with not_now():
        found = workspace.locate(path)
        match found.kind:
            case "missing":
                raise cannot(f"{found.relative} does not exist. See what is there with list_dir")
            case "file" if glob:
                raise cannot(f"{found.relative} is a file, and a glob needs a folder")
            case "file" | "folder" if not pattern.folder:
                return SearchPlace(found.relative, pattern)
            case "folder":
                begin = workspace.locate(_joined(path, pattern.folder))
                return SearchPlace(begin.relative, pattern, is_missing=begin.kind != "folder")
            case _:
                raise cannot(f"{found.relative} is neither a folder nor a plain file")


def search_problem(workspace: Workspace, path: str, glob: str) -> Problem | None:
    """For `check`. What is not allowed is left to the gate."""
    try:
        search_place(workspace, path, glob)
    except PreconditionError as error:
        return error.problem
    except PathRefused:
        return None
    return None


def search_opinion(workspace: Workspace, path: str, glob: str) -> Decision | None:
    """For `authorize`. What cannot be done is left to the check."""
    try:
        search_place(workspace, path, glob)
    except PathRefused as refused:
        rule = f"workspace:{refused.kind}"
        return Decision(verdict=Verdict.DENY, reason=str(refused), rule_ids=(rule,), layer=LAYER)
    except PreconditionError:
        return None
    return None


def _joined(path: str, folder: str) -> str:
    return folder if folder.startswith("/") else f"{path}/{folder}"
