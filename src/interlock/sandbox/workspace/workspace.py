"""The one way to files. Every path that a tool gets from a model goes through a `Workspace`.

The root is opened once. Each path is resolved beneath that descriptor, and what comes out is an open file and its real
place, so what is judged is what was opened: nothing is looked at first and opened by its name afterwards. The lists of
`protected` are asked for the path as it is written and for the real place, which covers links inside the workspace.

What a tool opens is what the gate judged: the places that it judged come with the call (`ToolContext.judged`), and a
path that leads elsewhere by now is refused as `moved`. None stands for a look that no gate is about: before it, or the
runtime's own. Frozen places (`frozen`) are not written, whatever name they are given.

Refusals are `PathRefused`, and then nothing was read or changed. Other faults while writing (a full disk, a read-only
file system, missing rights) are `OSError`, and then nothing was changed either.
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from itertools import islice
from os.path import abspath, dirname, realpath
from typing import Self

from ...domain.errors import ConfigurationError, SandboxSetupError
from ...domain.tool import Judged
from . import beneath
from .beneath import LOOK, Reach, Reached
from .frozen import ALIAS, FrozenPlaces
from .names import parts, relative_text, split_last
from .open_files import Entry, Listing, OpenFile, OpenFolder, Place, PlaceKind, Replaced, kind_of
from .protected import is_guarded, is_secret
from .refusals import PathRefused, RefusalKind, in_words, refused, shown
from .replace import folders_below, replace_in

__all__ = [
    "Entry",
    "Listing",
    "OpenFile",
    "OpenFolder",
    "PathRefused",
    "Place",
    "PlaceKind",
    "RefusalKind",
    "Replaced",
    "Workspace",
]

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_MAX_SCANNED = 100_000
_NOT_A_FILE = {"folder": "it is a folder", "other": "it is a pipe, a socket or a device"}


class Workspace:
    """The folder that tools work in. It stays the same folder, whatever takes its name later."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        extra_hidden: Callable[[str, bool], bool] | None = None,
        frozen: FrozenPlaces | None = None,
        reach: Reach = beneath.reach,
    ) -> None:
        """`extra_hidden` may refuse more. It gets a path, as written and as it really is, and whether to write it."""
        if not os.fspath(root) or "\0" in os.fspath(root):
            raise ConfigurationError(f"A workspace is a folder; {os.fspath(root)!r} cannot name one.")
        #: The real, absolute path.
        self.root = realpath(root)
        self._names = tuple(dict.fromkeys((self.root, abspath(root))))
        self._extra_hidden = extra_hidden
        self._frozen = frozen
        self._way = reach
        try:
            self._folder = OpenFolder(Reached(os.open(self.root, _FOLDER | os.O_CLOEXEC), "."))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"The workspace {self.root!r} cannot be opened: {error}") from error

    def close(self) -> None:
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def locate(self, path: str, *, writing: bool = False, judged: Judged = None, below: bool = False) -> Place:
        """Return where a path leads now. What does not exist yet has a place, too.

        Args:
            judged: What the gate judged; `below`: a place inside of that is fine, too.
        """
        text = self._text(path, writing)
        linked = False
        with in_words(path):
            try:
                reached = self._reach(text, LOOK | (os.O_NOFOLLOW if writing else 0))
            except FileNotFoundError:
                place = self._locate_missing(path, text, writing)
            else:
                with OpenFile(reached) as file:
                    place = Place(file.relative, kind_of(file.stat.st_mode))
                    linked = writing and place.kind == "file" and self._is_linked(file.stat)
        if place.kind == "link":
            raise refused(path, "link")
        self._check(path, place.relative, writing)
        if linked:
            raise refused(path, "guarded", why=ALIAS)
        if writing:
            self._check_folder_of(path, place.relative)
        _check_judged(path, place.relative, judged, below=below)
        return place

    def open_file(self, path: str, judged: Judged) -> OpenFile:
        """Open a plain file for reading. Nothing else is read, and nothing is waited for."""
        text = self._text(path)
        with in_words(path):
            file = OpenFile(self._reach(text, _READ))
        with ExitStack() as stack:
            stack.enter_context(file)
            self._check(path, file.relative)
            _check_judged(path, file.relative, judged)
            if (kind := kind_of(file.stat.st_mode)) != "file":
                raise refused(path, "not_a_file", _NOT_A_FILE.get(kind, ""))
            stack.pop_all()
        return file

    def open_root(self) -> OpenFolder:
        """The root itself, for the runtime's own looking around: nothing is asked or refused."""
        return OpenFolder(Reached(os.dup(self._folder.fd), "."))

    @property
    def identity(self) -> tuple[int, int]:
        """Which folder it is, as device and inode number."""
        found = os.fstat(self._folder.fd)
        return found.st_dev, found.st_ino

    def check_unmoved(self) -> None:
        """Commands and searches reach it by its path, and all else by a descriptor: both must be the same folder."""
        try:
            now = os.lstat(self.root)
        except OSError as error:
            raise SandboxSetupError(f"The folder of this run is gone: {error}.") from error
        if not os.path.samestat(now, os.fstat(self._folder.fd)):
            raise SandboxSetupError(
                "The folder of this run was replaced by another one of the same name. "
                "Nothing can run in it any more: a new run has to be started for the new folder."
            )

    def open_folder(self, path: str, judged: Judged) -> OpenFolder:
        """Open a folder, for listing and searching."""
        text = self._text(path)
        with in_words(path):
            try:
                folder = OpenFolder(self._reach(text, _FOLDER))
            except NotADirectoryError:
                raise refused(path, "not_a_folder") from None
        with ExitStack() as stack:
            stack.enter_context(folder)
            self._check(path, folder.relative)
            _check_judged(path, folder.relative, judged)
            stack.pop_all()
        return folder

    def entries(self, path: str, *, limit: int = 1_000) -> Listing:
        """List the first names in a folder, with what they are, for the runtime itself. Nothing in there is opened."""
        with self.open_folder(path, None) as folder, os.scandir(folder.fd) as scan:
            scanned = sorted(islice(scan, _MAX_SCANNED), key=lambda entry: entry.name)
            complete = next(scan, None) is None
            entries = tuple(entry for one in scanned[:limit] if (entry := _entry(one)))
            return Listing(folder.relative, entries, len(scanned), complete)

    def replace_file(
        self, path: str, content: bytes, judged: Judged, *, still: Callable[[int | None], None] | None = None
    ) -> Replaced:
        """Write a whole file, with the folders that it needs. The file that it replaces gives its mode and owner.

        Right before the replacement `still` gets the present file, open for reading, or None where there is none, and
        may raise to leave it as it is.
        """
        folder_text, name = split_last(path, self._text(path, writing=True))
        with self._folder_to_write(path, folder_text, name, judged) as (folder, relative):

            def ready(present: int | None) -> None:
                # The folder may have been moved since it was opened.
                place = self._place_in(path, folder, name) or relative
                self._check(path, place, writing=True)
                _check_judged(path, place, judged)
                if present is not None and self._is_linked(os.fstat(present)):
                    raise refused(path, "guarded", why=ALIAS)
                if still is not None:
                    still(present)

            return Replaced(relative, *replace_in(folder, name, content, ready, path))

    def refusal(self, relative: str, *, writing: bool = False) -> RefusalKind | None:
        """Is a real path closed to tools by its name? For tools that find files themselves."""
        if is_secret(relative):
            return "secret"
        if writing and (is_guarded(relative) or self._frozen_reason(relative)):
            return "guarded"
        return "hidden" if self._extra_hidden and self._extra_hidden(relative, writing) else None

    def _check(self, path: str, relative: str, writing: bool = False) -> None:
        if kind := self.refusal(relative, writing=writing):
            raise refused(path, kind, why=self._frozen_reason(relative) if kind == "guarded" else "")

    def _frozen_reason(self, relative: str) -> str:
        return self._frozen.reason(relative) if self._frozen is not None else ""

    def _is_linked(self, status: os.stat_result) -> bool:
        return self._frozen is not None and self._frozen.has_linked_file(status)

    def _check_folder(self, path: str, folder: int) -> None:
        """Refuse a folder to write in that is a frozen one by another name."""
        if self._frozen is None:
            return
        with in_words(path):
            if self._frozen.has_frozen_folder(folder, self._folder.fd):
                raise refused(path, "guarded", why=ALIAS)

    def _check_folder_of(self, path: str, relative: str) -> None:
        """The same for the folder, or the last one on the way that exists, of a file by its real path."""
        if self._frozen is not None:
            with in_words(path):
                reached, _ = self._deepest(path, dirname(relative) or ".", LOOK | os.O_DIRECTORY)
            with OpenFolder(reached) as folder:
                self._check_folder(path, folder.fd)

    def _text(self, path: str, writing: bool = False) -> str:
        """The path from the root. Its names as they are written may be refused already."""
        text = relative_text(path, self._names)
        self._check(path, "/".join(parts(text)) or ".", writing)
        return text

    def _reach(self, text: str, flags: int) -> Reached:
        return self._way(self._folder.fd, text, flags, 0)

    def _locate_missing(self, path: str, text: str, writing: bool) -> Place:
        if writing:
            split_last(path, text)
        reached, missing = self._deepest(path, text, LOOK | os.O_DIRECTORY)
        with OpenFolder(reached) as folder:
            if missing and _is_link(folder.fd, missing[0]):
                raise refused(path, "link", "it leads to nothing")
        return Place(_joined(reached.relative, *missing), "missing")

    def _deepest(self, path: str, text: str, flags: int) -> tuple[Reached, list[str]]:
        """The last folder on the way that exists, and the names after it."""
        try:
            return self._reach(text, flags), []
        except FileNotFoundError:
            names = parts(text)
        # When a folder on the way is missing, so is everything after it.
        there = bisect_left(range(1, len(names)), True, key=lambda count: self._is_missing(names[:count]))
        if ".." in names[there:]:
            raise refused(path, "not_found")
        return self._reach(_joined(*names[:there]), flags), names[there:]

    def _is_missing(self, names: list[str]) -> bool:
        try:
            os.close(self._reach(_joined(*names), LOOK).fd)
        except FileNotFoundError:
            return True
        return False

    @contextmanager
    def _folder_to_write(self, path: str, text: str, name: str, judged: Judged) -> Generator[tuple[int, str]]:
        """The folder, made where it is missing, and the file's real path."""
        with in_words(path):
            reached, missing = self._deepest(path, text, _FOLDER)
        with OpenFolder(reached) as base:
            relative = _joined(base.relative, *missing, name)
            self._check(path, relative, writing=True)
            _check_judged(path, relative, judged)
            self._check_folder(path, base.fd)
            if not missing and self._is_linked_name(base.fd, name):
                raise refused(path, "guarded", why=ALIAS)
            with folders_below(base.fd, missing, path) as folder:
                yield folder, relative

    def _is_linked_name(self, folder: int, name: str) -> bool:
        try:
            return self._is_linked(os.stat(name, dir_fd=folder, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def _place_in(self, path: str, folder: int, name: str) -> str | None:
        """Where a file of this name would be now, when that can be known."""
        if not beneath.has_fd_links():
            return None
        with in_words(path):
            return _joined(beneath.real_path(self._folder.fd, folder), name)


def _check_judged(path: str, relative: str, judged: Judged, *, below: bool = False) -> None:
    """Refuse a place that is none of those that the gate judged."""
    if judged is None or relative in judged:
        return
    if below and ("." in judged or any(relative.startswith(f"{place}/") for place in judged)):
        return
    raise refused(path, "moved", f"to {shown(relative)}")


def _joined(*names: str) -> str:
    return "/".join(name for name in names if name != ".") or "."


def _is_link(folder: int, name: str) -> bool:
    try:
        return kind_of(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) == "link"
    except FileNotFoundError:
        return False


def _entry(found: os.DirEntry[str]) -> Entry | None:
    """None when it is gone meanwhile."""
    try:
        stat = found.stat(follow_symlinks=False)
    except OSError:
        return None
    return Entry(found.name, kind_of(stat.st_mode), stat.st_size)
