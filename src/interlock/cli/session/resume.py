"""Resumes a run in this process: in its workspace, with the agent of `run`."""

import os
from pathlib import Path

import msgspec

from ...domain.errors import ConfigurationError, InterlockError, RunClaimedError, RunEndedError
from ...domain.event import BatchStarted, RunStarted
from ...domain.tool import PermissionMode
from ...history.fold import load_run
from ...storage.sqlite.log import SqliteLog
from ..config.logs import add_log_option, has_log, list_ancestors, resolve_run, run_with_log, shorten_id
from ..display.output import echo, echo_error, echo_json
from ..display.run_list import list_stopped, read_events
from ..exit_codes import ExitCode
from .agent import AGENT_NAME, RunOptions, prepare_run
from .live_session import SessionOptions, SessionOutcome, run_session, stopped_to_json

_STRICTEST_FIRST = tuple(PermissionMode)
_BY_SEVERITY = (ExitCode.OK, ExitCode.WAITING, ExitCode.FAILED, ExitCode.INTERRUPTED)


class ResumeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    log: Path | None = None
    #: By name, as for `run`.
    settings: dict[str, str] = {}
    #: For a run without a recorded workspace.
    workspace: Path | None = None
    script: Path | None = None
    headless: bool = False
    take_over: bool = False
    as_json: bool = False


class _ResumableRun(msgspec.Struct, frozen=True):
    """A run that can be resumed."""

    run_id: str
    workspace: str
    mode: PermissionMode


def resume_run(run_ref: str, options: ResumeOptions) -> ExitCode:
    """Resume a run until it is over, waits, or is interrupted."""
    try:
        outcome = _resume(run_ref, options)
    except (RunClaimedError, RunEndedError) as error:
        echo_error(error)
        return ExitCode.FAILED
    if options.as_json and outcome.result_json:
        echo_json(outcome.result_json)
    return outcome.code


def resume_all(options: ResumeOptions) -> ExitCode:
    """Resume every stopped run that waits for no person, one after the other, the oldest first. Failures are
    printed.
    """
    found = run_with_log(options.log, lambda log: list_stopped(log, AGENT_NAME)) if has_log(options.log) else []
    if not found and not options.as_json:
        echo("No run stopped.")
    outcomes: list[SessionOutcome] = []
    for run in found:
        try:
            outcomes.append(_resume(run.run_id, options))
        except InterlockError as error:
            echo(f"run {shorten_id(run.run_id)} stays as it is:", error=True)
            echo_error(error)
            outcomes.append(SessionOutcome(ExitCode.FAILED, stopped_to_json(run.run_id, str(error))))
        if outcomes[-1].code is ExitCode.INTERRUPTED:
            break
    if options.as_json:
        echo_json([outcome.result_json for outcome in outcomes if outcome.result_json])
    return max((outcome.code for outcome in outcomes), key=_BY_SEVERITY.index, default=ExitCode.OK)


def _resume(run_ref: str, options: ResumeOptions) -> SessionOutcome:
    run = run_with_log(options.log, lambda log: _find_run(log, run_ref, options))
    prepared = prepare_run(
        RunOptions(
            workspace=_choose_workspace(run, options),
            settings=options.settings,
            script=options.script,
            log=options.log,
            headless=options.headless,
        )
    )
    if "mode" not in options.settings:  # Without a word about it, a run gets no freer than it was.
        mode = min(prepared.mode, run.mode, key=_STRICTEST_FIRST.index)
        prepared = msgspec.structs.replace(prepared, mode=mode)
    session = SessionOptions(run.run_id, options.headless, options.as_json)
    return run_session(prepared, lambda runner: runner.open(run.run_id, force=options.take_over), session)


async def _find_run(log: SqliteLog, run_ref: str, options: ResumeOptions) -> _ResumableRun:
    run_name = await resolve_run(log, run_ref)
    run_id = (*list_ancestors(run_name), run_name)[0]
    name = shorten_id(run_id)
    if run_id != run_name and not options.as_json:
        echo(f"{shorten_id(run_name)} is inside of {name}, which is resumed.", error=True)
    ledger = (await load_run(log, run_id)).ledger
    if ledger.is_over:
        command = add_log_option(f"interlock runs fork {name}", options.log)
        raise RunEndedError(f"{name} is {ledger.state.value}: it cannot go on. `{command}` makes a new run.")
    if ledger.created_by:
        raise ConfigurationError(
            f"{name} was started on a server, which resumes it by itself. Its questions can be answered from here."
        )
    if ledger.agent != AGENT_NAME:
        raise ConfigurationError(
            f"{name} is a run of the agent {ledger.agent[:80]!r}, which belongs to another program: resume it there. "
            "Its questions can be answered from here."
        )
    holder = (await log.lease_holders()).get(run_id, "")
    if holder and not options.take_over:
        watch = add_log_option(f"interlock runs watch {name}", options.log)
        raise RunClaimedError(
            f"{name} is owned by {holder}, which is running. Nothing was done. `{watch}` shows it, and its questions "
            "can be answered from here. --take-over takes it over from that process."
        )
    workspace, mode = "", PermissionMode.DEFAULT
    async for event in read_events(log, run_id):
        match event.fact:
            case RunStarted(workspace=folder, mode=first):
                workspace, mode = folder, first
            case BatchStarted(mode=latest):
                mode = latest
            case _:
                pass
    return _ResumableRun(run_id, workspace, mode)


def _choose_workspace(run: _ResumableRun, options: ResumeOptions) -> Path:
    """Return the folder that the run was started in. A run cannot continue in another one."""
    name, workspace = shorten_id(run.run_id), options.workspace
    if not run.workspace and workspace is None:
        raise ConfigurationError(
            f"{name} says not in which folder it works. Nothing was done. Name one with --workspace."
        )
    if run.workspace and workspace is not None and os.path.realpath(workspace) != os.path.realpath(run.workspace):
        raise ConfigurationError(f"{name} works in {run.workspace}, and not in {workspace}. Nothing was done.")
    return Path(run.workspace) if workspace is None else workspace
