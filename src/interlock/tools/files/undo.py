"""`undo`: put back what calls of a run changed in the workspace, as far as nothing else changed it since.

It is a call like any other: it is proposed by a person, tried (the plan), approved by what it would do, committed and
recorded. What it changed is a change set, so an undo can be undone.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from ...changes.change_set import CHANGE_SET_FACT, ChangeSet
from ...changes.commit import CommitFailed, Committed, Drifted
from ...changes.contents import MissingContentError
from ...changes.store import ChangeStore
from ...changes.undo import CallChanges, plan_undo
from ...domain.errors import PreconditionError
from ...domain.outcome import SideEffect
from ...domain.tool import CallContext, CheckProblem, JsonObject, NormalizedOutput, ToolContext, ToolDefinition
from ...domain.trial import Trial, TriedChange
from ...registry.decorator import tool
from ...rendering.text import pluralize
from ...sandbox.workspace.workspace import Workspace
from .baseline import display_path
from .change_summary import MAX_CHANGES_LISTED, summarize_changes
from .change_trials import ChangeTrials, TriedChanges

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


class _TriedUndo(TriedChanges, frozen=True, kw_only=True):
    skipped: tuple[TriedChange, ...]


def undo_tool(workspace: Workspace, store: ChangeStore, history: Sequence[RecordedChanges]) -> ToolDefinition:
    """Return the tool for one run. It is for people: an agent is not offered it.

    Args:
        workspace: The workspace of the run.
        store: Where its changes are kept.
        history: The calls of the run that changed the workspace, in order.
    """
    trials = UndoTrials(workspace, store, history)

    def undo(context: ToolContext, run_id: str, calls: list[str]) -> UndoResult:
        """Put back what calls of a run changed in the workspace.

        Args:
            run_id: The run.
            calls: The calls to undo.
        """
        return trials.commit(context.trial or trials.plan(calls).digest)

    return tool(
        undo,
        name=UNDO_TOOL,
        risk="write",
        concurrency="exclusive",
        normalize=_normalize,
        trial=trials,
        timeout_seconds=600.0,
    )


class UndoTrials(ChangeTrials):
    """Plans an undo as the trial of its call, and commits that plan."""

    def __init__(self, workspace: Workspace, store: ChangeStore, history: Sequence[RecordedChanges]) -> None:
        super().__init__(workspace, store)
        self._history = history

    def find_obstacle(self, arguments: JsonObject, situation: CallContext) -> str:
        """Return nothing: an undo can always be planned."""
        return ""

    async def run(self, arguments: JsonObject, context: ToolContext) -> Trial:
        """Plan the undo of a call."""
        return await self.preview(arguments["calls"])

    async def preview(self, calls: Sequence[str]) -> Trial:
        """Return what undoing these calls would do, and change nothing."""
        return await asyncio.to_thread(self.plan, calls)

    def plan(self, calls: Sequence[str]) -> Trial:
        """Do what `preview` does, and block."""
        history = [CallChanges(one.call_id, self._load_recorded(one)) for one in self._history]
        plan = plan_undo(history, frozenset(calls), self._store, self._workspace)
        self._store.keep(plan.change_set)
        skipped = tuple(TriedChange(display_path(one.path), "skipped", one.reason) for one in plan.skipped)
        summary = summarize_changes(plan.change_set, self._store.read_content)
        count, left = summary.change_count, len(skipped)
        return Trial(
            digest=self._keep_tried(_TriedUndo(changes=plan.change_set.digest(), skipped=skipped)),
            outcome=f"{pluralize(count, 'file')} can be put back" + (f", {left:,} cannot" if left else ""),
            changes=(*summary.changes, *skipped[:MAX_CHANGES_LISTED]),
            change_count=count,
            diff=summary.diff,
            is_diff_cut=summary.is_diff_cut,
        )

    def commit(self, digest: str) -> UndoResult:
        """Put the files of a plan back. Raise `PreconditionError` when nothing was changed."""
        tried = self._load_tried(digest, _TriedUndo)
        match self._commit(self._store.load(tried.changes)):
            case Committed(change_set=done):
                return UndoResult(done, tried.skipped)
            case Drifted(files=files):
                named = ", ".join(display_path(file.path) for file in files[:_MAX_NAMED])
                message = f"{named} changed since the undo was planned"
                raise PreconditionError(CheckProblem(code="stale_file_baseline", message=message))
            case CommitFailed(reason=reason):
                raise PreconditionError(CheckProblem(message=f"the files could not be put back: {reason}"))

    def _load_recorded(self, recorded: RecordedChanges) -> ChangeSet:
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
