"""`interlock runs undo`: preview, confirmation and output of an undo."""

from pathlib import Path

import msgspec

from ...domain.call import Answer
from ...domain.errors import ConfigurationError
from ...domain.tool import JsonObject
from ...interaction.interface import InteractionProvider
from ...interaction.providers import CallbackInteractionProvider
from ...interaction.terminal import TerminalInteractionProvider
from ...rendering.question import CHANGE_SIGNS, describe_tried_change
from ...rendering.text import pluralize
from ...storage.event_log import EventLog
from ...tools.files.undo import UNDO_TOOL
from ...undo import UndoReport, load_changed_run, select_calls, undo_calls
from ..config.logs import add_log_option, open_log, resolve_run, shorten_id
from ..config.user_paths import find_user_paths, login_name
from ..display.live_region import neutralize_text
from ..display.output import echo, echo_json
from ..display.run_list import RunFilter, list_runs
from ..exit_codes import ExitCode

#: Runs that are looked at to find one that is no undo.
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


async def undo_run(log: Path | None, run_ref: str, options: UndoOptions) -> ExitCode:
    """Undo what a run changed, after a preview and a confirmation."""
    async with open_log(log) as event_log:
        run = await load_changed_run(event_log, await _find_run(event_log, run_ref))
        calls = select_calls(run, options.to, options.call)
        person = None if options.preview else choose_person(login_name() if options.yes else "")
        report = await undo_calls(event_log, run, calls, require_changes(), person, requester=login_name())
    if options.as_json:
        echo_json(_to_json(report))
    else:
        for line in format_report(report, log):
            echo(line)
    is_partial = any(change.kind == "skipped" for change in report.preview.changes)
    is_refused = report.observation is not None and not report.observation.ok
    return ExitCode.REFUSED if is_partial or is_refused else ExitCode.OK


def choose_person(by: str = "") -> InteractionProvider:
    """Return who approves an undo: the person with this name, who said so already, or the one at the terminal."""
    if by:
        return CallbackInteractionProvider(lambda question: Answer(approved=True, by=by, channel="cli"))
    return TerminalInteractionProvider(None)


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


def require_changes() -> Path:
    """Return the folder of kept changes. Raise `ConfigurationError` when there is none."""
    folder = find_user_paths().changes
    if folder is None or not folder.is_dir():
        raise ConfigurationError("Nothing is kept to undo with: there is no folder of changes.")
    return folder


async def _find_run(log: EventLog, run_ref: str) -> str:
    """Return the id of a run. `last` is no undo."""
    if run_ref == "last":
        listed = await list_runs(log, RunFilter(limit=_MAX_RUNS))
        if found := next((run.run_id for run in listed if run.agent != UNDO_TOOL), ""):
            return found
    return await resolve_run(log, run_ref)


def _to_json(report: UndoReport) -> JsonObject:
    return {
        "run_id": report.run_id,
        "calls": list(report.calls),
        "done": report.is_done,
        "undo_run_id": report.undo_run_id,
        "changes": [msgspec.to_builtins(change) for change in report.preview.changes],
    }
