"""File access for tools. Every path that a tool gets from a model goes through a `Workspace`. Every path that a tool
gets from a model goes through a `Workspace`.

The root is opened once. Each path is resolved beneath that descriptor, and what comes out is an open file and its real
place, so what is checked is what was opened: nothing is looked at first and opened by its name afterwards. The lists of
`protected_names` are checked for the path as written and for the real path, which covers links inside the workspace.

A tool opens only what the policy evaluated: those paths come with the call (`ToolContext.judged`), and a
path that leads elsewhere by now is refused as `moved`. None means access without an evaluation: before it, or by the
runtime itself. Frozen places (`frozen_paths`) are not written, whatever name they are given.

Refusals are `PathRefusedError`, and then nothing was read or changed. Other faults while writing (a full disk, a
read-only file system, missing rights) are `OSError`, and then nothing was changed either.
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from itertools import islice
from os.path import abspath, dirname, realpath
from typing import Self

from ...domain.errors import ConfigurationError, SandboxSetupError
from ...domain.tool import EvaluatedPaths
from ..host import beneath
from ..host.beneath import PATH_ONLY, OpenedPath, PathOpener
from ..host.descriptors import get_identity
from .atomic_write import create_folders, replace_in_folder
from .frozen_paths import ALIAS_REASON, FrozenPaths
from .open_files import (
    FolderContents,
    FolderEntry,
    LocatedPath,
    OpenFile,
    OpenFolder,
    ReplacedFile,
    classify_mode,
)
from .path_text import split_names, split_parent, to_relative_path
from .protected_names import is_guarded, is_secret
from .refusals import RefusalKind, make_refusal, quote_path, translate_os_errors

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_MAX_SCANNED = 100_000
_NOT_A_FILE = {"folder": "it is a folder", "other": "it is a pipe, a socket or a device"}


class Workspace:
    """The folder that tools work in. It stays the same folder, even if its name is taken by another one."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        extra_hidden: Callable[[str, bool], bool] | None = None,
        frozen: FrozenPaths | None = None,
        opener: PathOpener = beneath.open_real_path,
    ) -> None:
        """Open a workspace. `extra_hidden` may refuse more: it gets a path as written, its real path and whether to
        write.
        """
        if not os.fspath(root) or "\0" in os.fspath(root):
            raise ConfigurationError(f"A workspace is a folder; {os.fspath(root)!r} cannot name one.")
        #: The real, absolute path.
        self.root = realpath(root)
        self._root_names = tuple(dict.fromkeys((self.root, abspath(root))))
        self._extra_hidden = extra_hidden
        self._frozen = frozen
        self._opener = opener
        try:
            self._folder = OpenFolder(OpenedPath(os.open(self.root, _FOLDER | os.O_CLOEXEC), "."))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"The workspace {self.root!r} cannot be opened: {error}") from error

    def close(self) -> None:
        """Close the descriptor of the folder."""
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def locate(
        self, path: str, *, writing: bool = False, judged: EvaluatedPaths = None, below: bool = False
    ) -> LocatedPath:
        """Return where a path leads now. A path that does not exist yet has a location, too.

        Args:
            judged: The evaluated paths; `below`: a path inside of one is fine, too.
        """
        text = self._relative_path(path, writing)
        linked = False
        with translate_os_errors(path):
            try:
                reached = self._open_path(text, PATH_ONLY | (os.O_NOFOLLOW if writing else 0))
            except FileNotFoundError:
                place = self._locate_missing(path, text, writing)
            else:
                with OpenFile(reached) as file:
                    place = LocatedPath(file.relative, classify_mode(file.stat.st_mode))
                    linked = writing and place.kind == "file" and self._is_frozen_link(file.stat)
        if place.kind == "link":
            raise make_refusal(path, "link")
        self._check_allowed(path, place.relative, writing)
        if linked:
            raise make_refusal(path, "guarded", message=ALIAS_REASON)
        if writing:
            self._check_parent_not_frozen(path, place.relative)
        _check_location(path, place.relative, judged, below=below)
        return place

    def open_file(self, path: str, judged: EvaluatedPaths) -> OpenFile:
        """Open a plain file for reading. Nothing else is opened, and the call does not block."""
        text = self._relative_path(path)
        with translate_os_errors(path):
            file = OpenFile(self._open_path(text, _READ))
        with ExitStack() as stack:
            stack.enter_context(file)
            self._check_allowed(path, file.relative)
            _check_location(path, file.relative, judged)
            if (kind := classify_mode(file.stat.st_mode)) != "file":
                raise make_refusal(path, "not_a_file", _NOT_A_FILE.get(kind, ""))
            stack.pop_all()
        return file

    def open_root(self) -> OpenFolder:
        """Return the root itself, for the runtime: nothing is checked or refused."""
        return OpenFolder(OpenedPath(os.dup(self._folder.fd), "."))

    @property
    def identity(self) -> tuple[int, int]:
        """The device and inode number of the folder."""
        return get_identity(os.fstat(self._folder.fd))

    def check_not_replaced(self) -> None:
        """Raise if the path leads to another folder than the descriptor: commands use the path, all else the
        descriptor.
        """
        try:
            now = os.lstat(self.root)
        except OSError as error:
            raise SandboxSetupError(f"The folder of this run is gone: {error}.") from error
        if not os.path.samestat(now, os.fstat(self._folder.fd)):
            raise SandboxSetupError(
                "The folder of this run was replaced by another one of the same name. "
                "Nothing can run in it any more: a new run has to be started for the new folder."
            )

    def open_folder(self, path: str, judged: EvaluatedPaths) -> OpenFolder:
        """Open a folder, for listing and searching."""
        text = self._relative_path(path)
        with translate_os_errors(path):
            try:
                folder = OpenFolder(self._open_path(text, _FOLDER))
            except NotADirectoryError:
                raise make_refusal(path, "not_a_folder") from None
        with ExitStack() as stack:
            stack.enter_context(folder)
            self._check_allowed(path, folder.relative)
            _check_location(path, folder.relative, judged)
            stack.pop_all()
        return folder

    def list_entries(self, path: str, *, limit: int = 1_000) -> FolderContents:
        """List the first entries of a folder, for the runtime itself. Nothing in it is opened."""
        with self.open_folder(path, None) as folder, os.scandir(folder.fd) as scan:
            scanned = sorted(islice(scan, _MAX_SCANNED), key=lambda entry: entry.name)
            complete = next(scan, None) is None
            entries = tuple(entry for one in scanned[:limit] if (entry := _make_entry(one)))
            return FolderContents(folder.relative, entries, len(scanned), complete)

    def replace_file(
        self,
        path: str,
        content: bytes,
        judged: EvaluatedPaths,
        *,
        precondition: Callable[[int | None], None] | None = None,
    ) -> ReplacedFile:
        """Write a whole file, with the folders that it needs. The file that it replaces gives its mode and owner.

        Right before the replacement `precondition` gets the present file, open for reading, or None where there is
        none, and may raise to leave it as it is.
        """
        folder_text, name = split_parent(path, self._relative_path(path, writing=True))
        with self._folder_to_write(path, folder_text, name, judged) as (folder, relative):

            def ready(present: int | None) -> None:
                # The folder may have been moved since it was opened.
                place = self._find_real_path(path, folder, name) or relative
                self._check_allowed(path, place, writing=True)
                _check_location(path, place, judged)
                if present is not None and self._is_frozen_link(os.fstat(present)):
                    raise make_refusal(path, "guarded", message=ALIAS_REASON)
                if precondition is not None:
                    precondition(present)

            return ReplacedFile(relative, *replace_in_folder(folder, name, content, ready, path))

    def find_refusal(self, relative: str, *, writing: bool = False) -> RefusalKind | None:
        """Return why a real path is closed to tools by its name, or None. For tools that find files themselves."""
        if is_secret(relative):
            return "secret"
        if writing and (is_guarded(relative) or self._frozen_reason(relative)):
            return "guarded"
        return "hidden" if self._extra_hidden and self._extra_hidden(relative, writing) else None

    def _check_allowed(self, path: str, relative: str, writing: bool = False) -> None:
        if kind := self.find_refusal(relative, writing=writing):
            raise make_refusal(path, kind, message=self._frozen_reason(relative) if kind == "guarded" else "")

    def _frozen_reason(self, relative: str) -> str:
        return self._frozen.find_reason(relative) if self._frozen is not None else ""

    def _is_frozen_link(self, status: os.stat_result) -> bool:
        return self._frozen is not None and self._frozen.is_file_linked(status)

    def _check_folder_not_frozen(self, path: str, folder: int) -> None:
        """Refuse a folder to write in that is a frozen one by another name."""
        if self._frozen is None:
            return
        with translate_os_errors(path):
            if self._frozen.is_folder_frozen(folder, self._folder.fd):
                raise make_refusal(path, "guarded", message=ALIAS_REASON)

    def _check_parent_not_frozen(self, path: str, relative: str) -> None:
        """Check the folder of a file by its real path, or the deepest one that exists."""
        if self._frozen is not None:
            with translate_os_errors(path):
                reached, _ = self._open_deepest(path, dirname(relative) or ".", PATH_ONLY | os.O_DIRECTORY)
            with OpenFolder(reached) as folder:
                self._check_folder_not_frozen(path, folder.fd)

    def _relative_path(self, path: str, writing: bool = False) -> str:
        """Return the path from the root. Refuse it if its names alone are not allowed."""
        text = to_relative_path(path, self._root_names)
        self._check_allowed(path, "/".join(split_names(text)) or ".", writing)
        return text

    def _open_path(self, text: str, flags: int) -> OpenedPath:
        return self._opener(self._folder.fd, text, flags, 0)

    def _locate_missing(self, path: str, text: str, writing: bool) -> LocatedPath:
        if writing:
            split_parent(path, text)
        reached, missing = self._open_deepest(path, text, PATH_ONLY | os.O_DIRECTORY)
        with OpenFolder(reached) as folder:
            if missing and _is_link(folder.fd, missing[0]):
                raise make_refusal(path, "link", "it leads to nothing")
        return LocatedPath(_join_names(reached.relative, *missing), "missing")

    def _open_deepest(self, path: str, text: str, flags: int) -> tuple[OpenedPath, list[str]]:
        """Open the deepest folder of the path that exists. Return it with the names after it."""
        try:
            return self._open_path(text, flags), []
        except FileNotFoundError:
            names = split_names(text)
        # When a folder on the way is missing, so is everything after it.
        there = bisect_left(range(1, len(names)), True, key=lambda count: self._is_missing(names[:count]))
        if ".." in names[there:]:
            raise make_refusal(path, "not_found")
        return self._open_path(_join_names(*names[:there]), flags), names[there:]

    def _is_missing(self, names: list[str]) -> bool:
        try:
            os.close(self._open_path(_join_names(*names), PATH_ONLY).fd)
        except FileNotFoundError:
            return True
        return False

    @contextmanager
    def _folder_to_write(self, path: str, text: str, name: str, judged: EvaluatedPaths) -> Generator[tuple[int, str]]:
        """Open the folder, created if it is missing. Yield it with the real path of the file."""
        with translate_os_errors(path):
            reached, missing = self._open_deepest(path, text, _FOLDER)
        with OpenFolder(reached) as base:
            relative = _join_names(base.relative, *missing, name)
            self._check_allowed(path, relative, writing=True)
            _check_location(path, relative, judged)
            self._check_folder_not_frozen(path, base.fd)
            if not missing and self._is_frozen_link_name(base.fd, name):
                raise make_refusal(path, "guarded", message=ALIAS_REASON)
            with create_folders(base.fd, missing, path) as folder:
                yield folder, relative

    def _is_frozen_link_name(self, folder: int, name: str) -> bool:
        try:
            return self._is_frozen_link(os.stat(name, dir_fd=folder, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def _find_real_path(self, path: str, folder: int, name: str) -> str | None:
        """Return the real path that a file of this name would have, if it can be known."""
        if not beneath.has_fd_links():
            return None
        with translate_os_errors(path):
            return _join_names(beneath.find_real_path(self._folder.fd, folder), name)


def _check_location(path: str, relative: str, judged: EvaluatedPaths, *, below: bool = False) -> None:
    """Refuse a location that is none of the evaluated ones."""
    if judged is None or relative in judged:
        return
    if below and ("." in judged or any(relative.startswith(f"{place}/") for place in judged)):
        return
    raise make_refusal(path, "moved", f"to {quote_path(relative)}")


def _join_names(*names: str) -> str:
    return "/".join(name for name in names if name != ".") or "."


def _is_link(folder: int, name: str) -> bool:
    try:
        return classify_mode(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) == "link"
    except FileNotFoundError:
        return False


def _make_entry(found: os.DirEntry[str]) -> FolderEntry | None:
    """Convert a directory entry. Return None if it is gone."""
    try:
        stat = found.stat(follow_symlinks=False)
    except OSError:
        return None
    return FolderEntry(found.name, classify_mode(stat.st_mode), stat.st_size)
