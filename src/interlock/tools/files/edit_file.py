"""`edit_file`: replace exact texts in a file that was read, all of them or none, and show what changed."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...domain.errors import PreconditionError
from ...domain.tool import JsonObject, Problem, ToolContext, ToolDefinition
from ...registry.decorator import tool
from ...sandbox.workspace.workspace import Workspace
from .baseline import shown_path
from .boundary import path_opinion, writes_files
from .changed_file import Change, FileChanged, NotWritten, check_marks, encoded, normalized, write
from .edits import Edit, NotEdited, apply_edits, were_made
from .file_content import cannot, place_to_write
from .known_file import check_by, known_file, reconcile_by, text_at, write_key
from .text_file import TextFile

MAX_EDITS = 100


class Replacement(BaseModel):
    """One text to replace."""

    model_config = ConfigDict(extra="forbid", strict=True)

    old_string: Annotated[str, Field(min_length=1, description="The exact text to replace.")]
    new_string: Annotated[str, Field(description="What takes its place.")]
    replace_all: Annotated[bool, Field(description="Replace it wherever it is.")] = False


class EditFile(BaseModel):
    path: Annotated[str, Field(description="From the root of the workspace on.")]
    old_string: Annotated[
        str,
        Field(description="The exact text to replace, without line numbers, with enough around it to be found once."),
    ] = ""
    new_string: Annotated[str, Field(description="What takes its place.")] = ""
    replace_all: Annotated[bool, Field(description="Replace it wherever it is, instead of once.")] = False
    edits: Annotated[
        list[Replacement],
        Field(
            max_length=MAX_EDITS,
            description="Several replacements at once, in place of old_string and new_string. Each is looked for in"
            " the file as it is now; all are made, or none.",
        ),
    ] = []

    @model_validator(mode="after")
    def one_way(self) -> "EditFile":
        if self.edits and (self.old_string or self.new_string or self.replace_all):
            raise ValueError("give old_string and new_string, or edits, and not both")
        if not self.edits and not self.old_string:
            raise ValueError("give old_string and new_string, or edits; old_string must not be empty")
        return self


def edit_file(workspace: Workspace) -> ToolDefinition:
    """The tool, for the files of this workspace."""

    def prepare(arguments: JsonObject, context: ToolContext) -> Change:
        return _prepared(workspace, EditFile.model_validate(arguments), context)

    def was_done(arguments: JsonObject) -> bool | None:
        call = EditFile.model_validate(arguments)
        _, text = text_at(workspace, call.path)
        return were_made(text.text, _edits(call))

    def handler(context: ToolContext, call: EditFile) -> FileChanged | NotWritten:
        """Replace exact texts in a file that you have read with read_file in this run.

        old_string must be the file's text, with its indentation and without line numbers, and must be there once,
        unless replace_all is set. The result is a diff. When the file changed since you read it, read it again.
        """
        return write(workspace, call.path, _prepared(workspace, call, context), context)

    return tool(
        handler,
        name="edit_file",
        args_model=EditFile,
        risk="write",
        write_keys=write_key(workspace),
        resources={"path": "path"},
        check=check_by(prepare, workspace),
        authorize=path_opinion(workspace, writing=True),
        reach=writes_files,
        normalize=normalized,
        reconcile=reconcile_by(was_done),
    )


def _prepared(workspace: Workspace, call: EditFile, context: ToolContext) -> Change:
    """What the edit comes to now. PreconditionError where it comes to nothing."""
    place = place_to_write(workspace, call.path, context.judged)
    if not place.exists:
        raise cannot(
            f"{shown_path(place.relative)} does not exist yet. Make it with write_file, and edit it when that is done"
        )
    before, old, baseline = known_file(workspace, call.path, context)
    edited = apply_edits(old.text, _edits(call))
    if isinstance(edited, NotEdited):
        raise _not_edited(before.path, edited)
    check_marks(before, old.text, edited.text, context)
    new = TextFile(edited.text, old.encoding)
    return Change(
        path=before.path,
        before=before,
        old=old,
        new=new,
        content=encoded(before.path, new),
        whole=baseline.whole,
        replacements=edited.replacements,
        notes=("line endings (CRLF) kept",) if edited.line_endings_kept else (),
    )


def _edits(call: EditFile) -> list[Edit]:
    if call.edits:
        return [Edit(edit.old_string, edit.new_string, edit.replace_all) for edit in call.edits]
    return [Edit(call.old_string, call.new_string, call.replace_all)]


def _not_edited(path: str, edited: NotEdited) -> PreconditionError:
    code = "ambiguous_target" if edited.reason == "ambiguous" else "runtime_precondition_failed"
    return PreconditionError(Problem(code=code, message=f"{path}: {edited.message}"))
