"""Change sets that were tried and wait for an approval: compared with the workspace, committed, or forgotten."""

from typing import TypeVar

import msgspec

from ...changes.change_set import ChangeSet
from ...changes.commit import CommitFailed, CommitResult, Committed
from ...changes.store import ChangeStore
from ...domain.payload import BindingChange
from ...sandbox.workspace.workspace import Workspace
from .baseline import display_path


class TriedChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a trial until it is committed."""

    #: The digest of its change set.
    changes: str


TriedT = TypeVar("TriedT", bound=TriedChanges)


class ChangeTrials:
    """The part of a `TrialRunner` that is the same for all that changes the workspace. Its methods block."""

    def __init__(self, workspace: Workspace, store: ChangeStore) -> None:
        self._workspace = workspace
        self._store = store

    def find_drift(self, digest: str) -> tuple[BindingChange, ...]:
        """Return the files that differ from those that were changed in the trial."""
        drifted = self._store.find_drift(self._load_changes(digest), self._workspace)
        return tuple(
            BindingChange(f"file {display_path(file.path)}", "as it was tried", file.reason) for file in drifted
        )

    def was_applied(self, digest: str) -> bool | None:
        """Return whether the effect is in the workspace, after what a killed process left was completed or undone."""
        self._store.recover()
        changed = self._load_changes(digest)
        if not self._store.find_drift(changed, self._workspace):
            return False
        return True if not self._store.find_drift(changed.invert(), self._workspace) else None

    def discard(self, digest: str) -> None:
        """Forget a trial."""
        self._store.discard_note(digest)

    def _keep_tried(self, tried: TriedChanges) -> str:
        return self._store.keep_note(msgspec.json.encode(tried))

    def _load_tried(self, digest: str, kind: type[TriedT]) -> TriedT:
        """Return what is kept of a trial. Raise `MissingContentError` when it is gone."""
        return msgspec.json.decode(self._store.load_note(digest), type=kind)

    def _load_changes(self, digest: str) -> ChangeSet:
        return self._store.load(self._load_tried(digest, TriedChanges).changes)

    def _commit(self, changed: ChangeSet, *, skip_drifted: bool = False) -> CommitResult:
        """Commit, after what a killed process left was completed or undone, and keep what was committed."""
        result = self._store.commit(changed, self._workspace, skip_drifted=skip_drifted)
        if isinstance(result, CommitFailed) and result.needs_recovery:
            self._store.recover()
            result = self._store.commit(changed, self._workspace, skip_drifted=skip_drifted)
        if isinstance(result, Committed):
            self._store.keep(result.change_set)
        return result
