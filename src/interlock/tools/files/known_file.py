"""What the tools that write files share beside the writing: which file it is, that the run knows it, the check before,
and the look afterwards of a process that did not see the end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ...domain.errors import PreconditionError
from ...domain.tool import Check, JsonObject, Problem, Reconcile, ToolContext
from ...sandbox.workspace.workspace import PathRefused, Workspace
from .baseline import Baseline, known, shown_path, state_key
from .changed_file import stale
from .file_content import FileContent, cannot, content_of, load, not_now
from .text_file import Binary, TextFile, read_text

#: A check of more than this is made beside the event loop.
_LARGE_BYTES = 256 * 1024


class Known(NamedTuple):
    """A text file that is what the run knows of it."""

    file: FileContent
    text: TextFile
    baseline: Baseline


def known_file(workspace: Workspace, path: str, context: ToolContext) -> Known:
    """PreconditionError when the file was not read, is not what was read, or is no text."""
    with not_now(), workspace.open_file(path, context.judged) as opened:
        baseline = known(context.state, opened.relative)
        if baseline is None:
            raise cannot(f"{shown_path(opened.relative)} was not read in this run. Read it with read_file first")
        if opened.stat.st_size != baseline.size_bytes:
            raise stale(shown_path(opened.relative))
        file = content_of(opened)
    if file.sha256 != baseline.sha256:
        raise stale(file.path)
    text = read_text(file.content)
    if isinstance(text, Binary):
        raise _no_text(file)
    return Known(file, text, baseline)


def write_key(workspace: Workspace) -> Callable[[JsonObject], str]:
    """For `write_keys`: two names of one file are one key, and a path that leads nowhere is its own."""

    def key(arguments: JsonObject) -> str:
        return state_key(_relative(workspace, arguments["path"]))

    return key


def check_by(prepare: Callable[[JsonObject, ToolContext], object], workspace: Workspace) -> Check:
    """For `check`: can what the call comes to be worked out now? What it may not do is for the gate to say."""

    def problem(arguments: JsonObject, context: ToolContext) -> Problem | None:
        try:
            prepare(arguments, context)
        except PreconditionError as error:
            return error.problem
        except PathRefused:
            pass
        return None

    def check(arguments: JsonObject, context: ToolContext) -> Problem | Awaitable[Problem | None] | None:
        baseline = known(context.state, _relative(workspace, arguments["path"]))
        # A file that has another size than is known is not read to its end, so this tells how much there is to do.
        if baseline is not None and baseline.size_bytes > _LARGE_BYTES:
            return asyncio.to_thread(problem, arguments, context)
        return problem(arguments, context)

    return check


def reconcile_by(was_done: Callable[[JsonObject], bool | None]) -> Reconcile:
    """For `reconcile`: what the file says. One that cannot be looked at says nothing."""

    def look(arguments: JsonObject) -> bool | None:
        try:
            return was_done(arguments)
        except (PreconditionError, PathRefused, OSError):
            return None

    def reconcile(arguments: JsonObject) -> Awaitable[bool | None]:
        return asyncio.to_thread(look, arguments)

    return reconcile


def text_at(workspace: Workspace, path: str) -> tuple[FileContent, TextFile]:
    """Whether the run knows it or not. PreconditionError when it is no text. For a look after the call, which no gate
    is about."""
    file = load(workspace, path, None)
    text = read_text(file.content)
    if isinstance(text, Binary):
        raise _no_text(file)
    return file, text


def _no_text(file: FileContent) -> PreconditionError:
    return cannot(f"{file.path} is a binary file, and only text is written")


def _relative(workspace: Workspace, path: str) -> str:
    try:
        return workspace.locate(path, writing=True).relative
    except PathRefused:
        return path
