"""Undo of what runs changed in their workspaces: a preview, and then the undo of exactly what was previewed.

Undoing a run needs the permission to undo it, and a second person where approving its calls would. The undo is a run of
its own, which acts for the person who asked for it; whether an undo may be undone is decided by the run that it is
about.
"""

import asyncio
from collections import OrderedDict
from weakref import WeakValueDictionary

import msgspec

from ....changes.change_set import CHANGE_SET_FACT
from ....domain.call import Answer, Channel, Question
from ....domain.errors import PreconditionError
from ....domain.event import CallObserved, decode_event
from ....domain.trial import Trial, TriedChange
from ....interaction.providers import CallbackInteractionProvider
from ....local import LocalTools
from ....pipeline.events import redact_trial
from ....runs.runner import Runner
from ....tools.files.undo import UNDO_TOOL
from ....undo import (
    ChangedRun,
    UndoRefusedError,
    find_undone_run,
    load_changed_run,
    preview_undo,
    select_calls,
    undo_calls,
)
from ..errors import ConflictError, NotFoundError
from ..identity.guard import AccessGuard
from ..identity.permissions import Operation, find_four_eyes_problem, is_allowed
from ..identity.principal import Principal
from ..index.rows import RunQuery, RunRow
from ..index.run_index import RunIndex
from .agent_runners import AgentRunners
from .damaged_runs import DamagedRuns

#: What an undo does, as a question about its call would say.
_RISK = ("write",)
_MAX_UNDOS_LISTED = 50
_PAGE_SIZE = 500
_MAX_KNOWN_RUNS = 1_000
_FACT_KEY = f'"{CHANGE_SET_FACT}"'.encode()


class UndoSelection(msgspec.Struct, frozen=True, kw_only=True):
    """What to undo: one call, what happened after an event, or everything."""

    call: str = ""
    after: int | None = None


class SkippedFile(msgspec.Struct, frozen=True):
    """A file that stays as it is."""

    path: str
    reason: str


class UndoPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What an undo would do."""

    run_id: str
    calls: tuple[str, ...]
    #: Identifies all of it. The undo is for exactly this.
    digest: str
    summary: str
    #: The first files that are put back, and how many there are. Empty: there is nothing to do.
    changes: tuple[TriedChange, ...]
    change_count: int
    #: The first files that stay as they are, each with the reason.
    skipped: tuple[SkippedFile, ...]
    #: What happens to text files, and whether more was cut off.
    diff: str
    is_diff_cut: bool
    #: Why the caller may not do it; empty: they may.
    denied_reason: str
    #: Undos of this run before.
    undo_run_ids: tuple[str, ...]


class UndoResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an undo did."""

    run_id: str
    calls: tuple[str, ...]
    #: The run of the undo. It can be undone in turn.
    undo_run_id: str
    summary: str
    changes: tuple[TriedChange, ...]
    change_count: int
    skipped: tuple[SkippedFile, ...]


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    run: ChangedRun
    calls: list[str]
    runner: Runner
    #: Where the changes are kept.
    folder: str
    #: The run, and the one that decides about permissions.
    owners: tuple[RunRow, RunRow]
    preview: UndoPreview


class UndoService:
    """Previews and performs undos."""

    def __init__(self, runners: AgentRunners, index: RunIndex, guard: AccessGuard, damaged: DamagedRuns) -> None:
        self._runners = runners
        self._index = index
        self._guard = guard
        self._damaged = damaged
        #: By run: the second of two equal requests finds that nothing is left to do.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        #: By run and its last event: whether it changed files. All of its events have to be read to find out.
        self._changed: OrderedDict[tuple[str, int], bool] = OrderedDict()

    async def preview(self, principal: Principal, run_id: str, selection: UndoSelection) -> UndoPreview:
        """Return what undoing would do, and change nothing."""
        return (await self._plan(principal, run_id, selection)).preview

    async def undo(
        self, principal: Principal, run_id: str, selection: UndoSelection, digest: str, channel: Channel = "rest"
    ) -> UndoResult:
        """Undo exactly what the preview with this digest showed."""
        lock = self._locks.setdefault(run_id, asyncio.Lock())
        async with lock:
            plan = await self._plan(principal, run_id, selection)
            for owned in plan.owners:
                await self._guard.require_other_person(principal, run_id, owned, _RISK)
            if plan.preview.digest != digest:
                raise _build_changed_error(plan.preview)
            if not plan.preview.changes:
                raise ConflictError("nothing_to_undo", f"{plan.preview.summary}. Nothing was changed.", {"run": run_id})

            def approve(question: Question) -> Answer:
                is_same = question.trial is not None and question.trial.digest == digest
                reason = "" if is_same else "It changed since."
                return Answer(approved=is_same, by=principal.name, reason=reason, channel=channel)

            parts = plan.runner.app.parts
            report = await undo_calls(
                self._runners.log,
                plan.run,
                plan.calls,
                plan.folder,
                CallbackInteractionProvider(approve),
                requester=principal.name,
                artifacts=self._runners.artifacts,
                redactor=parts.redactor,
                clock=parts.clock,
            )
            if report.observation is None or not report.observation.ok:
                current = (await self._plan(principal, run_id, selection)).preview
                if current.digest != digest:  # a file changed in this moment
                    raise _build_changed_error(current)
                summary = plan.preview.summary if report.observation is None else report.observation.summary
                raise ConflictError("undo_failed", summary, {"run": run_id, "undo_run_id": report.undo_run_id})
        detail = {"undo_run": report.undo_run_id, "digest": digest}
        await self._guard.record_operation(principal, Operation.UNDO_RUN, run_id, detail)
        return UndoResult(
            run_id=run_id,
            calls=report.calls,
            undo_run_id=report.undo_run_id,
            summary=report.observation.summary,
            changes=plan.preview.changes,
            change_count=plan.preview.change_count,
            skipped=plan.preview.skipped,
        )

    async def can_undo(self, principal: Principal, row: RunRow) -> bool:
        """Return True if there is something to preview: the run changed files, and the principal may undo that."""
        if not row.is_over or row.is_damaged:
            return False
        origin = await self._guard.find_origin(row)
        if not is_allowed(principal, Operation.UNDO_RUN, origin) or await self._find_runner(origin) is None:
            return False
        if (row.run_id, row.last_seq) not in self._changed:
            self._changed[row.run_id, row.last_seq] = await self._has_changes(row.run_id)
            if len(self._changed) > _MAX_KNOWN_RUNS:
                self._changed.popitem(last=False)
        return self._changed[row.run_id, row.last_seq]

    async def list_undos(self, run: RunRow) -> list[RunRow]:
        """Return the newest runs that undid something of this one. Those who may see it may see them."""
        page = await self._index.list_runs(RunQuery(agent=UNDO_TOOL, limit=_MAX_UNDOS_LISTED))
        rows = [row for row in page.rows if row.created_at >= run.created_at]
        return [row for row in rows if await find_undone_run(self._runners.log, row.run_id) == run.run_id]

    async def find_undone(self, row: RunRow) -> str:
        """Return the run that this one undid; empty when it is no undo."""
        return await find_undone_run(self._runners.log, row.run_id) if row.agent == UNDO_TOOL else ""

    async def _plan(self, principal: Principal, run_id: str, selection: UndoSelection) -> _Plan:
        row = await self._guard.get_run(principal, run_id)
        origin = await self._guard.find_origin(row)
        await self._guard.check(principal, Operation.UNDO_RUN, origin, run_id)
        if not row.is_over:
            message = f"{run_id} is {row.status}. Its changes can be undone when it is over. Nothing was changed."
            raise ConflictError("run_active", message, {"current": row.status, "attempted": "undo"})
        async with self._damaged.detect(run_id):
            run = await load_changed_run(self._runners.log, run_id)
        runner = await self._find_runner(origin)
        folder = None if runner is None else _find_folder(runner, run.workspace)
        if runner is None or folder is None:
            message = f"No changes of {run_id} are kept here: its agent is not served, or its tools have no `changes`."
            raise ConflictError("no_changes_kept", message, {"agent": origin.agent})
        try:
            calls = select_calls(run, selection.after, selection.call)
            trial = redact_trial(await preview_undo(run, calls, folder), runner.app.parts.redactor.redact)
        except UndoRefusedError as error:
            kind = NotFoundError if error.code == "unknown_call" else ConflictError
            raise kind(error.code, f"{error} Nothing was changed.", {"run": run_id}) from None
        except PreconditionError as error:
            raise ConflictError("changes_not_kept", f"{error}. Nothing was changed.", {"run": run_id}) from None
        problems = (find_four_eyes_problem(principal, _RISK, "", each, self._guard.four_eyes) for each in (row, origin))
        preview = _build_preview(run, calls, trial, next(filter(None, problems), ""))
        return _Plan(run=run, calls=calls, runner=runner, folder=folder, owners=(row, origin), preview=preview)

    async def _find_runner(self, row: RunRow | None) -> Runner | None:
        """Return the runner of a run, or of the run around it."""
        while row is not None:
            if (runner := self._runners.by_agent.get(row.agent)) is not None:
                return runner
            row = await self._index.get_run(row.parent_run_id) if row.parent_run_id else None
        return None

    async def _has_changes(self, run_id: str) -> bool:
        """Return True if a call of the run, or of a run inside of it, changed its workspace."""
        at = -1
        while entries := await self._runners.log.read(run_id, at, _PAGE_SIZE):
            for entry in entries:
                fact = decode_event(entry).fact if _FACT_KEY in entry.body else None
                if isinstance(fact, CallObserved) and CHANGE_SET_FACT in fact.observation.facts:
                    return True
            at = entries[-1].seq
        children = await self._index.list_runs(RunQuery(parent_run_id=run_id, include_child_runs=True))
        for child in children.rows:
            if not child.is_damaged and await self._has_changes(child.run_id):
                return True
        return False


def _find_folder(runner: Runner, workspace: str) -> str | None:
    """Return where the agent's tools keep the changes of a workspace."""
    boxes = (box for box in runner.app.toolboxes if isinstance(box, LocalTools))
    return next((box.changes_folder for box in boxes if box.root == workspace), None)


def _build_preview(run: ChangedRun, calls: list[str], trial: Trial, denied_reason: str) -> UndoPreview:
    return UndoPreview(
        run_id=run.run_id,
        calls=tuple(calls),
        digest=trial.digest,
        summary=trial.outcome,
        changes=tuple(change for change in trial.changes if change.kind != "skipped"),
        change_count=trial.change_count,
        skipped=tuple(SkippedFile(change.path, change.detail) for change in trial.changes if change.kind == "skipped"),
        diff=trial.diff,
        is_diff_cut=trial.is_diff_cut,
        denied_reason=denied_reason,
        undo_run_ids=run.undo_run_ids,
    )


def _build_changed_error(preview: UndoPreview) -> ConflictError:
    return ConflictError(
        "undo_changed",
        "What the undo would do is not what was shown. Nothing was changed. Look at the new preview.",
        {"preview": msgspec.to_builtins(preview)},
    )
