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
from ...domain.call import Answer, ToolIntent
from ...domain.errors import ConfigurationError
from ...domain.event import CallObserved, CallProposed, RunStarted
from ...domain.observation import Observation
from ...domain.tool import JsonObject
from ...domain.trial import Trial
from ...interaction.interface import InteractionProvider
from ...interaction.providers import CallbackInteractionProvider
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


async def undo_run(log: Path | None, run_ref: str, options: UndoOptions) -> ExitCode:
    """Undo what a run changed, after a preview and a confirmation."""
    async with open_log(log) as event_log:
        run = await load_changed_run(event_log, await _find_run(event_log, run_ref))
        calls = select_calls(run, options.to, options.call)
        person = choose_person(login_name() if options.yes else "")
        report = await undo_calls(event_log, run, calls, require_changes(), None if options.preview else person)
    if options.as_json:
        echo_json(report.to_json())
    else:
        for line in format_report(report, log):
            echo(line)
    return report.exit_code


def choose_person(by: str = "") -> InteractionProvider:
    """Return who approves an undo: the person with this name, who said so already, or the one at the terminal."""
    if by:
        return CallbackInteractionProvider(lambda question: Answer(approved=True, by=by))
    return TerminalInteractionProvider(None)


async def undo_calls(
    log: EventLog, run: ChangedRun, calls: Sequence[str], folder: Path, person: InteractionProvider | None
) -> "UndoReport":
    """Undo these calls when the person approves. None, or a person who is not there: only find out what it would do.

    The undo is a run of its own.
    """
    with _open_changes(run, folder) as (workspace, store):
        preview = await UndoTrials(workspace, store, run.changes).preview(calls)
        if person is None or not person.interactive or not preview.has_effect:
            return UndoReport(run.run_id, tuple(calls), preview, "", None)
        tool = undo_tool(workspace, store, run.changes)
        async with ToolRuntime(
            tools=[tool], log=log, agent=UNDO_TOOL, interaction=person, workspace=run.workspace, requester=login_name()
        ) as runtime:
            arguments = {"run_id": run.run_id, "calls": list(calls)}
            intent = ToolIntent(call_id=f"undo_{runtime.run_id[-8:]}", tool_name=UNDO_TOOL, arguments=arguments)
            (observation,) = (await runtime.execute([intent])).observations
            await runtime.complete(observation.summary)
            return UndoReport(run.run_id, tuple(calls), preview, runtime.run_id, observation)


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


def select_calls(run: ChangedRun, after: int | None = None, call: str = "") -> list[str]:
    """Return one call, or all that happened after an event. Raise `ConfigurationError` when there is none to undo."""
    calls = [one for one in run.changes if not one.is_undo]
    known = [one.call_id for one in calls]
    if call and call not in known:
        listed = f"These did: {', '.join(known)}." if known else "None did."
        raise ConfigurationError(f"No call {call!r} of this run changed the workspace. {listed}")
    if call:
        return [call]
    # What undos since did to these files goes with it.
    found = [one.call_id for one in run.changes if after is None or one.seq > after]
    if not set(found).intersection(known):
        since = f" after event {after}" if after is not None else ""
        raise ConfigurationError(f"Nothing to undo: no call of this run changed the workspace{since}.")
    return found


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
    """Return the folder of kept changes. Raise `ConfigurationError` when there is none."""
    folder = find_user_paths().changes
    if folder is None or not folder.is_dir():
        raise ConfigurationError("Nothing is kept to undo with: there is no folder of changes.")
    return folder
