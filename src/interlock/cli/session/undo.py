"""Undoes what a run changed in its workspace, or some of its calls.

The undo is a run of its own, with one call: planned, shown, approved and committed like any other. So it is in the log,
and can be undone in turn.
"""

from bisect import bisect
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec

from ...changes.change_set import CHANGE_SET_FACT
from ...changes.store import ChangeStore
from ...domain.call import Answer, Question, ToolIntent
from ...domain.errors import ConfigurationError
from ...domain.event import CallObserved, CallProposed, RunStarted
from ...domain.observation import Observation
from ...domain.tool import JsonObject
from ...domain.trial import Trial
from ...interaction.interface import Fallback, InteractionProvider
from ...interaction.terminal import TerminalInteractionProvider
from ...rendering.question import CHANGE_SIGNS, describe_tried_change
from ...rendering.text import pluralize
from ...runtime import ToolRuntime
from ...sandbox.workspace.workspace import Workspace
from ...storage.event_log import EventLog
from ...storage.sqlite.log import SqliteLog
from ...tools.files.undo import UNDO_TOOL, RecordedChanges, UndoTrials, undo_tool
from ..config.logs import add_log_option, open_log, resolve_run, shorten_id
from ..config.user_paths import find_user_paths, login_name
from ..display.live_region import neutralize_text
from ..display.output import echo, echo_json
from ..display.run_list import RunFilter, list_runs, read_events
from ..exit_codes import ExitCode

#: Runs that are looked at for earlier undos.
_MAX_RUNS = 200


class UndoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    #: Undo only what happened after this event.
    to: int | None = None
    #: Undo only this call.
    call: str = ""
    yes: bool = False
    preview: bool = False
    as_json: bool = False


class ChangedRun(msgspec.Struct, frozen=True):
    """What is known of a run for its undo."""

    run_id: str
    workspace: str
    changes: tuple[RecordedChanges, ...]

    async def find_changes(self, run_id: str) -> Sequence[RecordedChanges]:
        """Return them for the tool."""
        return self.changes


class _Approver:
    """Approves what `--yes` confirmed."""

    interactive = True
    approval_timeout_s: float | None = None
    approval_fallback: Fallback = "deny"

    def __init__(self, by: str) -> None:
        self._by = by

    async def ask(self, question: Question) -> Answer | None:
        return Answer(approved=True, by=self._by)


async def undo_run(log: Path | None, run_ref: str, options: UndoOptions) -> ExitCode:
    """Undo what a run changed, after a preview and a confirmation."""
    async with open_log(log) as event_log:
        run = await load_changed_run(event_log, await _find_run(event_log, run_ref))
        select_calls(run, options)  # what cannot be undone is said first
        report = await undo_calls(event_log, run, options, require_changes())
    if options.as_json:
        echo_json(report.to_json())
    else:
        for line in format_report(report, log):
            echo(line)
    return report.exit_code


async def undo_calls(log: EventLog, run: ChangedRun, options: UndoOptions, folder: Path, by: str = "") -> "UndoReport":
    """Undo the calls that the options select: at once with `yes`, else when a person at the terminal says so."""
    calls = select_calls(run, options)
    terminal = TerminalInteractionProvider(None)
    with _open_changes(run, folder) as (workspace, store):
        preview = await UndoTrials(workspace, store, run.find_changes).preview(run.run_id, calls)
    if options.preview or not preview.has_effect or not (options.yes or terminal.interactive):
        return UndoReport(run.run_id, tuple(calls), preview, "", None)
    person = _Approver(by or login_name()) if options.yes else terminal
    undo_id, observation = await perform_undo(log, run, calls, person, folder)
    return UndoReport(run.run_id, tuple(calls), preview, undo_id, observation)


class UndoReport(msgspec.Struct, frozen=True):
    """What an undo would do, and did."""

    run_id: str
    calls: tuple[str, ...]
    preview: Trial
    undo_run_id: str
    #: None: it was only previewed.
    observation: Observation | None

    @property
    def is_done(self) -> bool:
        """True when files were put back."""
        return self.observation is not None and self.observation.ok

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of the command: refused when not everything was put back."""
        is_partial = any(change.kind == "skipped" for change in self.preview.changes)
        is_refused = self.observation is not None and not self.observation.ok
        return ExitCode.REFUSED if is_partial or is_refused else ExitCode.OK

    def to_json(self) -> JsonObject:
        """Return the report for programs."""
        return {
            "run_id": self.run_id,
            "calls": list(self.calls),
            "done": self.is_done,
            "undo_run_id": self.undo_run_id,
            "changes": [msgspec.to_builtins(change) for change in self.preview.changes],
        }


def format_report(report: UndoReport, log: Path | None) -> list[str]:
    """Return the lines for a person."""
    preview, count = report.preview, pluralize(len(report.calls), "call")
    lines = [f"Undo {count} of {shorten_id(report.run_id)}: {preview.outcome}."]
    lines += [neutralize_text(f"  {CHANGE_SIGNS[one.kind]} {describe_tried_change(one)}") for one in preview.changes]
    if report.observation is not None and report.is_done:
        command = add_log_option(f"interlock runs undo {shorten_id(report.undo_run_id)}", log)
        return [*lines, f"Done. To undo this: {command}"]
    if report.observation is not None:
        return [*lines, report.observation.summary]
    return [*lines, "Nothing was changed. Pass --yes to do it." if preview.has_effect else "Nothing was changed."]


async def _find_run(log: SqliteLog, run_ref: str) -> str:
    """Return the id of a run. `last` is no undo."""
    if run_ref == "last":
        listed = await list_runs(log, RunFilter(limit=_MAX_RUNS))
        if found := next((run.run_id for run in listed if run.agent != UNDO_TOOL), ""):
            return found
    return await resolve_run(log, run_ref)


async def load_changed_run(log: EventLog, run_id: str) -> ChangedRun:
    """Read which calls of a run changed its workspace, undos of it included, in the order in which they did."""
    workspace, changes, times = "", list[RecordedChanges](), list[int]()
    async for event in read_events(log, run_id, -1):
        times.append(event.at)
        if isinstance(event.fact, RunStarted):
            workspace = event.fact.workspace
        elif isinstance(event.fact, CallObserved):
            changes += _find_changes(event.fact.observation, event.seq)
    related = {run_id}
    for undo in reversed(await list_runs(log, RunFilter(limit=_MAX_RUNS))):  # the oldest first
        if undo.agent == UNDO_TOOL and undo.run_id != run_id and undo.workspace == workspace:
            undone_id, undone = await _load_undo(log, undo.run_id, bisect(times, undo.started_at) - 1)
            if undone_id in related:
                related.add(undo.run_id)
                changes += undone
    return ChangedRun(run_id, workspace, tuple(sorted(changes, key=lambda one: (one.seq, one.is_undo))))


async def _load_undo(log: EventLog, undo_id: str, seq: int) -> tuple[str, list[RecordedChanges]]:
    """Return the run that an undo is about, and what it changed."""
    run_id, found = "", list[RecordedChanges]()
    async for event in read_events(log, undo_id, -1):
        if isinstance(event.fact, CallProposed):
            given: object = event.fact.raw_input
            run_id = str(cast(JsonObject, given).get("run_id")) if isinstance(given, dict) else ""
        elif isinstance(event.fact, CallObserved):
            found += _find_changes(event.fact.observation, seq, is_undo=True)
    return run_id, found


def _find_changes(observation: Observation, seq: int, *, is_undo: bool = False) -> list[RecordedChanges]:
    digest = observation.facts.get(CHANGE_SET_FACT)
    return [RecordedChanges(observation.call_id, seq, digest, is_undo)] if isinstance(digest, str) else []


def select_calls(run: ChangedRun, options: UndoOptions) -> list[str]:
    """Return the calls to undo. Raise `ConfigurationError` when there is none."""
    calls = [one for one in run.changes if not one.is_undo]
    known = [one.call_id for one in calls]
    if options.call and options.call not in known:
        listed = f"These did: {', '.join(known)}." if known else "None did."
        raise ConfigurationError(f"No call {options.call!r} of this run changed the workspace. {listed}")
    if options.call:
        return [options.call]
    # What undos since did to these files goes with it.
    found = [one.call_id for one in run.changes if options.to is None or one.seq > options.to]
    if not set(found).intersection(known):
        since = f" after event {options.to}" if options.to is not None else ""
        raise ConfigurationError(f"Nothing to undo: no call of this run changed the workspace{since}.")
    return found


async def perform_undo(
    log: EventLog, run: ChangedRun, calls: Sequence[str], person: InteractionProvider, folder: Path
) -> tuple[str, Observation]:
    """Run the undo, and return its run and its outcome."""
    with _open_changes(run, folder) as (workspace, store):
        tool = undo_tool(workspace, store, run.find_changes)
        async with ToolRuntime(
            tools=[tool], log=log, agent=UNDO_TOOL, interaction=person, workspace=run.workspace, requester=login_name()
        ) as runtime:
            arguments = {"run_id": run.run_id, "calls": list(calls)}
            intent = ToolIntent(call_id=f"undo_{runtime.run_id[-8:]}", tool_name=UNDO_TOOL, arguments=arguments)
            (observation,) = (await runtime.execute([intent])).observations
            await runtime.complete(observation.summary)
            return runtime.run_id, observation


@contextmanager
def _open_changes(run: ChangedRun, folder: Path) -> Generator[tuple[Workspace, ChangeStore]]:
    if not run.workspace or not Path(run.workspace).is_dir():
        raise ConfigurationError(f"The workspace of the run is gone: {run.workspace or 'none was recorded'}.")
    workspace, store = Workspace(run.workspace), ChangeStore(folder)
    try:
        store.recover()
        yield workspace, store
    finally:
        store.close()
        workspace.close()


def require_changes() -> Path:
    folder = find_user_paths().changes
    if folder is None or not folder.is_dir():
        raise ConfigurationError("Nothing is kept to undo with: there is no folder of changes.")
    return folder
