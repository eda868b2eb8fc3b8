"""`write_file`: create a file, or replace one that the run has read completely."""

import msgspec

from ...changes.store import ChangeStore
from ...domain.tool import Diagnose, JsonObject, ToolContext, ToolDefinition
from ...registry.decorator import tool
from ...sandbox.workspace.workspace import Workspace
from .baseline import FileBaseline, display_path
from .file_change import (
    PlannedChange,
    UnchangedFile,
    WriteFailure,
    WrittenFile,
    check_redaction_marks,
    encode_content,
    normalize_change,
    write_change,
)
from .file_content import locate_for_writing, make_precondition_error
from .known_file import load_known_file, load_text, make_check, make_reconcile, make_write_key
from .path_boundary import describe_write_scope, make_path_authorizer
from .text_file import TextFile, detect_line_endings, parse_byte_order_mark


def write_file_tool(
    workspace: Workspace, diagnose: Diagnose | None = None, changes: ChangeStore | None = None
) -> ToolDefinition:
    """Return the tool, for the files of this workspace."""

    def prepare(arguments: JsonObject, context: ToolContext) -> PlannedChange | UnchangedFile:
        return _prepare_change(workspace, arguments["path"], arguments["content"], context)

    def was_done(arguments: JsonObject) -> bool | None:
        return _was_written(workspace, arguments["path"], arguments["content"])

    def handler(context: ToolContext, path: str, content: str) -> WrittenFile | WriteFailure | UnchangedFile:
        """Write a whole text file. Makes the file and its folders, or replaces all that is in it.

        A file that exists must have been read from its first to its last line, or written, in this run, and be
        unchanged since. To change a part of a file, use edit_file. The result is a diff.

        Args:
            path: From the root of the workspace on.
            content: All of the new content.
        """
        prepared = _prepare_change(workspace, path, content, context)
        return (
            prepared
            if isinstance(prepared, UnchangedFile)
            else write_change(workspace, path, prepared, context, changes)
        )

    definition = tool(
        handler,
        name="write_file",
        risk="write",
        write_keys=make_write_key(workspace),
        resources={"path": "path"},
        check=make_check(prepare, workspace),
        authorize=make_path_authorizer(workspace, writing=True),
        reach=describe_write_scope,
        normalize=normalize_change,
        reconcile=make_reconcile(was_done),
    )
    return msgspec.structs.replace(definition, diagnose=diagnose)


def _prepare_change(
    workspace: Workspace, path: str, content: str, context: ToolContext
) -> PlannedChange | UnchangedFile:
    """Plan the write. Raise `PreconditionError` where it cannot be done."""
    place = locate_for_writing(workspace, path, context.judged)
    relative = display_path(place.relative)
    if place.exists:
        return _prepare_overwrite(workspace, path, content, context)
    new = parse_byte_order_mark(content, "utf-8")
    written = encode_content(relative, new)
    return PlannedChange(path=relative, before=None, old=None, new=new, content=written, whole=True)


def _prepare_overwrite(
    workspace: Workspace, path: str, content: str, context: ToolContext
) -> PlannedChange | UnchangedFile:
    before, old, baseline = load_known_file(workspace, path, context)
    if not baseline.whole:
        raise make_precondition_error(_unread_message(before.path, baseline))
    if old.encoding == "unknown-8bit":
        raise make_precondition_error(
            f"{before.path} has bytes that are no UTF-8, and they would be lost. Change it with edit_file"
        )
    new, notes = _match_format(old, content)
    check_redaction_marks(before, old.text, new.text, context)
    written = encode_content(before.path, new)
    if written == before.content:
        return UnchangedFile(before.path, baseline)
    return PlannedChange(path=before.path, before=before, old=old, new=new, content=written, whole=True, notes=notes)


def _was_written(workspace: Workspace, path: str, content: str) -> bool | None:
    """Return whether the content was written. Writes are atomic, so the file has this content, or there is none yet;
    any other content may be older or newer.
    """
    if not locate_for_writing(workspace, path, None).exists:
        return False
    file, text = load_text(workspace, path)
    if text.encoding == "unknown-8bit":
        return None
    written, _ = _match_format(text, content)
    return True if encode_content(file.path, written) == file.content else None


def _match_format(old: TextFile, content: str) -> tuple[TextFile, tuple[str, ...]]:
    """Convert the new content to the encoding and line endings of the old, which are not shown to readers."""
    notes: list[str] = []
    if detect_line_endings(old.text) == "crlf" and detect_line_endings(content) == "lf":
        content = content.replace("\n", "\r\n")
        notes.append("line endings (CRLF) kept")
    if old.encoding != "utf-8":
        notes.append(f"encoding ({old.encoding}) kept")
    return parse_byte_order_mark(content, old.encoding), tuple(notes)


def _unread_message(path: str, baseline: FileBaseline) -> str:
    if baseline.cut:
        return f"{path} has lines that are too long to be shown, so not all of it is known. Change it with edit_file"
    shown = ", ".join(f"{first:,}-{last:,}" for first, last in baseline.ranges[:10]) or "none"
    return (
        f"not all of {path} was read in this run: lines {shown} of {baseline.lines:,} were shown."
        " Read the others first, or change a part of it with edit_file"
    )
