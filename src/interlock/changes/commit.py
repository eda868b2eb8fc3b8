"""Commits: a change set is applied to a workspace as a whole, or not at all.

First every file is compared with what it was (drift). Then what is new is staged beside its place, under a name of
ours, and a journal says that all is ready. Only then the names change, each in one step: a new file gets its name, a
changed one exchanges its name with the old one, a deleted one gets a name of ours. So nothing is lost until the journal
says that all is done, and then what is old is removed. A folder that appears or disappears is one step with all that is
in it.

Whatever fails before that is reverted. A process that was killed leaves its journal: `recover` finds by inode numbers
what was done, and reverts it; or completes it, where another program has already changed a file that was new. What
others changed meanwhile stays as they left it.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import msgspec

from ..sandbox.host.descriptors import closing_fd, write_all
from .change_set import ChangeSet, SkippedFile
from .contents import ContentStore, MissingContentError
from .file_access import MAX_SINGLE_SYNCS, sync_filesystem
from .transaction import DriftedFile, DriftError, Transaction, plan_steps

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
SUFFIX = ".journal"


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """A change set was applied."""

    #: What was applied: less than was given where drifted files were skipped.
    change_set: ChangeSet
    drifted: tuple[DriftedFile, ...] = ()
    #: Old files that were not removed, since they were changed at the last moment, under the names they have now.
    left: tuple[SkippedFile, ...] = ()


class Drifted(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was changed: files are not what they were."""

    files: tuple[DriftedFile, ...]


class CommitFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was changed, or (`needs_recovery`) it could not be reverted yet."""

    reason: str
    path: str = ""
    #: `ChangeStore.recover` has to be called before the next commit.
    needs_recovery: bool = False


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """How a commit that a killed process left was finished."""

    workspace: str
    #: Of the change set.
    digest: str
    #: `blocked`: its workspace is gone or cannot be written, so it is tried again the next time.
    outcome: Literal["completed", "rolled_back", "blocked"]
    reason: str = ""
    #: Files that others changed meanwhile. They were left as they are.
    conflicts: tuple[SkippedFile, ...] = ()


class Journal:
    """The record of one commit: a line for what is planned, one when all is staged, one when all is done."""

    def __init__(self, folder: int, name: str) -> None:
        self._folder = folder
        self.name = name
        self._file = -1

    def begin(self, header: Mapping[str, Any]) -> None:
        """Create the journal, before anything is changed."""
        self._file = os.open(self.name, _NEW | os.O_APPEND, 0o600, dir_fd=self._folder)
        self._write(header)

    def open_folder(self, path: str) -> None:
        """Record that the mode of a folder is about to be changed."""
        self._write({"opened": path})

    def stage(self, index: int) -> None:
        """Note that a step was staged."""

    def ready(self, record: Mapping[str, Any]) -> None:
        """Record that all is staged. Durable: names change from here on."""
        self._write(record)
        os.fsync(self._file)
        os.fsync(self._folder)

    def apply(self, index: int) -> None:
        """Note that a step was applied."""

    def done(self) -> None:
        """Record that all steps were applied. Durable: from here on they are not reverted."""
        self._write({"done": True})
        os.fsync(self._file)

    def clean(self, index: int) -> None:
        """Note that what a step left was removed."""

    def close(self) -> None:
        """Remove the journal: the commit is over."""
        with suppress(FileNotFoundError):
            os.unlink(self.name, dir_fd=self._folder)

    def release(self) -> None:
        """Close the file. The journal stays, unless it was closed."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, record: Mapping[str, Any]) -> None:
        write_all(self._file, json.dumps(record, separators=(",", ":")).encode() + b"\n")


CommitResult: TypeAlias = Committed | Drifted | CommitFailed


def run_commit(
    transaction: Transaction, change_set: ChangeSet, workspace: str, journal: Journal, *, skip_drifted: bool
) -> CommitResult:
    """Apply the change set of a new transaction. The caller holds the lock of the journals."""
    header = {
        "workspace": workspace,
        "identity": transaction.root_identity,
        "change_set": msgspec.to_builtins(change_set),
    }
    started: list[int] = []
    try:
        journal.begin(header)
        drifted = [*transaction.open_folders(journal.open_folder), *transaction.check_names()]
        if drifted and not skip_drifted:
            return _roll_back(transaction, journal, started, Drifted(files=tuple(drifted)))
        transaction.skip(drifted)
        _stage(transaction, journal)
        for index in transaction.active:
            started.append(index)
            transaction.apply(index)
            journal.apply(index)
        journal.done()
    except DriftError as error:
        return _roll_back(transaction, journal, started, Drifted(files=(error.drifted,)))
    except (OSError, MissingContentError) as error:
        failed = CommitFailed(reason=_describe(error), path=transaction.current_path)
        return _roll_back(transaction, journal, started, failed)
    finally:
        journal.release()
    try:
        left = _finish(transaction, journal)
    except OSError as error:
        left = [SkippedFile(path=".", reason=f"old files could not be removed yet ({_describe(error)})")]
    return Committed(change_set=transaction.change_set, drifted=tuple(drifted), left=tuple(left))


def _stage(transaction: Transaction, journal: Journal) -> None:
    is_small = transaction.count_staged_files() <= MAX_SINGLE_SYNCS
    for index in transaction.active:
        transaction.stage(index, flush=is_small)
        journal.stage(index)
    if not is_small:
        sync_filesystem(transaction.root)
    journal.ready({"active": transaction.active, "staged": transaction.staged, "signatures": transaction.signatures})


def _finish(transaction: Transaction, journal: Journal) -> list[SkippedFile]:
    left: list[SkippedFile] = []
    for index in transaction.active:
        left += transaction.clean(index)
        journal.clean(index)
    transaction.close_folders("after")
    journal.close()
    return left


def _roll_back(
    transaction: Transaction, journal: Journal, started: Sequence[int], result: CommitResult
) -> CommitResult:
    try:
        for index in reversed(started):
            transaction.revert(index)
        for index in transaction.active:
            transaction.clean(index)
        transaction.close_folders("before")
        journal.close()
    except OSError as error:
        return CommitFailed(reason=f"it could not be reverted ({_describe(error)})", needs_recovery=True)
    return result


def _describe(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def recover_journal(journals: int, name: str, contents: ContentStore) -> Recovered | None:
    """Finish or revert what a journal says. None: nothing was changed yet. The caller holds the lock of journals."""
    try:
        lines = _read_lines(journals, name)
        if not lines:
            os.unlink(name, dir_fd=journals)
            return None
        header = lines[0]
        change_set = ChangeSet.from_builtins(header["change_set"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        os.rename(name, f"{name}.damaged", src_dir_fd=journals, dst_dir_fd=journals)
        return Recovered(workspace="", digest="", outcome="blocked", reason=f"its journal is damaged ({error})")
    workspace, digest = str(header["workspace"]), change_set.digest()
    try:
        with closing_fd(os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)) as root:
            transaction = Transaction(root, contents, name.removesuffix(SUFFIX), plan_steps(change_set))
            if transaction.root_identity != header["identity"]:
                reason = "another folder has its name now"
                return Recovered(workspace=workspace, digest=digest, outcome="blocked", reason=reason)
            transaction.load(lines[1:])
            is_ready, is_done = (any(key in line for line in lines) for key in ("active", "done"))
            transaction.open_folders_again(is_done)
            outcome, conflicts = _finish_or_revert(transaction, is_done, is_ready=is_ready)
            os.unlink(name, dir_fd=journals)
    except OSError as error:
        return Recovered(workspace=workspace, digest=digest, outcome="blocked", reason=_describe(error))
    return Recovered(workspace=workspace, digest=digest, outcome=outcome, conflicts=tuple(conflicts))


def _finish_or_revert(
    transaction: Transaction, is_done: bool, *, is_ready: bool
) -> tuple[Literal["completed", "rolled_back"], list[SkippedFile]]:
    if not is_ready:
        for index in transaction.active:
            # In a folder that was not opened yet nothing was staged.
            with suppress(PermissionError):
                transaction.clean(index)
        transaction.close_folders("before")
        return "rolled_back", []
    applied = {index: transaction.is_applied(index) for index in transaction.active}
    edits = {index: transaction.find_edits(index, applied[index]) for index in transaction.active}
    has_edit_of_new = any(edits[index] and applied[index] for index in transaction.active)
    has_edit_of_old = any(edits[index] and not applied[index] for index in transaction.active)
    if is_done or (has_edit_of_new and not has_edit_of_old):
        for index in transaction.active:
            if not applied[index] and not edits[index]:
                with suppress(DriftError):
                    transaction.apply(index)
        left = [one for index in transaction.active for one in transaction.clean(index)]
        transaction.close_folders("after")
        return "completed", left if is_done else [*(one for found in edits.values() for one in found), *left]
    conflicts: list[SkippedFile] = []
    for index in reversed(transaction.active):
        if not edits[index]:
            transaction.revert(index)
        elif applied[index]:
            conflicts += edits[index]
    for index in transaction.active:
        conflicts += transaction.clean(index)
    transaction.close_folders("before")
    return "rolled_back", conflicts


def _read_lines(journals: int, name: str) -> list[dict[str, Any]]:
    """Return the complete lines of a journal. What was cut off was not written."""
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=journals)
    with open(opened, "rb") as file:
        return [json.loads(line) for line in file if line.endswith(b"\n")]
