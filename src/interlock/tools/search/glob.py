"""`glob`: paths of files that fit a pattern, listed by ripgrep in its sandbox."""

from typing import Annotated

import msgspec
from pydantic import Field

from ...domain.decision import Decision
from ...domain.outcome import NextTool
from ...domain.tool import CallContext, CheckProblem, JsonObject, NormalizedOutput, ToolContext, ToolDefinition
from ...registry.decorator import tool
from ...rendering.text import pluralize
from ...sandbox.interface import CommandSandbox
from ...sandbox.workspace.workspace import Workspace
from .glob_pattern import MAX_PATTERN_CHARS
from .ripgrep import STOP_REASONS, TOO_MUCH_REASONS, Ripgrep, build_name_options, make_unfinished_error
from .search_output import (
    MAX_OFFSET,
    NameReader,
    Page,
    build_line_page,
    describe_page,
    display_name,
    iterate_sorted,
)
from .search_root import SearchRoot, authorize_search, check_search, find_search_root

DEFAULT_LIMIT = 200
MAX_LIMIT = 2_000
_MAX_TEXT_CHARS = 60_000
_MAX_OUTPUT_CHARS = 64_000
#: So many names are asked about one by one. Of more only those on the page are: it takes longer than to list them.
_MAX_CHECKED_SINGLY = 500


class GlobResult(msgspec.Struct, frozen=True, kw_only=True):
    """The matching files, and the page of them that is shown."""

    pattern: str
    path: str
    offset: int
    limit: int
    page: Page = Page("", 0)
    found: int = 0
    #: Of those that are named here, not counting what was never looked at.
    closed: int = 0
    unreadable: int = 0
    #: Empty when all was seen, else a key of `ripgrep.STOP_REASONS`.
    stopped: str = ""
    #: Why ignore files were not obeyed; empty when they were.
    why_all: str = ""

    @property
    def next_offset(self) -> int | None:
        """Offset of the next page, or None at the end."""
        after = self.offset + self.page.returned
        return after if self.page.returned and (after < self.found or self.stopped) else None


def glob_tool(workspace: Workspace, commands: CommandSandbox, rg: str) -> ToolDefinition:
    """Return the tool for the files of this workspace. Only names are read, so nothing has to be hidden from
    ripgrep.
    """
    ripgrep = Ripgrep(workspace, commands, rg)

    def check(arguments: JsonObject, context: ToolContext) -> CheckProblem | None:
        return check_search(workspace, arguments["path"], arguments["pattern"])

    def authorize(arguments: JsonObject, situation: CallContext) -> Decision | None:
        return authorize_search(workspace, arguments["path"], arguments["pattern"]) or ripgrep.authorize()

    async def handler(
        context: ToolContext,
        pattern: Annotated[str, Field(min_length=1, max_length=MAX_PATTERN_CHARS)],
        path: str = ".",
        limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
        offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0,
    ) -> GlobResult:
        """Find files by their names. Returns paths from the root of the workspace on, sorted.

        Files that .gitignore leaves out are listed only when path, or the start of the pattern, is a folder of them.
        Links and folders are not listed: see them with list_dir.

        Args:
            pattern: *.py in all folders; src/*.py in one; src/**/*.{ts,tsx} in it and below.
            path: The folder that the pattern begins in.
            limit: How many paths to show.
            offset: How many to skip, to read on.
        """
        asked = GlobResult(pattern=pattern, path=path, offset=offset, limit=limit)
        return await _find_paths(ripgrep, find_search_root(workspace, path, pattern, context.judged), asked)

    return tool(
        handler,
        name="glob",
        risk="read",
        idempotent=True,
        concurrency="safe",
        timeout_seconds=60,
        max_output_chars=_MAX_OUTPUT_CHARS,
        resources={"path": "path"},
        reach=ripgrep.describe_scope,
        check=check,
        authorize=authorize,
        normalize=normalize_paths,
    )


async def _find_paths(ripgrep: Ripgrep, place: SearchRoot, result: GlobResult) -> GlobResult:
    if place.is_missing:
        return result
    options = ("--files", *build_name_options(place.pattern))
    reader, done = await ripgrep.run(options, place.relative, NameReader)
    names = place.filter_paths(reader.names)
    allowed = done.closed.filter_open(names, reader.suspects)
    if len(names) <= _MAX_CHECKED_SINGLY:
        allowed = [path for path in allowed if not done.closed.is_closed(path)]
    if done.stopped and done.stopped not in TOO_MUCH_REASONS and not allowed:
        raise make_unfinished_error(done.stopped)
    # The one that has no room any more is asked for as well.
    order = iterate_sorted(allowed, result.offset + result.limit + 1)
    if done.stopped == "output_limit":
        reader, _ = await ripgrep.run((*options, "--sort=path"), place.relative, NameReader)
        order = iter(place.filter_paths(reader.names))
    shown = (display_name(path) for path in order if not done.closed.is_closed(path))
    return msgspec.structs.replace(
        result,
        page=build_line_page(shown, result.offset, result.limit, _MAX_TEXT_CHARS),
        found=len(allowed),
        closed=len(names) - len(allowed),
        unreadable=done.unreadable,
        stopped=done.stopped,
        why_all=done.why_all(),
    )


def normalize_paths(found: GlobResult) -> NormalizedOutput:
    """Convert found paths for the model."""
    next_offset = found.next_offset
    facts = {
        "pattern": found.pattern,
        "path": found.path,
        "matched": found.found,
        "returned": found.page.returned,
        "offset": found.offset,
        "complete": not found.stopped and not found.unreadable,
        "closed": found.closed,
        "unreadable": found.unreadable,
        "ignore_files_obeyed": not found.why_all,
    }
    next_arguments = {"pattern": found.pattern, "path": found.path, "limit": found.limit, "offset": next_offset}
    summary = _summarize(found)
    return NormalizedOutput(
        summary=summary,
        text="\n".join(filter(None, (found.page.text, found.why_all))),
        user_text=f"Looked in {found.path} for {found.pattern}: {summary}",
        side_effects=(),
        facts=facts,
        next_hint=f"offset={next_offset} shows the next ones. A narrower pattern finds fewer." if next_offset else "",
        next_tool=NextTool(tool="glob", input_hint=next_arguments) if next_offset else None,
    )


def _summarize(found: GlobResult) -> str:
    closed = f" Not listed, since closed to tools: {found.closed:,}." if found.closed else ""
    why = f" ({STOP_REASONS[found.stopped]})" if found.stopped else ""
    missed = f" Could not be read: {found.unreadable:,}." if found.unreadable else ""
    if not found.found:
        return f"No file fits{why}.{closed}{missed}"
    at_least = "At least " if found.stopped else ""
    shown = describe_page(found.offset, found.page.returned, found.found)
    return f"{at_least}{pluralize(found.found, 'file')}{why}; {shown}.{closed}{missed}"
