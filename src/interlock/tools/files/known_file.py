"""Shared parts of the tools that write files: find the file, check that the run knows it, check before, and reconcile
after an unknown outcome.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ...domain.errors import PreconditionError
from ...domain.tool import CheckProblem, JsonObject, Reconcile, RuntimeCheck, ToolContext
from ...sandbox.workspace.refusals import PathRefusedError
from ...sandbox.workspace.workspace import Workspace
from .baseline import FileBaseline, baseline_key, display_path, load_baseline
from .file_change import stale_file_error
from .file_content import (
    FileContent,
    find_problem,
    load_file,
    make_precondition_error,
    read_content,
    refusals_as_preconditions,
)
from .text_file import BinaryContent, TextFile, decode_content

#: A check of more than this runs in a thread.
_LARGE_BYTES = 256 * 1024


class KnownFile(NamedTuple):
    """A text file that is unchanged since the run read it."""

    file: FileContent
    text: TextFile
    baseline: FileBaseline


def load_known_file(workspace: Workspace, path: str, context: ToolContext) -> KnownFile:
    """Return the file. Raise `PreconditionError` when it was not read, changed since, or is no text."""
    with refusals_as_preconditions(), workspace.open_file(path, context.judged) as opened:
        baseline = load_baseline(context.state, opened.relative)
        if baseline is None:
            raise make_precondition_error(
                f"{display_path(opened.relative)} was not read in this run. Read it with read_file first"
            )
        if opened.stat.st_size != baseline.size_bytes:
            raise stale_file_error(display_path(opened.relative))
        file = read_content(opened)
    if file.sha256 != baseline.sha256:
        raise stale_file_error(file.path)
    return KnownFile(file, _decode_text(file), baseline)


def make_write_key(workspace: Workspace) -> Callable[[JsonObject], str]:
    """Return the function for `write_keys`: two names of one file have one key, and an unresolvable path is its own."""

    def key(arguments: JsonObject) -> str:
        return baseline_key(_find_relative_path(workspace, arguments["path"]))

    return key


def make_check(prepare: Callable[[JsonObject, ToolContext], object], workspace: Workspace) -> RuntimeCheck:
    """Return the function for `check`: whether the call can be planned now. Permissions are for policy."""

    def check(arguments: JsonObject, context: ToolContext) -> CheckProblem | Awaitable[CheckProblem | None] | None:
        baseline = load_baseline(context.state, _find_relative_path(workspace, arguments["path"]))
        # A file that has another size than is known is not read to its end, so this shows how much there is to do.
        if baseline is not None and baseline.size_bytes > _LARGE_BYTES:
            return asyncio.to_thread(find_problem, prepare, arguments, context)
        return find_problem(prepare, arguments, context)

    return check


def make_reconcile(was_done: Callable[[JsonObject], bool | None]) -> Reconcile:
    """Return the function for `reconcile`: it looks at the file. An unreadable one says nothing."""

    def look(arguments: JsonObject) -> bool | None:
        try:
            return was_done(arguments)
        except (PreconditionError, PathRefusedError, OSError):
            return None

    def reconcile(arguments: JsonObject) -> Awaitable[bool | None]:
        return asyncio.to_thread(look, arguments)

    return reconcile


def load_text(workspace: Workspace, path: str) -> tuple[FileContent, TextFile]:
    """Return the file, known to the run or not. Raise `PreconditionError` when it is no text. For inspection after the
    call, without policy.
    """
    file = load_file(workspace, path, None)
    return file, _decode_text(file)


def _decode_text(file: FileContent) -> TextFile:
    text = decode_content(file.content)
    if isinstance(text, BinaryContent):
        raise make_precondition_error(f"{file.path} is a binary file, and only text is written")
    return text


def _find_relative_path(workspace: Workspace, path: str) -> str:
    try:
        return workspace.locate(path, writing=True).relative
    except PathRefusedError:
        return path
