"""`list_dir`: what one folder holds, by name, kind and size. Nothing in it is opened, and no link is followed."""

import os
from itertools import islice
from stat import S_ISDIR, S_ISFIFO, S_ISLNK, S_ISREG, S_ISSOCK
from typing import Annotated, NamedTuple

import msgspec
from pydantic import Field

from ...domain.outcome import NextTool
from ...domain.tool import CheckProblem, EvaluatedPaths, JsonObject, NormalizedOutput, ToolContext, ToolDefinition
from ...registry.decorator import tool
from ...rendering.text import pluralize
from ...sandbox.workspace.open_files import OpenFolder
from ...sandbox.workspace.workspace import Workspace
from ..search.search_output import MAX_OFFSET, build_line_page, describe_page, display_name
from .file_content import find_problem, refusals_as_preconditions
from .path_boundary import describe_read_scope, make_path_authorizer

DEFAULT_LIMIT = 500
MAX_LIMIT = 2_000
#: More names than this are not looked at.
MAX_NAMES = 200_000
_MAX_TEXT_CHARS = 60_000
_MAX_OUTPUT_CHARS = 64_000
_MAX_TARGET_CHARS = 200


class FolderListing(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a folder listing."""

    #: The real path from the root of the workspace.
    folder: str
    text: str
    returned: int
    offset: int
    limit: int
    folders: int
    others: int
    #: False when there are more names than were looked at.
    complete: bool

    @property
    def found(self) -> int:
        """Number of all entries."""
        return self.folders + self.others

    @property
    def next_offset(self) -> int | None:
        """Offset of the next page, or None at the end."""
        after = self.offset + self.returned
        return after if self.returned and after < self.found else None


class _SortedName(NamedTuple):
    """Sorted as it is: folders first."""

    is_other: bool
    name: str


def list_dir_tool(workspace: Workspace) -> ToolDefinition:
    """Return the tool, for the folders of this workspace."""

    def check(arguments: JsonObject, context: ToolContext) -> CheckProblem | None:
        return find_problem(lambda: _open_folder(workspace, arguments["path"], context.judged).close())

    def handler(
        context: ToolContext,
        path: str = ".",
        limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
        offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0,
    ) -> FolderListing:
        """List a folder: `name/` for folders, first, then files with their sizes, sorted by name.

        Hidden files and those that .gitignore leaves out are in it. Links are shown with where they point, and not
        followed. Files that hold credentials are marked; they cannot be read.

        Args:
            path: The folder, from the root of the workspace on.
            limit: How many names to show.
            offset: How many to skip, to read on.
        """
        with _open_folder(workspace, path, context.judged) as folder:
            names, complete = _list_names(folder)
            lines = (_format_line(workspace, folder, name) for _, name in names)
            page = build_line_page(lines, offset, limit, _MAX_TEXT_CHARS)
            return FolderListing(
                folder=folder.relative,
                text=page.text,
                returned=page.returned,
                offset=offset,
                limit=limit,
                folders=sum(not name.is_other for name in names),
                others=sum(name.is_other for name in names),
                complete=complete,
            )

    return tool(
        handler,
        name="list_dir",
        risk="read",
        idempotent=True,
        concurrency="safe",
        max_output_chars=_MAX_OUTPUT_CHARS,
        resources={"path": "path"},
        check=check,
        authorize=make_path_authorizer(workspace, writing=False),
        reach=describe_read_scope,
        normalize=normalize_listing,
    )


def _open_folder(workspace: Workspace, path: str, judged: EvaluatedPaths) -> OpenFolder:
    with refusals_as_preconditions():
        return workspace.open_folder(path, judged)


def _list_names(folder: OpenFolder) -> tuple[list[_SortedName], bool]:
    with os.scandir(folder.fd) as scan:
        names = sorted(_SortedName(not _is_folder(entry), entry.name) for entry in islice(scan, MAX_NAMES))
        return names, next(scan, None) is None


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False  # gone meanwhile


def _format_line(workspace: Workspace, folder: OpenFolder, name: str) -> str:
    shown = display_name(os.fsencode(name))
    kind = workspace.find_refusal(name if folder.relative == "." else f"{folder.relative}/{name}")
    mark = f"  [{'credentials' if kind == 'secret' else 'hidden'}, closed to tools]" if kind else ""
    try:
        mode, size = (stat := os.stat(name, dir_fd=folder.fd, follow_symlinks=False)).st_mode, stat.st_size
        if S_ISLNK(mode):
            target = display_name(os.fsencode(os.readlink(name, dir_fd=folder.fd))[:_MAX_TARGET_CHARS])
            return f"{shown} -> {target}{mark}"
    except OSError:
        return f"{shown}  [gone]"
    if S_ISDIR(mode):
        return f"{shown}/{mark}"
    return f"{shown}  {f'{size:,} bytes' if S_ISREG(mode) else _describe_special(mode)}{mark}"


def _describe_special(mode: int) -> str:
    if S_ISFIFO(mode):
        return "[pipe]"
    return "[socket]" if S_ISSOCK(mode) else "[device]"


def normalize_listing(listing: FolderListing) -> NormalizedOutput:
    """Convert a listing for the model."""
    next_offset = listing.next_offset
    facts = {
        "folder": listing.folder,
        "folders": listing.folders,
        "others": listing.others,
        "returned": listing.returned,
        "offset": listing.offset,
        "complete": listing.complete,
    }
    next_arguments = {"path": listing.folder, "limit": listing.limit, "offset": next_offset}
    summary = _summarize(listing)
    return NormalizedOutput(
        summary=summary,
        text=listing.text,
        user_text=f"Listed {listing.folder}: {summary}",
        side_effects=(),
        facts=facts,
        next_hint=f"offset={next_offset} shows the next ones." if next_offset else "",
        next_tool=NextTool(tool="list_dir", input_hint=next_arguments) if next_offset else None,
    )


def _summarize(listing: FolderListing) -> str:
    if not listing.found:
        return "The folder is empty."
    at_least = "" if listing.complete else "At least "
    found = f"{pluralize(listing.folders, 'folder')} and {pluralize(listing.others, 'file')}"
    return f"{at_least}{found}; {describe_page(listing.offset, listing.returned, listing.found)}."
