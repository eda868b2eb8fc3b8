"""`write_file`: make a file, or replace all of one that the run knows all of."""

from ...domain.tool import JsonObject, ToolContext, ToolDefinition
from ...registry.decorator import tool
from ...sandbox.workspace.workspace import Workspace
from .baseline import Baseline, shown_path
from .boundary import path_opinion, writes_files
from .changed_file import AlreadyThere, Change, FileChanged, NotWritten, check_marks, encoded, normalized, write
from .file_content import cannot, place_to_write
from .known_file import check_by, known_file, reconcile_by, text_at, write_key
from .text_file import TextFile, line_endings, marked_text


def write_file(workspace: Workspace) -> ToolDefinition:
    """The tool, for the files of this workspace."""

    def prepare(arguments: JsonObject, context: ToolContext) -> Change | AlreadyThere:
        return _prepared(workspace, arguments["path"], arguments["content"], context)

    def was_done(arguments: JsonObject) -> bool | None:
        return _was_written(workspace, arguments["path"], arguments["content"])

    def handler(context: ToolContext, path: str, content: str) -> FileChanged | NotWritten | AlreadyThere:
        """Write a whole text file. Makes the file and its folders, or replaces all that is in it.

        A file that exists must have been read from its first to its last line, or written, in this run, and be
        unchanged since. To change a part of a file, use edit_file. The result is a diff.

        Args:
            path: From the root of the workspace on.
            content: All of the new content.
        """
        prepared = _prepared(workspace, path, content, context)
        return prepared if isinstance(prepared, AlreadyThere) else write(workspace, path, prepared, context)

    return tool(
        handler,
        name="write_file",
        risk="write",
        write_keys=write_key(workspace),
        resources={"path": "path"},
        check=check_by(prepare, workspace),
        authorize=path_opinion(workspace, writing=True),
        reach=writes_files,
        normalize=normalized,
        reconcile=reconcile_by(was_done),
    )


def _prepared(workspace: Workspace, path: str, content: str, context: ToolContext) -> Change | AlreadyThere:
    """What the call comes to now. PreconditionError where it cannot be done."""
    place = place_to_write(workspace, path, context.judged)
    relative = shown_path(place.relative)
    if place.exists:
        return _overwriting(workspace, path, content, context)
    new = marked_text(content, "utf-8")
    written = encoded(relative, new)
    return Change(path=relative, before=None, old=None, new=new, content=written, whole=True)


def _overwriting(workspace: Workspace, path: str, content: str, context: ToolContext) -> Change | AlreadyThere:
    before, old, baseline = known_file(workspace, path, context)
    if not baseline.whole:
        raise cannot(_not_all_read(before.path, baseline))
    if old.encoding == "unknown-8bit":
        raise cannot(f"{before.path} has bytes that are no UTF-8, and they would be lost. Change it with edit_file")
    new, notes = _like(old, content)
    check_marks(before, old.text, new.text, context)
    written = encoded(before.path, new)
    if written == before.content:
        return AlreadyThere(before.path, baseline)
    return Change(path=before.path, before=before, old=old, new=new, content=written, whole=True, notes=notes)


def _was_written(workspace: Workspace, path: str, content: str) -> bool | None:
    """A file comes with all that is in it. So it has this content, or there is none yet; any other content may be what
    was there before, or what somebody wrote later."""
    if not place_to_write(workspace, path, None).exists:
        return False
    file, text = text_at(workspace, path)
    if text.encoding == "unknown-8bit":
        return None
    written, _ = _like(text, content)
    return True if encoded(file.path, written) == file.content else None


def _like(old: TextFile, content: str) -> tuple[TextFile, tuple[str, ...]]:
    """The new content in the encoding and with the line endings of the old, which readers are not shown."""
    notes: list[str] = []
    if line_endings(old.text) == "crlf" and line_endings(content) == "lf":
        content = content.replace("\n", "\r\n")
        notes.append("line endings (CRLF) kept")
    if old.encoding != "utf-8":
        notes.append(f"encoding ({old.encoding}) kept")
    return marked_text(content, old.encoding), tuple(notes)


def _not_all_read(path: str, baseline: Baseline) -> str:
    if baseline.cut:
        return f"{path} has lines that are too long to be shown, so not all of it is known. Change it with edit_file"
    shown = ", ".join(f"{first:,}-{last:,}" for first, last in baseline.ranges[:10]) or "none"
    return (
        f"not all of {path} was read in this run: lines {shown} of {baseline.lines:,} were shown."
        " Read the others first, or change a part of it with edit_file"
    )
