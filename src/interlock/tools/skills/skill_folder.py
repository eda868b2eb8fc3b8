"""The files of one skill, read through a workspace on the folder of all skills, and never outside of the skill.

A path is opened beneath the folder, and its real path has to be in the skill. So a link, a `..` or a folder that is
swapped while it is read leads nowhere else: policy evaluates the skill as a whole, so each file is checked against
that. Hidden files are no part of a skill: a skill is often a clone, and the content of `.git` is not meant for the
model.

Where the files were trusted, each by its digest, only the trusted version is read: the digested bytes are the returned
bytes.
"""

import os
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice

import msgspec

from ...rendering.text import quote_value
from ...sandbox.workspace.open_files import OpenFile, OpenFolder
from ...sandbox.workspace.refusals import PathRefusedError, RefusalKind
from ...sandbox.workspace.workspace import Workspace

SKILL_FILE = "SKILL.md"
MAX_FILE_BYTES = 1024 * 1024
#: A file that is larger was not trusted.
_MAX_TRUSTED_BYTES = 32 << 20
#: More names than this are not looked at for the list of files.
MAX_NAMES = 2_000
_MAX_SHOWN_CHARS = 200
_CHUNK_BYTES = 64 * 1024
#: What is the matter with a path, by the kind of its refusal.
REFUSAL_MESSAGES: dict[RefusalKind, str] = {
    "malformed": "is not a path that can be used",
    "outside": "leads outside the folder of the skill",
    "secret": "is kept for credentials, which tools do not read",
    "hidden": "is hidden, and hidden files are no part of a skill",
    "link": "is a link that is not followed",
    "moved": "leads elsewhere than a moment ago",
    "not_found": "is not in the skill",
    "not_a_file": "is not a plain file",
    "unreadable": "cannot be opened",
}

NOT_TRUSTED = "is not what was trusted, so it is not read; a person has to look at it and trust it again"


class SkillFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a skill."""

    skill: str
    #: The real path from the folder of the skill.
    file: str
    #: Its beginning, where it is larger than what is read.
    content: bytes
    size_bytes: int

    @property
    def is_truncated(self) -> bool:
        """True if the file was cut."""
        return len(self.content) < self.size_bytes


class ListedFile(msgspec.Struct, frozen=True):
    """A file in the list of a skill."""

    file: str
    size_bytes: int


class SkillFileList(msgspec.Struct, frozen=True):
    """The files of a skill."""

    #: Those nearest to the top come first.
    files: tuple[ListedFile, ...]
    #: False when there are more names than were looked at.
    complete: bool


def is_hidden(relative: str, writing: bool = False) -> bool:
    """Return True for hidden files. For `extra_hidden` of the workspace."""
    return any(name.startswith(".") and name not in (".", "..") for name in relative.split("/"))


class SkillFolder:
    """The folder of one skill."""

    def __init__(self, workspace: Workspace, name: str, trusted: Mapping[str, str] | None = None) -> None:
        """
        Args:
            trusted: SHA-256 by path from the folder of all skills. None: the current files count.
        """
        self.name = name
        self._workspace = workspace
        self._trusted = trusted

    def check_file(self, file: str) -> None:
        """Raise `PathRefusedError` when this is no plain file of the skill. Nothing is opened."""
        with _translate_refusals(file):
            place = self._workspace.locate(self._workspace_path(file))
            self._relative_path(place.relative)
            if place.kind != "file":
                raise PathRefusedError("", "not_found" if place.kind == "missing" else "not_a_file")

    def read(self, file: str, max_bytes: int = MAX_FILE_BYTES) -> SkillFile:
        """Return a plain file, or its beginning."""
        with _translate_refusals(file), self._workspace.open_file(self._workspace_path(file), None) as opened:
            inside = self._relative_path(opened.relative)
            content, size_bytes = self._read_content(opened, max_bytes)
        whole = content[:max_bytes]
        if len(content) > max_bytes:
            # Not in the middle of a line, nor of a character.
            whole = whole[: whole.rfind(b"\n") + 1] or whole
        return SkillFile(skill=self.name, file=inside, content=whole, size_bytes=size_bytes)

    def _read_content(self, file: OpenFile, max_bytes: int) -> tuple[bytes, int]:
        """Read the beginning, one byte more than the maximum if there is more, and the size of the whole."""
        if self._trusted is None:
            content = _read_beginning(file, max_bytes)
            return content, max(os.fstat(file.fd).st_size, len(content))
        content = _read_beginning(file, _MAX_TRUSTED_BYTES)
        if sha256(content).hexdigest() != self._trusted.get(file.relative):
            raise PathRefusedError(NOT_TRUSTED, "unreadable")
        return content[: max_bytes + 1], len(content)

    def list_files(self) -> SkillFileList:
        """Return the plain files that can be read, without links and without `SKILL.md`."""
        names = self._walk_names()
        looked_at = list(islice(names, MAX_NAMES))
        complete = next(names, None) is None
        names.close()
        found = (file for file in looked_at if file is not None and file.file != SKILL_FILE)
        return SkillFileList(tuple(sorted(found, key=lambda one: (one.file.count("/"), one.file))), complete)

    def _walk_names(self) -> Generator[ListedFile | None]:
        """Yield each name below the folder, breadth first: a file, or None for what cannot be read as one."""
        ahead = deque([self.name])
        while ahead:
            folder = ahead.popleft()
            try:
                opened = self._workspace.open_folder(f"./{folder}", None)
            except PathRefusedError:
                continue  # gone meanwhile, or closed
            with opened:
                if opened.relative == folder:
                    yield from self._iterate_folder(opened, ahead)

    def _iterate_folder(self, folder: OpenFolder, ahead: deque[str]) -> Generator[ListedFile | None]:
        with os.scandir(folder.fd) as scan:
            for entry in scan:
                path = f"{folder.relative}/{entry.name}"
                if self._workspace.find_refusal(path) or not self._can_list(entry, path):
                    yield None
                    continue
                if _is_folder(entry):
                    ahead.append(path)
                yield _to_listed_file(entry, path.removeprefix(f"{self.name}/"))

    def _can_list(self, entry: "os.DirEntry[str]", path: str) -> bool:
        return self._trusted is None or path in self._trusted or _is_folder(entry)

    def _workspace_path(self, file: str) -> str:
        if file.startswith("/"):
            raise PathRefusedError("", "outside")
        return f"./{self.name}/{file}"

    def _relative_path(self, relative: str) -> str:
        if relative == self.name:
            return "."
        if not relative.startswith(f"{self.name}/"):
            raise PathRefusedError("", "outside")
        return relative.removeprefix(f"{self.name}/")


@contextmanager
def _translate_refusals(file: str) -> Generator[None]:
    """Say it about the skill, and not about the workspace, which the model knows as another folder."""
    try:
        yield
    except PathRefusedError as refused:
        what = NOT_TRUSTED if str(refused) == NOT_TRUSTED else REFUSAL_MESSAGES[refused.kind]
        reason = f"{quote_value(file, _MAX_SHOWN_CHARS)} {what}"
        raise PathRefusedError(
            f"{reason}. Without a file, the tool says which files there are.", refused.kind
        ) from refused


def _read_beginning(file: OpenFile, max_bytes: int) -> bytes:
    """Read the beginning, one byte more than the maximum if there is more: kernel files have no size."""
    pieces, left = list[bytes](), max_bytes + 1
    while left and (piece := os.read(file.fd, min(left, _CHUNK_BYTES))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False  # gone meanwhile


def _to_listed_file(entry: "os.DirEntry[str]", file: str) -> ListedFile | None:
    try:
        if not entry.is_file(follow_symlinks=False):
            return None
        return ListedFile(file, entry.stat(follow_symlinks=False).st_size)
    except OSError:
        return None  # gone meanwhile
