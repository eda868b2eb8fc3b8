"""Resumes a run in this process: in its workspace, with the agent of `run`."""

import os
from pathlib import Path

import msgspec

from ...domain.errors import ConfigurationError, InterlockError, RunClaimedError, RunEndedError
from ...domain.event import BatchStarted, ModelRequested, RunStarted
from ...domain.tool import PermissionMode
from ...history.fold import load_run
from ...storage.event_log import EventLog
from ..config.logs import add_log_option, has_log, list_ancestors, resolve_run, run_with_log, shorten_id
from ..display.output import echo, echo_error, echo_json
from ..display.run_list import list_stopped, read_events
from ..exit_codes import ExitCode
from .agent import AGENT_NAME, RUN_SETTINGS, PreparedRun, RunOptions, prepare_run
from .live_session import SessionOptions, SessionOutcome, run_session, stopped_to_json

_STRICTEST_FIRST = tuple(PermissionMode)
_BY_SEVERITY = (ExitCode.OK, ExitCode.REFUSED, ExitCode.WAITING, ExitCode.FAILED, ExitCode.INTERRUPTED)


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


class ResumableRun(msgspec.Struct, frozen=True):
    """A run that can be resumed."""

    run_id: str
    workspace: str
    mode: PermissionMode
    #: What it remembers of how it was started; the model as it was asked last.
    settings: dict[str, str]


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
    prepared = prepare_resumed(
        run,
        RunOptions(
            workspace=_choose_workspace(run, options),
            settings=options.settings,
            script=options.script,
            log=options.log,
            headless=options.headless,
        ),
    )
    session = SessionOptions(run.run_id, options.headless, options.as_json)
    return run_session(prepared, lambda runner: runner.open(run.run_id, force=options.take_over), session)


async def _find_run(log: EventLog, run_ref: str, options: ResumeOptions) -> ResumableRun:
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
    if ledger.is_session:
        raise ConfigurationError(
            f"{name} is a session of {ledger.agent[:80] or 'a client'}, which continues a call by making it again. Its "
            "questions can be answered from here."
        )
    if ledger.framework:
        raise ConfigurationError(
            f"{name} was made by a program with {ledger.framework[:80]}, which continues it: resume it there. Its "
            "questions can be answered from here."
        )
    if ledger.agent != AGENT_NAME:
        raise ConfigurationError(
            f"{name} is a run of the agent {ledger.agent[:80]!r}, which belongs to another program: resume it there. "
            "Its questions can be answered from here."
        )
    holder = await log.lease_holder(run_id)
    if holder and not options.take_over:
        watch = add_log_option(f"interlock runs watch {name}", options.log)
        raise RunClaimedError(
            f"{name} is owned by {holder}, which is running. Nothing was done. `{watch}` shows it, and its questions "
            "can be answered from here. --take-over takes it over from that process."
        )
    return await load_resumable(log, run_id)


async def load_resumable(log: EventLog, run_id: str) -> ResumableRun:
    """Return what a run needs to be resumed as it was."""
    workspace, mode, settings = "", PermissionMode.DEFAULT, dict[str, str]()
    async for event in read_events(log, run_id):
        match event.fact:
            case RunStarted(workspace=folder, mode=first):
                workspace, mode, settings = folder, first, dict(event.fact.settings)
            case BatchStarted(mode=latest):
                mode = latest
            case ModelRequested(provider=provider, model=model) if provider == settings.get("provider") and model:
                settings["model"] = model
            case _:
                pass
    return ResumableRun(run_id, workspace, mode, settings)


def prepare_resumed(run: ResumableRun, options: RunOptions) -> PreparedRun:
    """Prepare a run to continue as it was started, unless the options say otherwise."""
    given, settings = options.settings, run.settings
    remembered = {name: settings[name] for name in RUN_SETTINGS if name in settings and name not in given}
    if "provider" in given or options.script is not None:  # Another model: no part of the old choice is kept.
        remembered = {name: value for name, value in remembered.items() if name == "policy"}
    script = options.script
    if script is None and "script" in settings and not {"provider", "model", "base_url"} & set(given):
        script = Path(settings["script"])
    mcp = options.mcp or (Path(settings["mcp"]) if "mcp" in settings else None)
    for kind, file in (
        ("policy", remembered.get("policy", "")),
        ("script", str(script or "")),
        ("mcp", str(mcp or "")),
    ):
        if file and not Path(file).is_file():
            raise ConfigurationError(
                f"Run {shorten_id(run.run_id)} was started with the {kind} {file}, which is not there any more. "
                f"Nothing was done. Name another with --{kind}."
            )
    prepared = prepare_run(
        msgspec.structs.replace(options, settings={**remembered, **given}, script=script, mcp=mcp),
    )
    mode = prepared.mode
    if "mode" not in given:  # As it was. A mode that was only configured may have become stricter.
        mode = run.mode if "mode" in settings else min(mode, run.mode, key=_STRICTEST_FIRST.index)
    names = ", ".join(f"{name} {value}" for name, value in remembered.items())
    note = f"Run {shorten_id(run.run_id)} continues as it was started: {names}."
    return msgspec.structs.replace(prepared, mode=mode, notes=(*prepared.notes, *([note] if remembered else [])))


def _choose_workspace(run: ResumableRun, options: ResumeOptions) -> Path:
    """Return the folder that the run was started in. A run cannot continue in another one."""
    name, workspace = shorten_id(run.run_id), options.workspace
    if not run.workspace and workspace is None:
        raise ConfigurationError(
            f"{name} says not in which folder it works. Nothing was done. Name one with --workspace."
        )
    if run.workspace and workspace is not None and os.path.realpath(workspace) != os.path.realpath(run.workspace):
        raise ConfigurationError(f"{name} works in {run.workspace}, and not in {workspace}. Nothing was done.")
    return Path(run.workspace) if workspace is None else workspace
