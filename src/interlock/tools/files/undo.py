"""`undo`: put back what calls of a run changed in the workspace, as far as nothing else changed it since.

It is a call like any other: it is proposed by a person, tried (the plan), approved by what it would do, committed and
recorded. What it changed is a change set, so an undo can be undone.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ...changes.change_set import CHANGE_SET_FACT, ChangeSet
from ...changes.commit import CommitFailed, Committed, Drifted
from ...changes.contents import MissingContentError
from ...changes.store import ChangeStore
from ...changes.undo import CallChanges, UndoPlan, plan_undo
from ...domain.errors import PreconditionError
from ...domain.outcome import SideEffect
from ...domain.payload import BindingChange
from ...domain.tool import CallContext, CheckProblem, JsonObject, NormalizedOutput, ToolContext, ToolDefinition
from ...domain.trial import Trial, TriedChange
from ...registry.decorator import tool
from ...rendering.text import pluralize
from ...sandbox.workspace.workspace import Workspace
from .baseline import display_path
from .change_summary import summarize_changes

UNDO_TOOL = "undo"
_MAX_NAMED = 20


class RecordedChanges(msgspec.Struct, frozen=True):
    """A call that changed the workspace, as the log has it."""

    call_id: str
    #: The event with its outcome. Of an undo: the last event of the run before it.
    seq: int
    #: The digest of its change set.
    digest: str
    #: It is an undo of the run, and not one of its calls.
    is_undo: bool = False


class UndoResult(msgspec.Struct, frozen=True):
    """What was put back, and what stays."""

    change_set: ChangeSet
    skipped: tuple[TriedChange, ...] = ()


class _TriedUndo(msgspec.Struct, frozen=True):
    changes: str
    skipped: tuple[TriedChange, ...]


#: Returns the calls of a run that changed the workspace, in order.
FindChanges = Callable[[str], Awaitable[Sequence[RecordedChanges]]]


def undo_tool(workspace: Workspace, store: ChangeStore, find_changes: FindChanges) -> ToolDefinition:
    """Return the tool. It is for people: an agent is not offered it."""
    trials = UndoTrials(workspace, store, find_changes)

    async def undo(context: ToolContext, run_id: str, calls: list[str]) -> UndoResult:
        """Put back what calls of a run changed in the workspace.

        Args:
            run_id: The run.
            calls: The calls to undo.
        """
        tried = trials.load(context.trial) if context.trial else trials.keep(await trials.plan(run_id, calls))[1]
        return trials.commit(tried)

    return tool(
        undo,
        name=UNDO_TOOL,
        risk="write",
        concurrency="exclusive",
        normalize=_normalize,
        trial=trials,
        timeout_seconds=600.0,
    )


class UndoTrials:
    """Plans an undo as the trial of its call, and commits that plan."""

    def __init__(self, workspace: Workspace, store: ChangeStore, find_changes: FindChanges) -> None:
        self._workspace = workspace
        self._store = store
        self._find_changes = find_changes

    def find_obstacle(self, arguments: JsonObject, situation: CallContext) -> str:
        return ""

    async def run(self, arguments: JsonObject, context: ToolContext) -> Trial:
        return await self.preview(arguments["run_id"], arguments["calls"])

    async def preview(self, run_id: str, calls: Sequence[str]) -> Trial:
        """Return what undoing these calls would do, and change nothing."""
        digest, tried = self.keep(await self.plan(run_id, calls))
        changed = self._store.load(tried.changes)
        summary = summarize_changes(changed, self._store.read_content)
        count, left = summary.change_count, len(tried.skipped)
        return Trial(
            digest=digest,
            outcome=f"{pluralize(count, 'file')} can be put back" + (f", {left:,} cannot" if left else ""),
            changes=(*summary.changes, *tried.skipped[:_MAX_NAMED]),
            change_count=count,
            diff=summary.diff,
            is_diff_cut=summary.is_diff_cut,
        )

    async def plan(self, run_id: str, calls: Sequence[str]) -> UndoPlan:
        """Return what undoing these calls would do now."""
        history = [CallChanges(one.call_id, self._load_changes(one)) for one in await self._find_changes(run_id)]
        return plan_undo(history, frozenset(calls), self._store, self._workspace)

    def keep(self, plan: UndoPlan) -> tuple[str, _TriedUndo]:
        """Keep a plan, and return its digest."""
        self._store.keep(plan.change_set)
        skipped = tuple(TriedChange(display_path(one.path), "skipped", one.reason) for one in plan.skipped)
        tried = _TriedUndo(plan.change_set.digest(), skipped)
        return self._store.keep_note(msgspec.json.encode(tried)), tried

    def load(self, digest: str) -> _TriedUndo:
        """Return a kept plan. Raise `MissingContentError` when there is none."""
        return msgspec.json.decode(self._store.load_note(digest), type=_TriedUndo)

    def commit(self, tried: _TriedUndo) -> UndoResult:
        """Put the files back. Raise `PreconditionError` when nothing was changed."""
        changed = self._store.load(tried.changes)
        match self._store.commit(changed, self._workspace):
            case Committed(change_set=done):
                return UndoResult(done, tried.skipped)
            case Drifted(files=files):
                named = ", ".join(display_path(file.path) for file in files[:_MAX_NAMED])
                message = f"{named} changed since the undo was planned"
                raise PreconditionError(CheckProblem(code="stale_file_baseline", message=message))
            case CommitFailed(reason=reason, needs_recovery=needs_recovery):
                if needs_recovery:
                    self._store.recover()
                raise PreconditionError(CheckProblem(message=f"the files could not be put back: {reason}"))

    def find_drift(self, digest: str) -> tuple[BindingChange, ...]:
        drifted = self._store.find_drift(self._store.load(self.load(digest).changes), self._workspace)
        return tuple(BindingChange(f"file {display_path(one.path)}", "as it was", one.reason) for one in drifted)

    def was_applied(self, digest: str) -> bool | None:
        self._store.recover()
        changed = self._store.load(self.load(digest).changes)
        if not self._store.find_drift(changed, self._workspace):
            return False
        return True if not self._store.find_drift(changed.invert(), self._workspace) else None

    def discard(self, digest: str) -> None:
        self._store.discard_note(digest)

    def _load_changes(self, recorded: RecordedChanges) -> ChangeSet:
        try:
            return self._store.load(recorded.digest)
        except MissingContentError as error:
            message = f"What {recorded.call_id} changed is not kept any more ({error})"
            raise PreconditionError(CheckProblem(message=message)) from None


def _normalize(result: UndoResult) -> NormalizedOutput:
    changes = result.change_set.changes
    skipped = f"; {pluralize(len(result.skipped), 'file')} left as it is" if result.skipped else ""
    named = ", ".join(display_path(one.path) for one in changes[:_MAX_NAMED])
    return NormalizedOutput(
        summary=f"{pluralize(len(changes), 'file')} put back{skipped}",
        text=named,
        side_effects=(SideEffect(kind="modified", target="workspace", detail=f"put back: {named}"),) if changes else (),
        facts={
            "paths": [display_path(one.path) for one in changes[:_MAX_NAMED]],
            "skipped": [{"path": one.path, "reason": one.detail} for one in result.skipped[:_MAX_NAMED]],
            **({CHANGE_SET_FACT: result.change_set.digest()} if changes else {}),
        },
    )
