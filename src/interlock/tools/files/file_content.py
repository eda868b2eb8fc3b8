"""The content of a workspace file, read once through one descriptor, with its digest; bounded.

What cannot be done now is a `PreconditionError`, with the message of a check. What a tool may not do stays a
`PathRefusedError`, for the policy stage and the sandbox.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from hashlib import sha256
from typing import ParamSpec

import msgspec

from ...domain.errors import PreconditionError
from ...domain.tool import CheckProblem, EvaluatedPaths
from ...sandbox.workspace.open_files import LocatedPath, OpenFile
from ...sandbox.workspace.refusals import PathRefusedError
from ...sandbox.workspace.workspace import Workspace
from .baseline import display_path

MAX_FILE_BYTES = 32 * 1024 * 1024
#: Refusals that say that it cannot be done now, and not that it may not be done.
_PRECONDITION_KINDS = frozenset({"link", "moved", "not_found", "not_a_file", "not_a_folder", "unreadable"})

_P = ParamSpec("_P")


class FileContent(msgspec.Struct, frozen=True):
    """The content and digest of a file."""

    #: The real path from the root of the workspace, as text.
    path: str
    content: bytes
    sha256: str
    mtime_ns: int


def load_file(workspace: Workspace, path: str, judged: EvaluatedPaths) -> FileContent:
    """Read a file of the workspace that policy allows."""
    with refusals_as_preconditions(), workspace.open_file(path, judged) as file:
        return read_content(file)


def read_content(file: OpenFile) -> FileContent:
    """Read an open file, up to the size limit of the file tools."""
    size_bytes = file.stat.st_size
    if size_bytes > MAX_FILE_BYTES:
        raise make_too_large_error(display_path(file.relative), size_bytes)
    content = os.read(file.fd, size_bytes + 1)
    if len(content) != size_bytes:
        content = _read_rest(file, content)
    return FileContent(display_path(file.relative), content, sha256(content).hexdigest(), file.stat.st_mtime_ns)


def locate_for_writing(workspace: Workspace, path: str, judged: EvaluatedPaths) -> LocatedPath:
    """Return the location of a plain file that exists or can be created."""
    with refusals_as_preconditions():
        place = workspace.locate(path, writing=True, judged=judged)
    if place.kind not in ("file", "missing"):
        what = "a folder" if place.kind == "folder" else "no plain file"
        raise make_precondition_error(f"{display_path(place.relative)} is {what}")
    return place


def has_same_content(file: int, expected: FileContent) -> bool:
    """Return True if an open file still has this content."""
    size_bytes = len(expected.content)
    if os.fstat(file).st_size != size_bytes:
        return False
    digest, at = sha256(), 0
    while at <= size_bytes and (chunk := os.pread(file, 1024 * 1024, at)):
        at += len(chunk)
        digest.update(chunk)
    return digest.hexdigest() == expected.sha256


@contextmanager
def refusals_as_preconditions() -> Generator[None]:
    """Convert refused paths that the model can correct to failed preconditions."""
    try:
        yield
    except PathRefusedError as refused:
        if refused.kind not in _PRECONDITION_KINDS:
            raise
        raise make_precondition_error(str(refused)) from refused


def find_problem(attempt: Callable[_P, object], *args: _P.args, **options: _P.kwargs) -> CheckProblem | None:
    """Return why an attempt cannot succeed now, for `check`. Refused paths are for policy."""
    try:
        attempt(*args, **options)
    except PreconditionError as error:
        return error.problem
    except PathRefusedError:
        pass
    return None


def make_precondition_error(message: str) -> PreconditionError:
    """Build the error for a failed precondition."""
    return PreconditionError(CheckProblem(message=message))


def make_too_large_error(path: str, size_bytes: int) -> PreconditionError:
    """Build the error for a file above the size limit."""
    return make_precondition_error(
        f"{path} has {size_bytes:,} bytes; the file tools take up to {MAX_FILE_BYTES:,}."
        " Look for what you need with grep, or take a part of it with bash (head, tail, sed -n)"
    )


def _read_rest(file: OpenFile, content: bytes) -> bytes:
    """Read the rest of a file that is longer or shorter than its size: it is being written, or has no size."""
    pieces, size_bytes = [content], len(content)
    while piece := os.read(file.fd, 1024 * 1024):
        pieces.append(piece)
        size_bytes += len(piece)
        if size_bytes > MAX_FILE_BYTES:
            raise make_too_large_error(display_path(file.relative), size_bytes)
    return b"".join(pieces)
