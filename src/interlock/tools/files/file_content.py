"""All of a file of the workspace, read once through one descriptor, with its digest; bounded.

What cannot be done now is a `PreconditionError`, in the words that a check would use. What a tool may not do stays a
`PathRefused`, which is for the gate and for the sandbox.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256

import msgspec

from ...domain.errors import PreconditionError
from ...domain.tool import Judged, Problem
from ...sandbox.workspace.workspace import OpenFile, PathRefused, Place, Workspace
from .baseline import shown_path

MAX_FILE_BYTES = 32 * 1024 * 1024
#: Refusals that say that it cannot be done now, and not that it may not be done.
_NOT_NOW = frozenset({"link", "moved", "not_found", "not_a_file", "not_a_folder", "unreadable"})


class FileContent(msgspec.Struct, frozen=True):
    #: The real path from the root of the workspace, as text.
    path: str
    content: bytes
    sha256: str
    mtime_ns: int


def load(workspace: Workspace, path: str, judged: Judged) -> FileContent:
    with not_now(), workspace.open_file(path, judged) as file:
        return content_of(file)


def content_of(file: OpenFile) -> FileContent:
    size_bytes = file.stat.st_size
    if size_bytes > MAX_FILE_BYTES:
        raise too_large(shown_path(file.relative), size_bytes)
    content = os.read(file.fd, size_bytes + 1)
    if len(content) != size_bytes:
        content = _to_the_end(file, content)
    return FileContent(shown_path(file.relative), content, sha256(content).hexdigest(), file.stat.st_mtime_ns)


def place_to_write(workspace: Workspace, path: str, judged: Judged) -> Place:
    """Where a plain file is, or can be made."""
    with not_now():
        place = workspace.locate(path, writing=True, judged=judged)
    if place.kind not in ("file", "missing"):
        what = "a folder" if place.kind == "folder" else "no plain file"
        raise cannot(f"{shown_path(place.relative)} is {what}")
    return place


def has_digest(file: int, expected: FileContent) -> bool:
    """Does an open file still hold this content?"""
    size_bytes = len(expected.content)
    if os.fstat(file).st_size != size_bytes:
        return False
    digest, at = sha256(), 0
    while at <= size_bytes and (chunk := os.pread(file, 1024 * 1024, at)):
        at += len(chunk)
        digest.update(chunk)
    return digest.hexdigest() == expected.sha256


@contextmanager
def not_now() -> Generator[None]:
    try:
        yield
    except PathRefused as refused:
        if refused.kind not in _NOT_NOW:
            raise
        raise cannot(str(refused)) from refused


def cannot(message: str) -> PreconditionError:
    return PreconditionError(Problem(message=message))


def too_large(path: str, size_bytes: int) -> PreconditionError:
    return cannot(
        f"{path} has {size_bytes:,} bytes; the file tools take up to {MAX_FILE_BYTES:,}."
        " Look for what you need with grep, or take a part of it with bash (head, tail, sed -n)"
    )


def _to_the_end(file: OpenFile, content: bytes) -> bytes:
    """A file that is not as long as it was said to be: it is being written, or has no size at all."""
    pieces, size_bytes = [content], len(content)
    while piece := os.read(file.fd, 1024 * 1024):
        pieces.append(piece)
        size_bytes += len(piece)
        if size_bytes > MAX_FILE_BYTES:
            raise too_large(shown_path(file.relative), size_bytes)
    return b"".join(pieces)
