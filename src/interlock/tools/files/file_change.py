"""Writes a file for a tool: checked until the last moment, with evidence of before and after.

Edits and whole new contents share this. A `PlannedChange` is what is to be written; `write_change` does it and returns
a `WrittenFile` or, where the system refused, a `WriteFailure`. In both cases nothing is half done.

The new file takes the name of the old one, so a hard link of the old one elsewhere keeps the old content.
"""

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Literal

import msgspec

from ...changes.change_set import CHANGE_SET_FACT, FileState, compare_states
from ...changes.file_access import UnsupportedFileError
from ...changes.store import ChangeStore
from ...domain.errors import ArtifactError, PreconditionError
from ...domain.outcome import ArtifactRef, NextTool, OutputSize, SideEffect
from ...domain.tool import CheckProblem, NormalizedOutput, ToolContext
from ...rendering.diff import Diff, DiffExcerpt, make_unified_diff, truncate_diff
from ...sandbox.workspace.open_files import ReplacedFile
from ...sandbox.workspace.refusals import PathRefusedError
from ...sandbox.workspace.workspace import Workspace
from .baseline import FileBaseline, display_path
from .file_content import (
    MAX_FILE_BYTES,
    FileContent,
    has_same_content,
    make_precondition_error,
    make_too_large_error,
    refusals_as_preconditions,
)
from .text_file import TextFile, count_lines, encode_text

MAX_DIFF_CHARS = 20_000
#: A new file's content is known to its author.
MAX_NEW_FILE_DIFF_CHARS = 4_000
_MAX_HUNKS_LOGGED = 100
_REDACTION_MARK = re.compile(r"\[redacted:[^\]\s]*\]")


class PlannedChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written, and the current file."""

    #: The real path from the root of the workspace, as text.
    path: str
    before: FileContent | None
    old: TextFile | None
    new: TextFile
    #: What will be in the file: the new text, encoded.
    content: bytes
    #: Whether the run will know all of the file.
    whole: bool
    replacements: int = 0
    #: What a reader should know about how it was done.
    notes: tuple[str, ...] = ()


class WrittenFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was written."""

    change: PlannedChange
    path: str
    created: bool
    old_content: bytes | None
    new_content: bytes
    #: The structured patch is its `hunks`.
    diff: Diff
    shown: DiffExcerpt
    #: All of the diff, where not all of it is shown.
    diff_artifact: ArtifactRef | None
    mtime_ns: int
    baseline: FileBaseline
    #: The digest of the change set, by which it can be undone. Empty: it has none.
    change_set: str = ""
    #: Nothing checks the new content.
    diagnostics: Literal["not run"] = "not run"


class WriteFailure(msgspec.Struct, frozen=True):
    """The system refused to write; the file is unchanged."""

    path: str
    reason: str


class UnchangedFile(msgspec.Struct, frozen=True):
    """The file already has this content."""

    path: str
    baseline: FileBaseline


def write_change(
    workspace: Workspace, path: str, change: PlannedChange, context: ToolContext, changes: ChangeStore | None = None
) -> WrittenFile | WriteFailure:
    """Write the change. `path` is the caller's, so that it is resolved and checked once more.

    Args:
        changes: Where it is kept what the file was, so that the change can be undone.
    """
    history = None if changes is None else _ChangeRecorder(workspace, path, changes, context)
    if change.before is not None:
        _keep_content(context, change.before.content, change.old, "file_before")
    try:
        with refusals_as_preconditions():
            replaced = workspace.replace_file(
                path, change.content, context.judged, precondition=_make_precondition(change, context)
            )
    except OSError as error:
        return WriteFailure(change.path, error.strerror or type(error).__name__)
    written = _record_evidence(change, replaced, context)
    return written if history is None else msgspec.structs.replace(written, change_set=history.keep())


class _ChangeRecorder:
    """Keeps what a file was before a write and is after it. A problem does not fail the write."""

    def __init__(self, workspace: Workspace, path: str, changes: ChangeStore, context: ToolContext) -> None:
        self._workspace, self._changes, self._context = workspace, changes, context
        self._path, self._before = "", dict[str, FileState]()
        try:
            self._path = workspace.locate(path, judged=context.judged).relative
            self._before = changes.capture(workspace, [self._path])
        except (OSError, PathRefusedError, UnsupportedFileError) as error:
            self._warn(error)

    def keep(self) -> str:
        """Keep the change set, and return its digest; empty when it could not be kept."""
        if not self._path:
            return ""
        try:
            now = self._changes.capture(self._workspace, [self._path])
            return self._changes.keep(compare_states(self._before, now))
        except (OSError, UnsupportedFileError) as error:
            self._warn(error)
            return ""

    def _warn(self, error: Exception) -> None:
        self._path = ""
        self._context.warn(f"This change cannot be undone: what the file was could not be kept ({error})")


def stale_file_error(path: str, problem: str = "changed since it was read") -> PreconditionError:
    """Build the error for a file that changed since it was read."""
    message = f"{path} {problem}. Read it again before you change it"
    return PreconditionError(CheckProblem(code="stale_file_baseline", message=message))


def encode_content(path: str, text: TextFile) -> bytes:
    """Return the bytes of the new file. Raise where the text cannot be encoded."""
    if "\0" in text.text:
        raise make_precondition_error(f"the new text for {path} has a NUL character, and only text is written")
    try:
        content = encode_text(text.text, text.encoding)
    except UnicodeEncodeError:
        raise make_precondition_error(
            f"the new text has characters that {path} cannot hold in {text.encoding}"
        ) from None
    if len(content) > MAX_FILE_BYTES:
        raise make_too_large_error(path, len(content))
    return content


def check_redaction_marks(known: FileContent, old: str, new: str, context: ToolContext) -> None:
    """Refuse to write a redaction mark where a secret was: that would destroy the secret."""
    marks = set(_REDACTION_MARK.findall(new)).difference(_REDACTION_MARK.findall(old))
    if marks and marks.intersection(_REDACTION_MARK.findall(_redact_text(old, context))):
        raise make_precondition_error(
            f"the new text has {min(marks)}, which stands for a secret in {known.path} that is not shown."
            " Edit other lines, and leave that one as it is"
        )


def normalize_change(result: WrittenFile | WriteFailure | UnchangedFile) -> NormalizedOutput:
    """Convert the result of a write for the model."""
    match result:
        case WrittenFile():
            return _normalize_written(result)
        case WriteFailure():
            return NormalizedOutput(
                ok=False,
                code="write_failed",
                summary=f"{result.path} could not be written: {result.reason}. The file is as it was.",
                side_effects=(),
                facts={"path": result.path, "reason": result.reason},
            )
        case UnchangedFile():
            return NormalizedOutput(
                summary=f"{result.path} has exactly this content already; nothing was written",
                text="",
                user_text=f"{result.path} is unchanged",
                side_effects=(),
                facts={"path": result.path, "sha256": result.baseline.sha256, "changed": False},
                state=result.baseline.to_state(result.path),
            )


def _make_precondition(change: PlannedChange, context: ToolContext) -> Callable[[int | None], None]:
    """Return a check for right before the replacement: is the file unchanged, and the call not cancelled?"""

    def still(file: int | None) -> None:
        before = change.before
        if context.cancelled:
            raise make_precondition_error(f"the call was stopped before {change.path} was written")
        if before is None and file is not None:
            raise stale_file_error(change.path, "was created by another process meanwhile")
        if before is not None and (file is None or not has_same_content(file, before)):
            raise stale_file_error(change.path, "was changed by another process meanwhile")

    return still


def _record_evidence(change: PlannedChange, replaced: ReplacedFile, context: ToolContext) -> WrittenFile:
    """Record evidence. The file is written, so nothing may fail the call any more."""
    path = display_path(replaced.relative)
    diff = make_unified_diff(change.old.display_text if change.old is not None else None, change.new.display_text, path)
    shown = truncate_diff(diff, MAX_NEW_FILE_DIFF_CHARS if change.old is None else MAX_DIFF_CHARS)
    diff_artifact = None
    try:
        _keep_content(context, change.content, change.new, "file_after")
        diff_artifact = context.keep(_to_utf8(diff.text), "diff") if shown.omitted else None
    except (PreconditionError, ArtifactError, OSError) as error:
        context.warn(f"{path} was written, but the evidence of it could not be kept: {error}")
    return WrittenFile(
        change=change,
        path=path,
        created=replaced.created,
        old_content=change.before.content if change.before is not None else None,
        new_content=change.content,
        diff=diff,
        shown=shown,
        diff_artifact=diff_artifact,
        mtime_ns=replaced.stat.st_mtime_ns,
        baseline=make_baseline(change.content, change.new, replaced.stat.st_mtime_ns, whole=change.whole),
    )


def make_baseline(content: bytes, text: TextFile, mtime_ns: int, *, whole: bool) -> FileBaseline:
    """Return the baseline of a version that the run wrote and was not shown."""
    return FileBaseline(
        sha256=sha256(content).hexdigest(),
        size_bytes=len(content),
        mtime_ns=mtime_ns,
        encoding=text.encoding,
        lines=count_lines(text.text),
        whole=whole,
    )


def _keep_content(context: ToolContext, content: bytes, text: TextFile | None, kind: str) -> None:
    """Store content as evidence. UTF-16 is converted, because secrets are searched for in UTF-8."""
    if text is not None and text.encoding.startswith("utf-16"):
        content = _to_utf8(text.text)
    try:
        context.keep(content, kind)
    except (ArtifactError, OSError) as error:
        raise make_precondition_error(
            f"the content before the change could not be kept as evidence: {error}"
        ) from error


def _redact_text(text: str, context: ToolContext) -> str:
    try:
        secrets_out = context.artifacts.redaction_filter()
    except ArtifactError:
        return text
    return (secrets_out.feed(_to_utf8(text)) + secrets_out.end()).decode("utf-8", "replace")


def _normalize_written(changed: WrittenFile) -> NormalizedOutput:
    change, path, diff = changed.change, changed.path, changed.diff
    kind = "created" if changed.created else "modified"
    done = f"{change.replacements:,} replacements, " if change.replacements > 1 else ""
    notes = "".join(f"; {note}" for note in change.notes)
    artifact = changed.diff_artifact
    return NormalizedOutput(
        summary=f"{kind} {path} ({done}{diff.counts} lines){notes}",
        text=changed.shown.text.removesuffix("\n"),
        user_text=f"{kind.capitalize()} {path} ({diff.counts})",
        format="diff",
        side_effects=(SideEffect(kind=kind, target=path, detail=f"{diff.counts} lines"),),
        facts={
            "path": path,
            "changed": True,
            "created": changed.created,
            "old_sha256": change.before.sha256 if change.before is not None else "",
            "sha256": changed.baseline.sha256,
            "size_bytes": len(changed.new_content),
            "mtime_ns": str(changed.mtime_ns),
            "encoding": changed.baseline.encoding,
            "replacements": change.replacements,
            "added_lines": diff.added,
            "removed_lines": diff.removed,
            "hunks": [list(hunk[:4]) for hunk in diff.hunks[:_MAX_HUNKS_LOGGED]],
            "diagnostics": changed.diagnostics,
            **({CHANGE_SET_FACT: changed.change_set} if changed.change_set else {}),
        },
        size=_measure_diff(changed),
        next_hint="The diff was cut. Read the rest with read_artifact." if artifact is not None else "",
        next_tool=NextTool(tool="read_artifact", input_hint={"artifact_id": artifact.id}) if artifact else None,
        state=changed.baseline.to_state(path),
    )


def _measure_diff(changed: WrittenFile) -> OutputSize | None:
    shown, omitted = changed.shown.shown, changed.shown.omitted
    if not omitted:
        return None
    kept = changed.diff_artifact.size_bytes if changed.diff_artifact is not None else 0
    return OutputSize(produced=shown + omitted, kept=kept, shown=shown, omitted=omitted)


def _to_utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
