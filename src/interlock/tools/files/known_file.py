"""What the tools that write files share beside the writing: which file it is, that the run knows it, the check before,
and the look afterwards of a process that did not see the end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ...domain.errors import PreconditionError
from ...domain.tool import CheckProblem, JsonObject, Reconcile, RuntimeCheck, ToolContext
from ...sandbox.workspace.workspace import PathRefusedError, Workspace
from .baseline import FileBaseline, baseline_key, display_path, load_baseline
from .file_change import stale_file_error
from .file_content import FileContent, load_file, make_precondition_error, read_content, refusals_as_preconditions
from .text_file import BinaryContent, TextFile, decode_content

#: A check of more than this is made beside the event loop.
_LARGE_BYTES = 256 * 1024


class KnownFile(NamedTuple):
    """A text file that is what the run knows of it."""

    file: FileContent
    text: TextFile
    baseline: FileBaseline


def load_known_file(workspace: Workspace, path: str, context: ToolContext) -> KnownFile:
    """PreconditionError when the file was not read, is not what was read, or is no text."""
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
    text = decode_content(file.content)
    if isinstance(text, BinaryContent):
        raise _make_binary_error(file)
    return KnownFile(file, text, baseline)


def make_write_key(workspace: Workspace) -> Callable[[JsonObject], str]:
    """For `write_keys`: two names of one file are one key, and a path that leads nowhere is its own."""

    def key(arguments: JsonObject) -> str:
        return baseline_key(_find_relative_path(workspace, arguments["path"]))

    return key


def make_check(prepare: Callable[[JsonObject, ToolContext], object], workspace: Workspace) -> RuntimeCheck:
    """For `check`: can what the call comes to be worked out now? What it may not do is for the gate to say."""

    def problem(arguments: JsonObject, context: ToolContext) -> CheckProblem | None:
        try:
            prepare(arguments, context)
        except PreconditionError as error:
            return error.problem
        except PathRefusedError:
            pass
        return None

    def check(arguments: JsonObject, context: ToolContext) -> CheckProblem | Awaitable[CheckProblem | None] | None:
        baseline = load_baseline(context.state, _find_relative_path(workspace, arguments["path"]))
        # A file that has another size than is known is not read to its end, so this tells how much there is to do.
        if baseline is not None and baseline.size_bytes > _LARGE_BYTES:
            return asyncio.to_thread(problem, arguments, context)
        return problem(arguments, context)

    return check


def make_reconcile(was_done: Callable[[JsonObject], bool | None]) -> Reconcile:
    """For `reconcile`: what the file says. One that cannot be looked at says nothing."""

    def look(arguments: JsonObject) -> bool | None:
        try:
            return was_done(arguments)
        except (PreconditionError, PathRefusedError, OSError):
            return None

    def reconcile(arguments: JsonObject) -> Awaitable[bool | None]:
        return asyncio.to_thread(look, arguments)

    return reconcile


def load_text(workspace: Workspace, path: str) -> tuple[FileContent, TextFile]:
    """Whether the run knows it or not. PreconditionError when it is no text. For a look after the call, which no gate
    is about."""
    file = load_file(workspace, path, None)
    text = decode_content(file.content)
    if isinstance(text, BinaryContent):
        raise _make_binary_error(file)
    return file, text


def _make_binary_error(file: FileContent) -> PreconditionError:
    return make_precondition_error(f"{file.path} is a binary file, and only text is written")


def _find_relative_path(workspace: Workspace, path: str) -> str:
    try:
        return workspace.locate(path, writing=True).relative
    except PathRefusedError:
        return path
