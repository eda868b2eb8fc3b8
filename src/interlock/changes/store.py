"""The store of change sets: one private folder with contents, manifests, overlays and the journals of commits.

    objects/     contents by their SHA-256
    manifests/   change sets as JSON, by their digest
    notes/       what belongs to a change set that waits for an approval, by its digest
    overlays/    one folder for each command that runs in an overlay
    journals/    one file for each commit that is under way, or that a killed process left

Several processes may use one folder. Commits in it are done one after the other.
"""

import fcntl
import os
import stat
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import accumulate
from secrets import token_hex
from threading import Lock
from typing import NamedTuple

from ..domain.errors import SandboxSetupError
from ..sandbox.host.descriptors import closing_fd
from ..sandbox.host.programs import is_inside
from ..sandbox.workspace.workspace import Workspace
from .change_set import ChangeSet, FileState, MalformedChangeSetError
from .commit import SUFFIX, CommitFailed, CommitResult, Journal, Recovered, recover_journal, run_commit
from .contents import ChangeLimits, ContentStore, MissingContentError
from .file_access import lstat, remove_tree
from .overlay import OverlayFolders, OverlayReader
from .transaction import DriftedFile, Transaction, plan_steps

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DIGEST_CHARS = 64
#: What is younger may be in use by a change set that is not kept yet.
_UNKEPT_SECONDS = 3600.0
_COLLECT_SECONDS = 86_400.0


class _Parts(NamedTuple):
    """The folders of the store, open."""

    objects: int
    manifests: int
    notes: int
    overlays: int
    journals: int


class Collected(NamedTuple):
    """What `collect` removed."""

    change_sets: int
    contents: int


class ChangeStore:
    """Keeps change sets with their contents, and commits them. Blocks: call it in a thread."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        limits: ChangeLimits | None = None,
        *,
        open_journal: Callable[[int, str], Journal] = Journal,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Name the folder. It is created when it is first used.

        Args:
            limits: How much of one change set is kept.
            open_journal: Creates the journal of a commit, from an open folder and a name in it.
            now: Returns the time, for `collect`.
        """
        #: Absolute.
        self.folder = os.path.abspath(folder)
        self._limits = limits or ChangeLimits()
        self._open_journal = open_journal
        self._now = now
        self._opened: _Parts | None = None
        self._lock = Lock()

    def close(self) -> None:
        """Close the folders of the store."""
        with self._lock:
            for part in self._opened or ():
                os.close(part)
            self._opened = None

    def open_overlay(self, workspace: Workspace) -> OverlayFolders:
        """Create the folders for the overlay of one command. Raise `SandboxSetupError` where there can be none."""
        place = os.path.realpath(self.folder)
        if is_inside(place, workspace.root) or is_inside(workspace.root, place):
            raise SandboxSetupError(f"The folder {place} for changes is in the workspace, or around it.")
        with workspace.open_root() as root:
            mode = stat.S_IMODE(os.fstat(root.fd).st_mode)
        try:
            return OverlayFolders(self._parts.overlays, os.path.join(place, "overlays"), token_hex(8), mode)
        except OSError as error:
            raise SandboxSetupError(f"No overlay can be made in {place}: {error}.") from error

    def read_overlay(
        self, overlay: OverlayFolders, workspace: Workspace, limits: ChangeLimits | None = None
    ) -> ChangeSet:
        """Return what a command has changed, and keep the contents. The command must have ended.

        Args:
            limits: Others than those of the store.
        """
        mode = stat.S_IMODE(os.lstat(overlay.upper).st_mode)
        os.chmod(overlay.upper, 0o700)
        with closing_fd(os.open(overlay.upper, _FOLDER)) as upper, workspace.open_root() as root:
            return OverlayReader(self._contents, limits or self._limits).read(upper, mode, root.fd)

    def capture(self, workspace: Workspace, paths: Iterable[str]) -> dict[str, FileState]:
        """Return the present states of paths and of the folders they are in, and keep the contents of files.

        Before and after an edit of known files, for `compare_states`. Pipes, sockets and devices are left out.
        """
        found: dict[str, FileState] = {}
        with workspace.open_root() as root:
            reader = OverlayReader(self._contents, self._limits)
            for path in paths:
                for place in accumulate(path.split("/"), lambda folder, name: f"{folder}/{name}"):
                    if place not in found and (state := reader.read_path(root.fd, place)) is not None:
                        found[place] = state
        return found

    def keep(self, change_set: ChangeSet) -> str:
        """Write a change set to the disk, with its contents, so that other processes find it. Return its digest."""
        digest = change_set.digest()
        self._contents.flush(change_set.contents)
        _write_file(self._parts.manifests, digest, change_set.to_json())
        return digest

    def keep_note(self, content: bytes) -> str:
        """Write a note to the disk, and return its digest."""
        digest = sha256(content).hexdigest()
        _write_file(self._parts.notes, digest, content)
        return digest

    def load_note(self, digest: str) -> bytes:
        """Return a note. Raise `MissingContentError` when there is none, or when it is damaged."""
        _check_digest(digest)
        try:
            opened = os.open(digest, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._parts.notes)
        except FileNotFoundError:
            raise MissingContentError(f"the note {digest[:12]} is not kept any more") from None
        with open(opened, "rb") as file:
            content = file.read()
        if sha256(content).hexdigest() != digest:
            raise MissingContentError(f"the note {digest[:12]} is damaged")
        return content

    def discard_note(self, digest: str) -> None:
        """Remove a note, if there is one."""
        _check_digest(digest)
        with suppress(FileNotFoundError):
            os.unlink(digest, dir_fd=self._parts.notes)

    def find_drift(self, change_set: ChangeSet, workspace: Workspace) -> tuple[DriftedFile, ...]:
        """Return the files that are not what they were before the change."""
        with workspace.open_root() as root:
            transaction = Transaction(root.fd, self._contents, "", plan_steps(change_set))
            return tuple(one for index in transaction.active for one in transaction.check(index))

    def load(self, digest: str) -> ChangeSet:
        """Return a kept change set. Raise `MissingContentError` when there is none, or when it is damaged."""
        _check_digest(digest)
        try:
            opened = os.open(digest, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._parts.manifests)
            with open(opened, "rb") as file:
                found = ChangeSet.from_json(file.read())
        except FileNotFoundError:
            raise MissingContentError(f"the change set {digest[:12]} is not kept any more") from None
        except MalformedChangeSetError as error:
            raise MissingContentError(f"the change set {digest[:12]} is damaged: {error}") from error
        if found.digest() != digest:
            raise MissingContentError(f"the change set {digest[:12]} is damaged")
        return found

    def read_content(self, digest: str) -> bytes:
        """Return the content of a file. Raise `MissingContentError` when it is gone or damaged."""
        return b"".join(self._contents.read(digest))

    def has_content(self, digest: str) -> bool:
        """Return True if the content of a file is kept."""
        return self._contents.has(digest)

    def find_missing(self, change_set: ChangeSet) -> tuple[str, ...]:
        """Return the paths that a commit could not write, because their contents are not kept."""
        states = ((change.path, change.after) for change in change_set.changes if change.after.kind == "file")
        return tuple(path for path, state in states if not state.digest or not self._contents.has(state.digest))

    def commit(self, change_set: ChangeSet, workspace: Workspace, *, skip_drifted: bool = False) -> CommitResult:
        """Apply a change set to the workspace: all of it, or nothing.

        Args:
            skip_drifted: Leave out files that are not what they were, instead of returning `Drifted`.
        """
        try:
            change_set.check()
        except MalformedChangeSetError as error:
            return CommitFailed(reason=str(error))
        if missing := self.find_missing(change_set):
            return CommitFailed(reason="its content is not kept", path=missing[0])
        try:
            with self._lock_journals() as journals, workspace.open_root() as root:
                if _list_journals(journals):
                    return CommitFailed(reason="an earlier commit was interrupted", needs_recovery=True)
                journal = self._open_journal(journals, f"{token_hex(8)}{SUFFIX}")
                transaction = Transaction(
                    root.fd, self._contents, journal.name.removesuffix(SUFFIX), plan_steps(change_set)
                )
                return run_commit(transaction, change_set, workspace.root, journal, skip_drifted=skip_drifted)
        except OSError as error:
            return CommitFailed(reason=f"the store cannot be written ({error.strerror})")

    def recover(self) -> tuple[Recovered, ...]:
        """Finish or revert the commits that killed processes left, and remove their overlays."""
        if not os.path.isdir(self.folder):
            return ()
        self._remove_left_overlays()
        with self._lock_journals() as journals:
            found = (recover_journal(journals, name, self._contents) for name in _list_journals(journals))
            return tuple(one for one in found if one is not None)

    def collect_daily(self) -> None:
        """Call `collect`, unless that was done within a day. A store that was never used stays so."""
        marker = os.path.join(self.folder, "collected")
        try:
            last = os.stat(marker).st_mtime if os.path.exists(marker) else 0.0
            if os.path.isdir(self.folder) and self._now() - last > _COLLECT_SECONDS:
                with open(marker, "wb"):
                    pass
                self.collect()
        except OSError:
            return  # it is tried again tomorrow

    def collect(
        self, keep: Iterable[str] = (), *, max_age_seconds: float = 30 * 86_400.0, max_bytes: int = 4 << 30
    ) -> Collected:
        """Remove change sets by age, then the oldest by size, and all contents that nothing refers to.

        Args:
            keep: Digests of change sets that are never removed, such as those that wait for an approval.
        """
        manifests, objects = self._parts.manifests, self._parts.objects
        with self._lock_journals():
            kept, now = frozenset(keep), self._now()
            sizes = {name: found for name in os.listdir(objects) if (found := lstat(objects, name))}
            by_age = sorted(
                ((found.st_mtime, name) for name in os.listdir(manifests) if (found := lstat(manifests, name))),
                reverse=True,
            )
            used: set[str] = set()
            used_bytes = removed = 0
            for changed, name in by_age:
                try:
                    contents = self.load(name).contents
                except MissingContentError:
                    contents = frozenset[str]()
                more = sum(sizes[one].st_size for one in contents - used if one in sizes)
                is_over = now - changed > max_age_seconds or used_bytes + more > max_bytes
                if name not in kept and is_over:
                    os.unlink(name, dir_fd=manifests)
                    removed += 1
                    continue
                used |= contents
                used_bytes += more
            notes = self._parts.notes
            for name in os.listdir(notes):
                if (found := lstat(notes, name)) is not None and now - found.st_mtime > max_age_seconds:
                    os.unlink(name, dir_fd=notes)
            unused = [one for one in sizes if one not in used and now - sizes[one].st_ctime > _UNKEPT_SECONDS]
            for name in unused:
                os.unlink(name, dir_fd=objects)
        return Collected(removed, len(unused))

    @property
    def _parts(self) -> _Parts:
        with self._lock:
            if self._opened is None:
                os.makedirs(self.folder, mode=0o700, exist_ok=True)
                with closing_fd(os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as top:
                    os.fchmod(top, 0o700)
                    for name in _Parts._fields:
                        with suppress(FileExistsError):
                            os.mkdir(name, 0o700, dir_fd=top)
                    self._opened = _Parts(*(os.open(name, _FOLDER, dir_fd=top) for name in _Parts._fields))
            return self._opened

    @property
    def _contents(self) -> ContentStore:
        return ContentStore(self._parts.objects)

    @contextmanager
    def _lock_journals(self) -> Generator[int]:
        """Hold the only right to commit. Opened each time: a lock belongs to an opening, not to a process."""
        with closing_fd(os.open(".", _FOLDER, dir_fd=self._parts.journals)) as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            yield opened

    def _remove_left_overlays(self) -> None:
        overlays = self._parts.overlays
        for name in os.listdir(overlays):
            with suppress(OSError), closing_fd(os.open(name, _FOLDER, dir_fd=overlays)) as opened:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(overlays, name)


def _check_digest(digest: str) -> None:
    if len(digest) != _DIGEST_CHARS or not digest.isalnum():
        raise MissingContentError(f"{digest[:100]!r} is not a digest")


def _write_file(folder: int, name: str, content: bytes) -> None:
    temporary = f".new-{token_hex(8)}"
    new = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    with open(new, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(new)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def _list_journals(journals: int) -> list[str]:
    return sorted(name for name in os.listdir(journals) if name.endswith(SUFFIX))
