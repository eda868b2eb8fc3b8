"""The steps of a commit in a workspace: comparing, staging, applying, reverting, and finding out how far it came."""

import os
import stat
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from errno import EEXIST, ENOENT, ENOTDIR
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import msgspec

from ..sandbox.host.descriptors import closing_fd
from .change_set import ABSENT, Change, ChangeSet, FileState, SkippedFile
from .contents import ContentStore
from .file_access import (
    UnsupportedFileError,
    copy_ownership,
    exchange,
    hash_content,
    lstat,
    open_folder,
    read_state,
    rename_to_new,
    set_metadata,
    write_chunk,
)

StepKind: TypeAlias = Literal["create", "replace", "remove", "set"]
#: Device, inode, size and time of change of a file. The last two are 0 for a folder.
Signature: TypeAlias = tuple[int, int, int, int]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OWNER_BITS, _READ_BITS = 0o700, 0o500
_CHANGED_LATE = "it was changed while it was replaced or removed, so it is kept under this name"


class DriftedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A path that is not what it was when the change was made."""

    path: str
    reason: str
    expected: FileState
    #: None: it could not be read.
    found: FileState | None = None


class Step:
    """One change of names: a path, and what is below it."""

    def __init__(self, kind: StepKind, changes: list[Change]) -> None:
        self.kind: StepKind = kind
        #: Its own first, then those below it, sorted.
        self.changes = changes

    @cached_property
    def entries(self) -> dict[str, list[Change]]:
        """The changes below it, by their folders. For a step that is complete."""
        found: dict[str, list[Change]] = {}
        for change in self.changes[1:]:
            found.setdefault(change.path.rpartition("/")[0], []).append(change)
        return found

    @property
    def path(self) -> str:
        return self.changes[0].path

    @property
    def before(self) -> FileState:
        return self.changes[0].before

    @property
    def after(self) -> FileState:
        return self.changes[0].after

    @property
    def parent(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        return _name(self.path)

    def inner(self, path: str) -> str:
        """Return a path from the step's own on; empty for that one."""
        return path[len(self.path) + 1 :]


def plan_steps(change_set: ChangeSet) -> list[Step]:
    """Return the steps of a change set: those that change folders come last."""
    steps: dict[str, Step] = {}
    folders: list[Step] = []
    for change in change_set.changes:
        if change.before.kind == change.after.kind == "folder":
            folders.append(Step("set", [change]))
            continue
        above, unit = change.path, None
        while unit is None and "/" in above:
            above = above.rpartition("/")[0]
            unit = steps.get(above)
        if unit is not None:
            unit.changes.append(change)
        elif change.before.kind == "absent":
            steps[change.path] = Step("create", [change])
        else:
            steps[change.path] = Step("remove" if change.after.kind == "absent" else "replace", [change])
    return [*steps.values(), *reversed(folders)]


class DriftError(Exception):
    """A file was changed after it was compared."""

    def __init__(self, drifted: DriftedFile) -> None:
        super().__init__(drifted.path)
        self.drifted = drifted


class Transaction:
    """The steps of one commit in one workspace, to be applied, reverted and cleaned up."""

    def __init__(self, root: int, contents: ContentStore, token: str, steps: Sequence[Step]) -> None:
        self.root = root
        found = os.fstat(root)
        self.root_identity = [found.st_dev, found.st_ino]
        self._contents = contents
        self._token = token
        self.steps = steps
        #: Steps that are not skipped.
        self.active = list(range(len(steps)))
        self.signatures: dict[str, Signature] = {}
        self.staged: dict[int, Signature] = {}
        #: What is staged or applied at the moment.
        self.current_path = ""
        #: Folders that their owner got more rights to.
        self.opened: set[str] = set()

    @property
    def change_set(self) -> ChangeSet:
        """The changes of the steps that are not skipped."""
        changes = [change for index in self.active for change in self.steps[index].changes]
        return ChangeSet(changes=tuple(sorted(changes, key=lambda change: change.path)))

    def load(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Take over what a journal says."""
        for record in records:
            if "opened" in record:
                self.opened.add(record["opened"])
            if "active" in record:
                self.active = record["active"]
                self.staged = {int(index): tuple(signature) for index, signature in record["staged"].items()}
                self.signatures = {path: tuple(signature) for path, signature in record["signatures"].items()}

    def skip(self, drifted: Iterable[DriftedFile]) -> None:
        """Leave out the steps that these files belong to."""
        own = {one.path for one in drifted}
        # Also what appeared in a folder that was to be removed.
        above = {prefix for path in own for prefix in accumulate(path.split("/"), lambda one, name: f"{one}/{name}")}
        self.active = [
            index
            for index in self.active
            if self.steps[index].path not in (own if self.steps[index].kind == "set" else above)
        ]

    def count_staged_files(self) -> int:
        """Return the number of contents that are to be written."""
        return sum(one.after.kind == "file" for index in self.active for one in self.steps[index].changes)

    # Looking

    def check_names(self) -> list[DriftedFile]:
        """Compare all other steps."""
        return [drifted for index in self.active if self.steps[index].kind != "set" for drifted in self.check(index)]

    def check(self, index: int) -> list[DriftedFile]:
        """Compare a step with what is found, and note which files were compared."""
        step = self.steps[index]
        drifted: list[DriftedFile] = []
        try:
            with open_folder(self.root, step.parent) as folder:
                self._check_tree(folder, step.name, step, step.changes[0], drifted)
        except OSError as error:
            reason = (
                "its folder is gone" if error.errno in (ENOENT, ENOTDIR) else f"it cannot be read ({error.strerror})"
            )
            drifted.append(DriftedFile(path=step.path, reason=reason, expected=step.before))
        return drifted

    def _check_tree(self, folder: int, name: str, step: Step, change: Change, drifted: list[DriftedFile]) -> None:
        found = _read_or_explain(folder, name)
        expected_state = _widen(change.before) if change.path in self.opened else change.before
        if isinstance(found, str) or not expected_state.matches(found):
            reason = found if isinstance(found, str) else describe_drift(change.before, found)
            state = None if isinstance(found, str) else found
            drifted.append(DriftedFile(path=change.path, reason=reason, expected=change.before, found=state))
            return
        if found.kind == "absent":
            return
        self.signatures[change.path] = _sign(folder, name)
        if found.kind != "folder" or step.kind == "set":
            return
        expected = {_name(one.path): one for one in step.entries.get(change.path, ()) if one.before.kind != "absent"}
        with open_folder(folder, name) as inner:
            for new in sorted(set(os.listdir(inner)) - expected.keys()):
                drifted.append(DriftedFile(path=f"{change.path}/{new}", reason="it appeared since", expected=ABSENT))
            for inner_name, inner_change in expected.items():
                self._check_tree(inner, inner_name, step, inner_change, drifted)

    # Doing

    def open_folders(self, note: Callable[[str], None]) -> list[DriftedFile]:
        """Compare the folders that change, and give their owner all rights to them as long as the commit lasts.

        Also to those that go and could not be read. `note` is called before each change of a mode.
        """
        drifted: list[DriftedFile] = []
        for change in self._find_folders():
            with self._open_if_there(change.path.rpartition("/")[0]) as folder:
                found = "its folder is gone" if folder is None else _read_or_explain(folder, _name(change.path))
            if isinstance(found, str):
                drifted.append(DriftedFile(path=change.path, reason=found, expected=change.before))
            elif not change.before.matches(_with_unread_xattrs(found, change.before)):
                reason = describe_drift(change.before, found)
                drifted.append(DriftedFile(path=change.path, reason=reason, expected=change.before, found=found))
            elif change.before.mode & _OWNER_BITS != _OWNER_BITS:
                note(change.path)
                self.opened.add(change.path)
                self._change_mode(change.path, {change.before.mode: change.before.mode | _OWNER_BITS})
        return drifted

    def open_folders_again(self, is_done: bool) -> None:
        """Give the owner these rights after a commit was interrupted, which may have been when they were taken away."""
        for change in self._find_folders():
            if change.path in self.opened:
                self._change_mode(change.path, {change.before.mode: change.before.mode | _OWNER_BITS})
            if is_done and change.after.kind == "folder":
                self._change_mode(change.path, {change.after.mode: change.after.mode | _OWNER_BITS})

    def close_folders(self, side: Literal["before", "after"]) -> None:
        """Give these folders the modes that they had, or get."""
        for change in reversed(self._find_folders()):
            if side == "before" and change.path in self.opened:
                self._change_mode(change.path, {change.before.mode | _OWNER_BITS: change.before.mode})
            elif side == "after" and change.after.kind == "folder":
                self._change_mode(change.path, {change.after.mode | _OWNER_BITS: change.after.mode})

    def _change_mode(self, path: str, modes: Mapping[int, int]) -> None:
        # One that is gone or belongs to another user stays as it is.
        with suppress(OSError), open_folder(self.root, path, path_only=True) as folder:
            present = stat.S_IMODE(os.fstat(folder).st_mode)
            if modes.get(present, present) != present:
                os.chmod(f"/proc/self/fd/{folder}", modes[present])

    def _find_folders(self) -> list[Change]:
        """Return the folders that stay and change, and those that go and cannot be read; outer ones first."""
        found: list[Change] = []
        for index in self.active:
            for change in self.steps[index].changes:
                if self.steps[index].kind == "set" or (
                    change.before.kind == "folder" and change.before.mode & _READ_BITS != _READ_BITS
                ):
                    found.append(change)
        return sorted(found, key=lambda change: change.path)

    def stage(self, index: int, flush: bool) -> None:
        """Create what a step gives a name to, beside its place. Raise `OSError` or `MissingContentError`."""
        step = self.steps[index]
        self.current_path = step.path
        if step.kind not in ("create", "replace"):
            return
        temporary = self._temporary(index)
        with open_folder(self.root, step.parent) as folder:
            old = step.name if step.before.kind == "file" else ""
            self._stage_one(folder, temporary, step.after, flush, old)
            if step.after.kind == "folder":
                with open_folder(folder, temporary) as top:
                    self._stage_inner(top, step, flush)
            self.staged[index] = _sign(folder, temporary)

    def _stage_inner(self, top: int, step: Step, flush: bool) -> None:
        for change in step.changes:
            entries = step.entries.get(change.path, ())
            if change.after.kind == "folder" and entries:
                with open_folder(top, step.inner(change.path)) as folder:
                    for entry in entries:
                        self._stage_one(folder, _name(entry.path), entry.after, flush)
        for change in reversed(step.changes):
            if change.after.kind == "folder":
                with open_folder(top, step.inner(change.path)) as folder:
                    set_metadata(folder, change.after)

    def _stage_one(self, folder: int, name: str, state: FileState, flush: bool, old: str = "") -> None:
        if state.kind == "absent":
            return
        if state.kind == "link":
            os.symlink(state.target, name, dir_fd=folder)
            if state.mtime_ns:
                os.utime(name, ns=(state.mtime_ns, state.mtime_ns), dir_fd=folder, follow_symlinks=False)
        elif state.kind == "folder":
            os.mkdir(name, 0o700, dir_fd=folder)
        else:
            with closing_fd(os.open(name, _NEW, 0o600, dir_fd=folder)) as new:
                for chunk in self._contents.read(state.digest):
                    write_chunk(new, chunk)
                os.ftruncate(new, os.lseek(new, 0, os.SEEK_CUR))
                if old:
                    with suppress(OSError), closing_fd(os.open(old, _READ, dir_fd=folder)) as present:
                        copy_ownership(new, present)
                set_metadata(new, state)
                if flush:
                    os.fsync(new)

    def apply(self, index: int) -> None:
        """Change the name of a step. Raise `DriftError` when what had it is another file by now."""
        step, temporary, aside = self.steps[index], self._temporary(index), self._aside(index)
        self.current_path = step.path
        if step.kind == "set":
            self._set_folder(step, _widen(step.after))
            return
        with open_folder(self.root, step.parent) as folder:
            try:
                if step.kind == "create":
                    rename_to_new(folder, temporary, step.name)
                    return
                if step.kind == "remove":
                    rename_to_new(folder, step.name, temporary)
                elif not exchange(folder, temporary, step.name):
                    rename_to_new(folder, step.name, aside)
                    rename_to_new(folder, temporary, step.name)
            except OSError as error:
                if error.errno in (EEXIST, ENOENT):
                    raise DriftError(self._describe_late(step)) from None
                raise
            old = self._find_old(folder, index)
            if old not in (temporary, aside):
                raise DriftError(self._describe_late(step))

    def _set_folder(self, step: Step, state: FileState) -> None:
        with open_folder(self.root, step.path) as folder:
            set_metadata(folder, msgspec.structs.replace(state, mtime_ns=0))

    def _describe_late(self, step: Step) -> DriftedFile:
        return DriftedFile(path=step.path, reason="it was changed at the last moment", expected=step.before)

    def revert(self, index: int) -> None:
        """Give a name back to what had it, if it was changed. Staged files stay beside it."""
        step, temporary, aside = self.steps[index], self._temporary(index), self._aside(index)
        with self._open_if_there(step.parent) as folder:
            if folder is None:
                return
            if step.kind == "set":
                if _exists(folder, step.name):
                    self._set_folder(step, _widen(step.before) if step.path in self.opened else step.before)
                return
            is_new_there = self._is_new(folder, step.name, index)
            if step.kind == "create":
                if is_new_there:
                    rename_to_new(folder, step.name, temporary)
            elif _exists(folder, aside):
                if is_new_there:
                    rename_to_new(folder, step.name, temporary)
                rename_to_new(folder, aside, step.name)
            elif step.kind == "replace" and is_new_there and _exists(folder, temporary):
                exchange(folder, temporary, step.name)
            elif step.kind == "remove" and _exists(folder, temporary):
                rename_to_new(folder, temporary, step.name)

    def clean(self, index: int) -> list[SkippedFile]:
        """Remove what is left beside a step, old or staged. Return what was not removed: it was changed."""
        step = self.steps[index]
        left: list[SkippedFile] = []
        with self._open_if_there(step.parent) as folder:
            if folder is None or step.kind == "set":
                return left
            for name in (self._temporary(index), self._aside(index)):
                if _exists(folder, name):
                    is_old = step.kind == "remove" or (index in self.staged and not self._is_new(folder, name, index))
                    known = {one.path for one in step.changes if (one.before if is_old else one.after).kind != "absent"}
                    kept = self._remove(folder, name, step.path, known, is_old)
                    left += [
                        SkippedFile(
                            path="/".join(filter(None, (step.parent, name, step.inner(path)))), reason=_CHANGED_LATE
                        )
                        for path in kept
                    ]
        return left

    def _remove(self, folder: int, name: str, path: str, known: set[str], is_old: bool) -> list[str]:
        """Remove a file, or a folder with the paths that are known. Return those that are not."""
        found = lstat(folder, name)
        if found is None:
            return []
        if path not in known or (is_old and self.signatures.get(path) != _signature_of(found)):
            return [path]
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=folder)
            return []
        with open_folder(folder, name, path_only=True) as opened:
            os.chmod(f"/proc/self/fd/{opened}", stat.S_IMODE(found.st_mode) | _OWNER_BITS)
        with open_folder(folder, name) as inner:
            kept = [
                one for each in os.listdir(inner) for one in self._remove(inner, each, f"{path}/{each}", known, is_old)
            ]
        if not kept:
            os.rmdir(name, dir_fd=folder)
        return kept

    # Where the old and the new are, by their inode numbers

    def is_applied(self, index: int) -> bool:
        """Return True if a step has changed its name. Its files may have been changed since."""
        step = self.steps[index]
        with self._open_if_there(step.parent) as folder:
            if folder is None:
                return step.kind != "create"
            if step.kind == "set":
                found = _read_or_explain(folder, step.name)
                return isinstance(found, FileState) and _widen(step.after).matches(_widen(found))
            if step.kind == "create":
                return not self._is_new(folder, self._temporary(index), index)
            return self._find_old(folder, index) != step.name and not self._is_new(
                folder, self._temporary(index), index
            )

    def find_edits(self, index: int, is_applied: bool) -> list[SkippedFile]:
        """Return what others changed in a step since it was applied, or since it was staged."""
        step = self.steps[index]
        edits: list[DriftedFile] = []
        with self._open_if_there(step.parent) as folder:
            if folder is None:
                return [SkippedFile(path=step.path, reason="its folder is gone")]
            if step.kind == "set":
                found = _read_or_explain(folder, step.name)
                states = (_widen(step.before), _widen(step.after))
                if isinstance(found, str) or not any(one.matches(_widen(found)) for one in states):
                    return [SkippedFile(path=step.path, reason="its mode or its attributes changed since")]
                return []
            if is_applied:
                inverse = [Change(path=one.path, before=one.after, after=one.before) for one in step.changes]
                step = Step(step.kind, inverse)
            kept = dict(self.signatures)
            # What cannot be read is in a folder without rights for its owner. It counts as unchanged.
            with suppress(PermissionError):
                self._check_tree(folder, step.name, step, step.changes[0], edits)
            self.signatures = kept
        return [SkippedFile(path=one.path, reason=one.reason) for one in edits]

    @contextmanager
    def _open_if_there(self, path: str) -> Generator[int | None]:
        """Open a folder. None: it is gone, or a link took its name."""
        with ExitStack() as stack:
            opened: int | None = None
            with suppress(FileNotFoundError, NotADirectoryError):
                opened = stack.enter_context(open_folder(self.root, path))
            yield opened

    def _find_old(self, folder: int, index: int) -> str:
        step = self.steps[index]
        names = (self._temporary(index), self._aside(index), step.name)
        signed = self.signatures.get(step.path)
        return next((name for name in names if (found := lstat(folder, name)) and _signature_of(found) == signed), "")

    def _is_new(self, folder: int, name: str, index: int) -> bool:
        found, staged = lstat(folder, name), self.staged.get(index)
        return found is not None and staged is not None and (found.st_dev, found.st_ino) == staged[:2]

    def _temporary(self, index: int) -> str:
        return f".interlock-{self._token}-{index}.tmp"

    def _aside(self, index: int) -> str:
        return f".interlock-{self._token}-{index}.old"


def describe_drift(expected: FileState, found: FileState) -> str:
    """Return in which way a file is not what it was."""
    if found.kind == "absent":
        return "it is gone"
    if expected.kind == "absent":
        return "it appeared since"
    if expected.kind != found.kind:
        return f"it is a {found.kind} now"
    if found.kind == "link":
        return "it leads elsewhere now"
    if (expected.digest, expected.size) != (found.digest, found.size):
        return "its content changed since"
    return "its mode changed since" if expected.mode != found.mode else "its attributes changed since"


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _with_unread_xattrs(found: FileState, expected: FileState) -> FileState:
    """Take the attributes of a folder that cannot be read for what they were."""
    can_read = found.mode & stat.S_IRUSR or found.xattrs
    return found if can_read else msgspec.structs.replace(found, xattrs=expected.xattrs)


def _widen(state: FileState) -> FileState:
    return msgspec.structs.replace(state, mode=state.mode | _OWNER_BITS)


def _read_or_explain(folder: int, name: str) -> FileState | str:
    try:
        return read_state(folder, name, hash_content)
    except UnsupportedFileError as error:
        return f"it is {error} now"
    except OSError as error:
        return f"it cannot be read ({error.strerror})"


def _exists(folder: int, name: str) -> bool:
    return lstat(folder, name) is not None


def _signature_of(found: os.stat_result) -> Signature:
    if stat.S_ISDIR(found.st_mode):
        return found.st_dev, found.st_ino, 0, 0
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _sign(folder: int, name: str) -> Signature:
    return _signature_of(os.stat(name, dir_fd=folder, follow_symlinks=False))
