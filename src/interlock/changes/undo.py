"""Undo: which files of a run can be put back, which cannot and why, as a plan that is itself a change set.

A file is put back to what it was before the first of the selected calls that changed it, as long as every change since
is one of theirs. Where a later call or another program changed it, it stays, and the plan says by whom. A folder is
removed only when nothing is left in it that the plan does not remove.

The plan is committed like any other change set (`ChangeStore.commit`), so it is all or nothing, is compared once more,
and can be undone in turn.
"""

import os
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from ..sandbox.workspace.workspace import Workspace
from .change_set import Change, ChangeSet, FileState
from .file_access import UnsupportedFileError, hash_content, open_folder, read_path
from .store import ChangeStore


class CallChanges(NamedTuple):
    """What one call changed. An undo is a call, too."""

    call_id: str
    change_set: ChangeSet


class UndoFile(msgspec.Struct, frozen=True, kw_only=True):
    """What undoing does to one path."""

    path: str
    #: `restored` is there already, or was never changed: nothing is done.
    action: Literal["restore", "skip", "restored"]
    #: Why it is skipped, or why it is not restored as far back as the first call.
    reason: str = ""
    #: The later call that changed it; empty: another program, or none.
    changed_by: str = ""
    found: FileState | None = None
    restored: FileState


class UndoPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What undoing would do: the change set to commit, and every path with what happens to it."""

    change_set: ChangeSet
    files: tuple[UndoFile, ...]

    @property
    def skipped(self) -> tuple[UndoFile, ...]:
        """Paths that stay as they are although a selected call changed them."""
        return tuple(one for one in self.files if one.action == "skip")


def plan_undo(
    history: Sequence[CallChanges], selected: Collection[str], store: ChangeStore, workspace: Workspace
) -> UndoPlan:
    """Plan to undo calls. Nothing is changed.

    Args:
        history: All calls that changed the workspace, in order, undone ones and their undos included.
        selected: Which of them to undo: all, all after one, or a single one.
    """
    with workspace.open_root() as root:
        planner = _Planner(root.fd, store)
        for path, changes in _group_by_path(history).items():
            if any(call_id in selected for call_id, _ in changes):
                planner.plan_path(path, changes, selected)
        planner.keep_folders_in_use()
        planner.skip_without_folder()
        return planner.finish()


def _group_by_path(history: Iterable[CallChanges]) -> dict[str, list[tuple[str, Change]]]:
    found: dict[str, list[tuple[str, Change]]] = {}
    for call in history:
        for change in call.change_set.changes:
            found.setdefault(change.path, []).append((call.call_id, change))
    return found


class _Planner:
    def __init__(self, root: int, store: ChangeStore) -> None:
        self._root = root
        self._store = store
        self._files: dict[str, UndoFile] = {}

    def plan_path(self, path: str, changes: Sequence[tuple[str, Change]], selected: Collection[str]) -> None:
        """Decide about one path by what calls did to it, and by what it is now."""
        last_id, last = changes[-1]
        oldest, reason = last, ""
        for call_id, change in reversed(changes):
            if call_id not in selected:
                reason = f"call {call_id} changed it as well" if oldest is not last else ""
                break
            if change is not last and not change.after.matches(oldest.before):
                reason = f"it was changed between the calls, after {call_id}: it is restored to what it was then"
                break
            oldest = change
        target, found = oldest.before, self._read(path)
        if last_id not in selected:
            self._skip(path, f"call {last_id} changed it later", target, changed_by=last_id)
        elif isinstance(found, str):
            self._skip(path, found, target)
        elif target.matches(found):
            self._files[path] = UndoFile(path=path, action="restored", found=found, restored=target)
        elif not last.after.matches(found):
            self._skip(path, "it was changed since by another program", target, found)
        elif target.kind == "file" and not (target.digest and self._store.has_content(target.digest)):
            self._skip(path, "its content was not kept", target, found)
        else:
            # The content that the call left is known also where the file cannot be read.
            found = msgspec.structs.replace(last.after, mtime_ns=found.mtime_ns)
            self._files[path] = UndoFile(path=path, action="restore", reason=reason, found=found, restored=target)

    def keep_folders_in_use(self) -> None:
        """Skip folders that would go with something in them that stays. Inner ones first: they decide on outer ones."""
        for path in sorted(self._files, reverse=True):
            file = self._files[path]
            if file.action != "restore" or file.found is None or file.found.kind != "folder":
                continue
            if file.restored.kind != "folder" and (stays := self._find_staying(path)):
                self._skip(path, f"it holds {stays!r}, which stays", file.restored, file.found)

    def skip_without_folder(self) -> None:
        """Skip files whose folder will not be there. Outer ones first."""
        for path in sorted(self._files):
            file, parent = self._files[path], path.rpartition("/")[0]
            if file.action == "restore" and file.restored.kind != "absent" and not self._will_be_folder(parent):
                self._skip(path, "its folder is not there and is not restored", file.restored, file.found)

    def finish(self) -> UndoPlan:
        files = tuple(self._files[path] for path in sorted(self._files))
        changes = (
            Change(path=one.path, before=one.found, after=one.restored)
            for one in files
            if one.action == "restore" and one.found is not None
        )
        return UndoPlan(change_set=ChangeSet(changes=tuple(changes)), files=files)

    def _skip(
        self, path: str, reason: str, target: FileState, found: FileState | None = None, changed_by: str = ""
    ) -> None:
        self._files[path] = UndoFile(
            path=path, action="skip", reason=reason, changed_by=changed_by, found=found, restored=target
        )

    def _read(self, path: str) -> FileState | str:
        try:
            return read_path(self._root, path, hash_content)
        except UnsupportedFileError as error:
            return f"it is {error} now"
        except OSError as error:
            return f"it cannot be read ({error.strerror})"

    def _find_staying(self, path: str) -> str:
        """Return a name in a folder that is not removed; empty: there is none."""
        try:
            with open_folder(self._root, path) as folder:
                names = sorted(os.listdir(folder))
        except OSError as error:
            return error.strerror or "something unreadable"
        for name in names:
            file = self._files.get(f"{path}/{name}")
            if file is None or file.action != "restore" or file.restored.kind != "absent":
                return name
        return ""

    def _will_be_folder(self, path: str) -> bool:
        if not path:
            return True
        file = self._files.get(path)
        if file is not None and file.action == "restore":
            return file.restored.kind == "folder"
        found = file.found if file is not None and file.found is not None else self._read(path)
        return isinstance(found, FileState) and found.kind == "folder" and self._will_be_folder(path.rpartition("/")[0])
