"""`glob`: paths of files that fit a pattern, listed by ripgrep in its sandbox."""

from typing import Annotated

import msgspec
from pydantic import Field

from ...domain.decision import Decision
from ...domain.outcome import NextTool
from ...domain.tool import JsonObject, Normalized, Problem, Situation, ToolContext, ToolDefinition
from ...registry.decorator import tool
from ...sandbox.interface import CommandSandbox
from ...sandbox.workspace.workspace import Workspace
from .glob_pattern import MAX_PATTERN_CHARS
from .output import MAX_OFFSET, NameReader, Page, line_page, shown_name
from .place import SearchPlace, search_opinion, search_place, search_problem
from .ripgrep import STOPPED, TOO_MUCH, Ripgrep, name_options, unfinished

DEFAULT_LIMIT = 200
MAX_LIMIT = 2_000
_MAX_TEXT_CHARS = 60_000
_MAX_OUTPUT_CHARS = 64_000
#: So many names are asked about one by one. Of more only those on the page are: it takes longer than to list them.
_FEW = 500


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """The files that fit, and the page of them that is shown."""

    pattern: str
    path: str
    offset: int
    limit: int
    page: Page = Page("", 0)
    found: int = 0
    #: Of those that are named here, not counting what was never looked at.
    closed: int = 0
    unreadable: int = 0
    #: Empty when all was seen, else a key of `ripgrep.STOPPED`.
    stopped: str = ""
    #: Why ignore files were not obeyed; empty when they were.
    why_all: str = ""

    @property
    def next_offset(self) -> int | None:
        after = self.offset + self.page.returned
        return after if self.page.returned and (after < self.found or self.stopped) else None


def glob(workspace: Workspace, commands: CommandSandbox, rg: str) -> ToolDefinition:
    """The tool, for the files of this workspace. Only names are looked at, so nothing has to be hidden from ripgrep."""
    ripgrep = Ripgrep(workspace, commands, rg)

    def check(arguments: JsonObject, context: ToolContext) -> Problem | None:
        return search_problem(workspace, arguments["path"], arguments["pattern"])

    def authorize(arguments: JsonObject, situation: Situation) -> Decision | None:
        return search_opinion(workspace, arguments["path"], arguments["pattern"]) or ripgrep.opinion()

    async def handler(
        context: ToolContext,
        pattern: Annotated[str, Field(min_length=1, max_length=MAX_PATTERN_CHARS)],
        path: str = ".",
        limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
        offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0,
    ) -> Paths:
        """Find files by their names. Returns paths from the root of the workspace on, sorted.

        Files that .gitignore leaves out are listed only when path, or the start of the pattern, is a folder of them.
        Links and folders are not listed: see them with list_dir.

        Args:
            pattern: *.py in all folders; src/*.py in one; src/**/*.{ts,tsx} in it and below.
            path: The folder that the pattern begins in.
            limit: How many paths to show.
            offset: How many to skip, to read on.
        """
        asked = Paths(pattern=pattern, path=path, offset=offset, limit=limit)
        return await _listed(ripgrep, search_place(workspace, path, pattern, context.judged), asked)

    return tool(
        handler,
        name="glob",
        risk="read",
        idempotent=True,
        concurrency="safe",
        timeout_seconds=60,
        max_output_chars=_MAX_OUTPUT_CHARS,
        resources={"path": "path"},
        reach=ripgrep.reach,
        check=check,
        authorize=authorize,
        normalize=normalized,
    )


async def _listed(ripgrep: Ripgrep, place: SearchPlace, asked: Paths) -> Paths:
    if place.is_missing:
        return asked
    options = ("--files", *name_options(place.pattern))
    reader, done = await ripgrep.run(options, place.relative, NameReader)
    order = sorted(place.meant(reader.names()))
    allowed = done.closed.open_among(order)
    if len(order) <= _FEW:
        allowed = [path for path in allowed if not done.closed.forbids(path)]
    if done.stopped and done.stopped not in TOO_MUCH and not allowed:
        raise unfinished(done.stopped)
    found, closed, order = len(allowed), len(order) - len(allowed), allowed
    if done.stopped == "output_limit":
        reader, _ = await ripgrep.run((*options, "--sort=path"), place.relative, NameReader)
        order = place.meant(reader.names())
    shown = (shown_name(path) for path in order if not done.closed.forbids(path))
    return msgspec.structs.replace(
        asked,
        page=line_page(shown, asked.offset, asked.limit, _MAX_TEXT_CHARS),
        found=found,
        closed=closed,
        unreadable=done.unreadable,
        stopped=done.stopped,
        why_all=done.why_all(),
    )


def normalized(found: Paths) -> Normalized:
    following = found.next_offset
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
    read_on = {"pattern": found.pattern, "path": found.path, "limit": found.limit, "offset": following}
    summary = _summary(found)
    return Normalized(
        summary=summary,
        text="\n".join(filter(None, (found.page.text, found.why_all))),
        user_text=f"Looked in {found.path} for {found.pattern}: {summary}",
        side_effects=(),
        facts=facts,
        next_hint=f"offset={following} shows the next ones. A narrower pattern finds fewer." if following else "",
        next_tool=NextTool(tool="glob", input_hint=read_on) if following else None,
    )


def _summary(found: Paths) -> str:
    closed = f" Not listed, since closed to tools: {found.closed:,}." if found.closed else ""
    why = f" ({STOPPED[found.stopped]})" if found.stopped else ""
    missed = f" Could not be read: {found.unreadable:,}." if found.unreadable else ""
    if not found.found:
        return f"No file fits{why}.{closed}{missed}"
    at_least = "At least " if found.stopped else ""
    files = f"{found.found:,} file{'' if found.found == 1 else 's'}"
    return f"{at_least}{files}{why}; {_shown(found)}.{closed}{missed}"


def _shown(found: Paths) -> str:
    returned = found.page.returned
    if not returned:
        return f"none after the first {found.offset:,}"
    if returned == found.found:
        return "all shown"
    return f"{found.offset + 1:,} to {found.offset + returned:,} shown"
