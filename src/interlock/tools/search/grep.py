"""`grep`: lines, files or counts, found by ripgrep in its sandbox.

A line that was found was not read: the run remembers nothing of it, and an edit still needs read_file.
"""

from collections.abc import Callable

from ...domain.decision import Decision
from ...domain.outcome import NextTool
from ...domain.tool import CallContext, CheckProblem, JsonObject, NormalizedOutput, ToolContext, ToolDefinition
from ...registry.decorator import tool
from ...rendering.text import pluralize
from ...sandbox.interface import CommandSandbox
from ...sandbox.workspace.workspace import Workspace
from ..files.file_content import make_precondition_error
from .query import Query, SearchMatches, run_search
from .ripgrep import STOP_REASONS, Ripgrep
from .search_output import describe_page
from .search_root import authorize_search, check_search, find_search_root

#: Wider than what a page holds: what is shown for a secret may be longer than the secret.
_MAX_OUTPUT_CHARS = 34_000
_MAX_NAMED = 10


def grep_tool(
    workspace: Workspace, commands: CommandSandbox, rg: str, hidden: Callable[[], tuple[str, ...]]
) -> ToolDefinition:
    """Return the tool for the files of this workspace. `hidden` returns the absolute paths that are closed to tools."""
    ripgrep = Ripgrep(workspace, commands, rg, hidden)

    def check(arguments: JsonObject, context: ToolContext) -> CheckProblem | None:
        return check_search(workspace, arguments["path"], arguments["glob"])

    def authorize(arguments: JsonObject, situation: CallContext) -> Decision | None:
        return authorize_search(workspace, arguments["path"], arguments["glob"]) or ripgrep.authorize()

    async def handler(context: ToolContext, query: Query) -> SearchMatches:
        """Search the contents of files for a regular expression. Returns lines as `path:line: text`, sorted by path.

        Files that .gitignore leaves out are searched only when path names them or a folder of them. Links are not
        followed. Long lines are cut around the match. A match is not a read: read_file a file before you change it.

        Args:
            pattern: A regular expression of ripgrep (Rust): without lookaround and backreferences.
            path: The folder or file to search.
            glob: Only files that fit, such as *.py or src/**/*.{ts,tsx}.
            output: content shows lines, files the paths only, count how many lines match in each file.
            context: How many lines around each match to show.
            case_insensitive: Take capital and small letters for the same.
            literal: The pattern is plain text.
            multiline: Let a match span lines.
            limit: How many lines, or files, to show.
            offset: How many to skip, to read on.
        """
        if "\0" in query.pattern:
            raise make_precondition_error(r"The pattern holds a NUL character. `\x00` stands for one")
        return await run_search(ripgrep, query, find_search_root(workspace, query.path, query.glob, context.judged))

    return tool(
        handler,
        name="grep",
        args_model=Query,
        risk="read",
        idempotent=True,
        concurrency="safe",
        timeout_seconds=60,
        max_output_chars=_MAX_OUTPUT_CHARS,
        resources={"path": "path"},
        reach=ripgrep.describe_scope,
        check=check,
        authorize=authorize,
        normalize=normalize_matches,
    )


def normalize_matches(found: SearchMatches) -> NormalizedOutput:
    """Convert found lines for the model."""
    query = found.query
    summary = _summarize(found)
    next_offset = found.next_offset
    facts = {
        "query": query.model_dump(exclude_defaults=True),
        "matched_lines": found.lines,
        "matched_files": found.files,
        "returned": found.page.returned,
        "complete": not found.stopped and not found.unreadable,
        "binary_files": len(found.binary),
        "closed": found.closed,
        "unreadable": found.unreadable,
        "ignore_files_obeyed": not found.why_all,
    }
    next_arguments = query.model_dump(exclude_defaults=True) | {"offset": next_offset}
    fewer = "A narrower pattern, path or glob finds fewer."
    return NormalizedOutput(
        summary=summary,
        text=_format_text(found),
        user_text=f"Searched {query.path} for {query.pattern}: {summary}",
        side_effects=(),
        facts=facts,
        next_hint=f"offset={next_offset} shows the next ones. {fewer}" if next_offset else "",
        next_tool=NextTool(tool="grep", input_hint=next_arguments) if next_offset else None,
    )


def _summarize(found: SearchMatches) -> str:
    query = found.query
    at_least = "At least " if found.stopped else ""
    if not found.files and found.binary:
        return f"{at_least}{pluralize(len(found.binary), 'binary file')} with a match, and no other file."
    if not found.files and found.stopped:
        return f"No match so far: {STOP_REASONS[found.stopped]}."
    if not found.files:
        return "No match in what could be read." if found.unreadable else "No match."
    files = pluralize(found.files, "file")
    matched = files if query.output == "files" else f"{pluralize(found.lines, 'matching line')} in {files}"
    why = f" ({STOP_REASONS[found.stopped]})" if found.stopped else ""
    return f"{at_least}{matched}{why}; {describe_page(query.offset, found.page.returned, found.total)}."


def _format_text(found: SearchMatches) -> str:
    """Format the lines, then notes about what was left out."""
    notes: list[str] = []
    if found.binary:
        named = ", ".join(found.binary[:_MAX_NAMED])
        more = f" and {len(found.binary) - _MAX_NAMED:,} more" if len(found.binary) > _MAX_NAMED else ""
        notes.append(f"[binary, and not shown: {named}{more}]")
    for count, note in ((found.closed, "not searched, since closed to tools"), (found.unreadable, "could not be read")):
        if count:
            notes.append(f"[{note}: {'1 file or folder' if count == 1 else f'{count:,} files or folders'}]")
    return "\n".join(filter(None, (found.page.text, *notes, found.why_all)))
