"""`edit_file`: replace exact texts in a file that was read, all of them or none, and show what changed."""

from typing import Annotated

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...changes.store import ChangeStore
from ...domain.errors import PreconditionError
from ...domain.tool import CheckProblem, Diagnose, JsonObject, ToolContext, ToolDefinition
from ...registry.decorator import tool
from ...sandbox.workspace.workspace import Workspace
from .baseline import display_path
from .edits import EditFailure, TextEdit, apply_edits, were_edits_applied
from .file_change import (
    PlannedChange,
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
    def check_one_form(self) -> "EditFile":
        """Raise if not exactly one form of the edit is given."""
        if self.edits and (self.old_string or self.new_string or self.replace_all):
            raise ValueError("give old_string and new_string, or edits, and not both")
        if not self.edits and not self.old_string:
            raise ValueError("give old_string and new_string, or edits; old_string must not be empty")
        return self


def edit_file_tool(
    workspace: Workspace, diagnose: Diagnose | None = None, changes: ChangeStore | None = None
) -> ToolDefinition:
    """Return the tool, for the files of this workspace."""

    def prepare(arguments: JsonObject, context: ToolContext) -> PlannedChange:
        return _prepare_change(workspace, EditFile.model_validate(arguments), context)

    def was_done(arguments: JsonObject) -> bool | None:
        call = EditFile.model_validate(arguments)
        _, text = load_text(workspace, call.path)
        return were_edits_applied(text.text, _to_edits(call))

    def handler(context: ToolContext, call: EditFile) -> WrittenFile | WriteFailure:
        """Replace exact texts in a file that you have read with read_file in this run.

        old_string must be the file's text, with its indentation and without line numbers, and must be there once,
        unless replace_all is set. The result is a diff. When the file changed since you read it, read it again.
        """
        return write_change(workspace, call.path, _prepare_change(workspace, call, context), context, changes)

    definition = tool(
        handler,
        name="edit_file",
        args_model=EditFile,
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


def _prepare_change(workspace: Workspace, call: EditFile, context: ToolContext) -> PlannedChange:
    """Plan the edit. Raise `PreconditionError` where it cannot be applied."""
    place = locate_for_writing(workspace, call.path, context.judged)
    if not place.exists:
        raise make_precondition_error(
            f"{display_path(place.relative)} does not exist yet. Make it with write_file, and edit it when that is done"
        )
    before, old, baseline = load_known_file(workspace, call.path, context)
    edited = apply_edits(old.text, _to_edits(call))
    if isinstance(edited, EditFailure):
        raise _make_edit_error(before.path, edited)
    check_redaction_marks(before, old.text, edited.text, context)
    new = TextFile(edited.text, old.encoding)
    return PlannedChange(
        path=before.path,
        before=before,
        old=old,
        new=new,
        content=encode_content(before.path, new),
        whole=baseline.whole,
        replacements=edited.replacements,
        notes=("line endings (CRLF) kept",) if edited.line_endings_kept else (),
    )


def _to_edits(call: EditFile) -> list[TextEdit]:
    if call.edits:
        return [TextEdit(edit.old_string, edit.new_string, edit.replace_all) for edit in call.edits]
    return [TextEdit(call.old_string, call.new_string, call.replace_all)]


def _make_edit_error(path: str, edited: EditFailure) -> PreconditionError:
    code = "ambiguous_target" if edited.reason == "ambiguous" else "runtime_precondition_failed"
    return PreconditionError(CheckProblem(code=code, message=f"{path}: {edited.message}"))
