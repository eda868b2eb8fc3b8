"""The objects that a workspace returns: locations, listings, and open files and folders."""

import os
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Literal, NamedTuple, Self, TypeAlias

import msgspec

from ..host.beneath import OpenedPath

PathKind: TypeAlias = Literal["file", "folder", "link", "other", "missing"]
_CLOSED = -1


class LocatedPath(msgspec.Struct, frozen=True):
    """Where a path led when it was resolved."""

    #: The real path from the root, "." for the root itself.
    relative: str
    #: Never a link: that is followed, or refused.
    kind: PathKind

    @property
    def exists(self) -> bool:
        """True if there is something at the path."""
        return self.kind != "missing"


class FolderEntry(msgspec.Struct, frozen=True):
    """One entry of a folder. A link is not followed."""

    #: Bytes that are no UTF-8 stand in here as lone surrogates, as in `os.listdir`.
    name: str
    kind: PathKind
    size_bytes: int


class FolderContents(msgspec.Struct, frozen=True):
    """The listing of a folder."""

    #: Of the folder.
    relative: str
    #: The first ones by name.
    entries: tuple[FolderEntry, ...]
    #: How many names there are.
    found: int
    #: False when there are so many names that not all were looked at.
    complete: bool


class ReplacedFile(NamedTuple):
    """The result of replacing a file."""

    relative: str
    #: Of the new file.
    stat: os.stat_result
    #: There was no file of that name before.
    created: bool


class _OpenDescriptor:
    """A descriptor and its real path from the root. It is closed when it is no longer referenced."""

    #: Module globals may be gone when the interpreter exits.
    _close = staticmethod(os.close)

    def __init__(self, reached: OpenedPath) -> None:
        self.fd, self.relative = reached

    def close(self) -> None:
        fd, self.fd = self.fd, _CLOSED
        if fd >= 0:
            self._close(fd)

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OpenFile(_OpenDescriptor):
    """A plain file, open for reading."""

    def __init__(self, reached: OpenedPath) -> None:
        super().__init__(reached)
        #: As it was when the file was opened.
        self.stat = os.fstat(reached.fd)


class OpenFolder(_OpenDescriptor):
    """A folder, open for listing."""


def classify_mode(mode: int) -> PathKind:
    """Return the kind of a file from its mode."""
    if S_ISREG(mode):
        return "file"
    if S_ISDIR(mode):
        return "folder"
    return "link" if S_ISLNK(mode) else "other"
