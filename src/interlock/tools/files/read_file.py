"""`read_file`: the lines of a text file, numbered, page by page; the run remembers which lines of which version were
shown.

Theory of operation. One descriptor gives the bytes; their digest is the version. Lines that the run was already shown
of that version are not shown again. What was shown is added to what is known when the result is put in shape, which
happens one call after the other, so that reads of one file side by side do not forget each other.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from pydantic import Field

from ...domain.errors import PreconditionError
from ...domain.outcome import NextTool, OutputSize
from ...domain.tool import CheckProblem, JsonObject, NormalizedOutput, ToolContext, ToolDefinition
from ...registry.decorator import tool
from ...sandbox.workspace.open_files import PathKind
from ...sandbox.workspace.refusals import PathRefusedError
from ...sandbox.workspace.workspace import Workspace
from .baseline import FileBaseline, display_path, load_baseline
from .file_content import FileContent, load_file, make_precondition_error, refusals_as_preconditions
from .numbered_lines import MAX_LINE_CHARS, MAX_TEXT_CHARS, number_lines
from .path_boundary import describe_read_scope, make_path_authorizer
from .text_file import BinaryContent, TextFile, decode_content, detect_line_endings

DEFAULT_LIMIT = 2_000
MAX_LIMIT = 20_000
#: What is shown for a secret may be longer than the secret.
_MAX_OUTPUT_CHARS = MAX_TEXT_CHARS + 10_000
#: Messages for paths that are no readable files.
_UNREADABLE_MESSAGES: dict[PathKind, str] = {
    "missing": "does not exist. Look for the right name with glob or list_dir",
    "folder": "is a folder. See what is in it with list_dir",
    "link": "is a link that leads nowhere",
    "other": "is no plain file, and only those are read",
}


class ReadResult(msgspec.Struct, frozen=True, kw_only=True):
    """Lines `first` to `last` of a file; last is 0 where there are none."""

    file: FileContent
    #: Numbered.
    text: str
    encoding: str
    line_endings: str
    offset: int
    limit: int
    last: int
    lines: int
    #: How many of the shown lines are too long to be shown to their end.
    cut_lines: int
    #: How much of the rest of the file, from the offset on, is shown. None: all of it.
    size: OutputSize | None
    #: What the run knows, as it is when it is looked at.
    state: Mapping[str, Any]

    @property
    def is_truncated(self) -> bool:
        """True if lines were cut."""
        return self.size is not None

    @property
    def next_offset(self) -> int | None:
        """Line that follows the last one, or None at the end."""
        return self.last + 1 if self.last < self.lines else None


class UnchangedRead(msgspec.Struct, frozen=True):
    """Everything requested was shown before and is unchanged."""

    path: str
    baseline: FileBaseline
    first: int
    last: int


class BinaryFile(msgspec.Struct, frozen=True):
    """A file that is no text."""

    file: FileContent
    kind: str


def read_file_tool(workspace: Workspace) -> ToolDefinition:
    """Return the tool, for the files of this workspace."""

    def check(arguments: JsonObject, context: ToolContext) -> CheckProblem | None:
        try:
            with refusals_as_preconditions():
                place = workspace.locate(arguments["path"])
        except PathRefusedError:
            return None  # reported by policy
        except PreconditionError as error:
            return error.problem
        words = _UNREADABLE_MESSAGES.get(place.kind)
        return CheckProblem(message=f"{display_path(place.relative)} {words}") if words else None

    def handler(
        context: ToolContext,
        path: str,
        offset: Annotated[int, Field(ge=1)] = 1,
        limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
        again: bool = False,
    ) -> ReadResult | UnchangedRead | BinaryFile:
        """Read a text file. Each line comes as its number, a tab and its text; the number is not part of the file.

        Returns up to 2,000 lines and says where to go on. Lines are cut after 2,000 characters. Lines that were shown
        before and did not change are not shown again: the result says file_unchanged. A file has to be read before
        edit_file or write_file may change it.

        Args:
            path: From the root of the workspace on.
            offset: The first line to read, from 1 on.
            limit: How many lines to read.
            again: Show the lines even if they were shown before, when you can no longer see them.
        """
        file = load_file(workspace, path, context.judged)
        if not again and (unchanged := _find_unchanged(file, offset, limit, context.state)):
            return unchanged
        match decode_content(file.content):
            case BinaryContent(kind=kind):
                return BinaryFile(file, kind)
            case TextFile() as text:
                return show_lines(file, text, offset, limit, context.state)

    return tool(
        handler,
        name="read_file",
        risk="read",
        idempotent=True,
        concurrency="safe",
        max_output_chars=_MAX_OUTPUT_CHARS,
        resources={"path": "path"},
        check=check,
        authorize=make_path_authorizer(workspace, writing=False),
        reach=describe_read_scope,
        normalize=normalize_read,
    )


def _find_unchanged(file: FileContent, offset: int, limit: int, state: Mapping[str, Any]) -> UnchangedRead | None:
    baseline = load_baseline(state, file.path)
    if baseline is None or baseline.sha256 != file.sha256:
        return None
    last = min(baseline.lines, offset + limit - 1)
    if offset > max(last, 1) or not baseline.has_shown_lines(offset, last):
        return None
    return UnchangedRead(file.path, baseline, offset, last)


def show_lines(file: FileContent, text: TextFile, offset: int, limit: int, state: Mapping[str, Any]) -> ReadResult:
    """Number the requested lines of a file. Raise if the offset is past its end."""
    found = number_lines(text, offset, limit)
    if offset > max(found.total, 1):
        raise make_precondition_error(
            f"{file.path} has {found.total:,} lines, so there is none from offset {offset:,} on"
        )
    return ReadResult(
        file=file,
        text=found.text,
        encoding=text.encoding,
        line_endings=detect_line_endings(text.text),
        offset=offset,
        limit=limit,
        last=offset + found.shown - 1,
        lines=found.total,
        cut_lines=found.cut,
        size=found.size,
        state=state,
    )


def normalize_read(found: ReadResult | UnchangedRead | BinaryFile) -> NormalizedOutput:
    """Convert the result of a read for the model."""
    match found:
        case ReadResult():
            return _normalize_lines(found)
        case UnchangedRead():
            return _normalize_unchanged(found)
        case BinaryFile():
            return _normalize_binary(found)


def _normalize_lines(found: ReadResult) -> NormalizedOutput:
    file, next_offset = found.file, found.next_offset
    where = f"lines {found.offset:,}-{found.last:,} of {found.lines:,}" if found.lines else "the file is empty"
    cut = f"; {found.cut_lines:,} of them cut after {MAX_LINE_CHARS:,} characters" if found.cut_lines else ""
    has_more = next_offset is not None
    return NormalizedOutput(
        summary=f"{file.path}: {where}{cut}",
        text=found.text,
        user_text=f"Read {file.path} ({where})",
        side_effects=(),
        facts={
            "path": file.path,
            "sha256": file.sha256,
            "size_bytes": len(file.content),
            "mtime_ns": str(file.mtime_ns),
            "encoding": found.encoding,
            "line_endings": found.line_endings,
            "offset": found.offset,
            "limit": found.limit,
            "last_line": found.last,
            "lines": found.lines,
            "cut_lines": found.cut_lines,
            "truncated": found.is_truncated,
        },
        size=found.size,
        next_hint=f"{where}; next: offset={next_offset} limit={found.limit}" if has_more else "",
        next_tool=NextTool(
            tool="read_file", input_hint={"path": file.path, "offset": next_offset, "limit": found.limit}
        )
        if has_more
        else None,
        state=_update_baseline(found).to_state(file.path),
    )


def _update_baseline(found: ReadResult) -> FileBaseline:
    """Return what the run knows of the file now that these lines are shown."""
    file = found.file
    baseline = load_baseline(found.state, file.path)
    if baseline is None or baseline.sha256 != file.sha256:
        baseline = _make_baseline(file, found.encoding, found.lines)
    return baseline.with_shown_lines(found.offset, found.last, cut=found.cut_lines > 0)


def _make_baseline(file: FileContent, encoding: str, lines: int) -> FileBaseline:
    return FileBaseline(
        sha256=file.sha256, size_bytes=len(file.content), mtime_ns=file.mtime_ns, encoding=encoding, lines=lines
    )


def _normalize_unchanged(found: UnchangedRead) -> NormalizedOutput:
    where = f"lines {found.first:,}-{found.last:,} of {found.baseline.lines:,}" if found.last else "the empty file"
    return NormalizedOutput(
        code="file_unchanged",
        summary=f"file_unchanged: {found.path} is as it was when it was shown in this run ({where}); not shown again",
        text="",
        user_text=f"Read {found.path} (unchanged)",
        side_effects=(),
        facts={
            "code": "file_unchanged",
            "path": found.path,
            "sha256": found.baseline.sha256,
            "offset": found.first,
            "last_line": found.last,
            "lines": found.baseline.lines,
        },
        next_hint="Use what was shown before. If you can no longer see it, read it with again=true.",
    )


def _normalize_binary(found: BinaryFile) -> NormalizedOutput:
    file, kind = found.file, found.kind or "unknown kind"
    what = f"{kind}, {len(file.content):,} bytes"
    return NormalizedOutput(
        summary=f"{file.path} is a binary file ({what}); its content is not shown",
        text="",
        user_text=f"{file.path} is binary ({what})",
        side_effects=(),
        facts={
            "path": file.path,
            "binary": True,
            "kind": found.kind,
            "sha256": file.sha256,
            "size_bytes": len(file.content),
            "mtime_ns": str(file.mtime_ns),
        },
        state=_make_baseline(file, "binary", 0).to_state(file.path),
    )
