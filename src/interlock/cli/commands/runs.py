"""`interlock runs`: show, resume and end runs. What drives a run is loaded on demand."""

import asyncio
import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from ...domain.tool import PermissionMode
from ...policy.files.values import parse_duration
from ...rendering.run_states import DisplayState, RunKind
from ...rendering.text import shorten_line
from ...rendering.times import format_duration
from ...runs import fork as forking
from ...storage.event_log import EventLog
from ..config.logs import (
    RunArgument,
    add_log_option,
    complete_run,
    has_log,
    open_log,
    resolve_run,
    run_with_log,
    shorten_id,
)
from ..display.output import echo_json, echo_list, echo_result
from ..display.run_details import details_to_json, echo_run_details, load_run_details
from ..display.run_list import ListedRun, RunFilter, follow_events, list_runs, read_events, read_first_event
from ..display.transcript import RunPrinter, echo_json_line, style_state
from ..exit_codes import ExitCode, format_exit_codes
from ..options import (
    BaseUrlOption,
    HeadlessOption,
    JsonOption,
    LogOption,
    ModelOption,
    PolicyOption,
    ProviderOption,
    ScriptOption,
    argument,
    collect_options,
    create_app,
    option,
)

_EXITS = format_exit_codes(
    ok="done",
    failed="the run failed or could not be claimed",
    usage="bad usage, or a file that cannot be read",
    waiting="the run waits for a person",
    refused="its last call was refused",
    interrupted="interrupted",
)

app = create_app(_EXITS, is_group=True)


@app.callback()
def runs() -> None:
    """List, show, watch, resume, cancel, fork and undo runs.

    RUN is an id, the first characters of an id, or `last`.
    """


@app.command("list", epilog=_EXITS)
def list_(  # noqa: PLR0913, PLR0917 - one for each option
    state: Annotated[
        list[DisplayState] | None,
        typer.Option(metavar="STATE", help=f"Only runs in this state: {', '.join(DisplayState)}. Repeatable."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Maximum number of runs to list.")] = 20,
    kind: Annotated[
        RunKind | None,
        typer.Option(metavar="KIND", help="Only runs of agents (agent), or sessions of clients (session)."),
    ] = None,
    nested: Annotated[bool, typer.Option("--nested", help="Include runs started by a call of another run.")] = False,
    archived: Annotated[bool, typer.Option("--archived", help="List archived and erased runs instead.")] = False,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """List runs, the newest first.

    A run is paused until a person answers, running in a process, stopped because no process has it, idle because it
    answered all messages of a chat, or over.
    """
    if archived:
        asyncio.run(_load_module("session.archive").list_archived(log, limit, as_json))
        return
    run_filter = RunFilter(limit=limit, states=frozenset(state or ()), include_nested=nested, kind=kind)
    found = run_with_log(log, lambda event_log: list_runs(event_log, run_filter)) if has_log(log) else []
    empty = "No matching runs." if state or kind else "No runs yet. `interlock run` starts one."
    rows = [_format_row(run) for run in found]
    echo_list(as_json, found, ("RUN", "STATE", "AGENT", "STARTED", "QUESTIONS", "TASK"), rows, empty)


@app.command(epilog=_EXITS)
def show(
    run: RunArgument,
    transcript: Annotated[
        bool, typer.Option("--transcript", help="Print the whole conversation, with calls and their outputs.")
    ] = False,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a run: its state, what it did, and which command comes next."""
    if transcript and not as_json:
        _run_until_interrupted(_load_module("session.watch").print_transcript(log, run))
        return
    details = run_with_log(log, lambda event_log: load_run_details(event_log, run))
    if as_json:
        echo_json(details_to_json(details))
    else:
        echo_run_details(details, time.time_ns(), log)


@app.command(epilog=_EXITS)
def events(
    run: RunArgument,
    after: Annotated[int, typer.Option(metavar="N", help="Only events after event N.")] = -1,
    following: Annotated[bool, typer.Option("--follow", "-f", help="Follow new events until the run ends.")] = False,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the events of a run, one per line. With --json, each line is one event as JSON."""
    _run_until_interrupted(_print_events(log, run, after, following, as_json))


@app.command(epilog=_EXITS)
def watch(run: RunArgument, log: LogOption = None, as_json: JsonOption = False) -> None:
    """Watch a run until it ends, also when it runs in another process."""
    if as_json:
        _run_until_interrupted(_print_events(log, run, -1, following=True, as_json=True))
    else:
        _run_until_interrupted(_load_module("session.watch").watch_run(log, run))


@app.command(epilog=_EXITS)
def resume(  # noqa: PLR0913 - one for each option
    run: Annotated[str, argument("[RUN]", "Run id, its first characters, or `last`.", complete_run)] = "",
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Resume every stopped run that waits for no answer, one after the other.")
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Take the run over from a running process, which can no longer write to it."),
    ] = False,
    model: ModelOption = None,
    provider: ProviderOption = None,
    base_url: BaseUrlOption = None,
    mode: Annotated[PermissionMode | None, option("Permission mode. Default: as before, or stricter.")] = None,
    policy: PolicyOption = None,
    workspace: Annotated[
        Path | None, option("Directory to work in, for a run without a recorded workspace.", metavar="DIR")
    ] = None,
    script: ScriptOption = None,
    headless: HeadlessOption = False,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Resume a run in this process: after an answer, a pause, or a crash.

    It works in the directory in which it was started. Nothing is executed twice. With --all, for example after a
    reboot: all runs that a dead process left behind.
    """
    if bool(run) is every:
        raise typer.BadParameter("pass a run, or --all for all stopped runs")
    module = _load_module("session.resume")
    options = module.ResumeOptions(
        log=log,
        settings=collect_options(model=model, provider=provider, base_url=base_url, mode=mode, policy=policy),
        workspace=workspace,
        script=script,
        headless=headless,
        take_over=take_over,
        as_json=as_json,
    )
    raise typer.Exit(module.resume_all(options) if every else module.resume_run(run, options))


@app.command(epilog=_EXITS)
def cancel(
    run: RunArgument,
    reason: Annotated[str, option("Reason for the log.", metavar="TEXT")] = "",
    by: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the person who cancels. Default: your login name.")
    ] = "",
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel a run for good: running calls are cancelled, waiting calls are not executed."""
    asyncio.run(_load_module("session.delivery").cancel_run(log, run, reason, by, as_json))


@app.command(epilog=_EXITS)
def fork(
    run: RunArgument,
    at: Annotated[
        int | None, typer.Option(metavar="N", help="Fork after event N. Default: the last event before the end.")
    ] = None,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a new run that continues from an event of another run, which stays unchanged.

    It has the memory of the other run and none of its approvals. Nothing is executed until it is resumed.
    """

    async def make_fork(event_log: EventLog) -> tuple[str, str]:
        run_id = await resolve_run(event_log, run)
        return run_id, await forking.fork(event_log, run_id, at)

    run_id, new_id = run_with_log(log, make_fork)
    echo_result(
        as_json,
        {"run_id": new_id, "forked_from": run_id},
        f"{shorten_id(new_id)} is a fork of {shorten_id(run_id)}."
        " Nothing was executed, and files were not changed back.",
        f"To resume it: {add_log_option(f'interlock runs resume {shorten_id(new_id)}', log)}",
    )


@app.command(epilog=_EXITS)
def undo(  # noqa: PLR0913, PLR0917 - one for each option
    run: RunArgument,
    to: Annotated[int | None, typer.Option(metavar="N", help="Undo only what happened after event N.")] = None,
    call: Annotated[str, typer.Option(metavar="ID", help="Undo only this call.")] = "",
    preview: Annotated[
        bool, typer.Option("--preview", help="Show what would be put back, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before.")] = False,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put back what a run changed in its workspace: by edits and by commands.

    A file that something else changed since is left as it is, and named. An undo is a run of its own, so it can be
    undone. What a run did outside of its workspace cannot be taken back.
    """
    module = _load_module("session.undo")
    options = module.UndoOptions(to=to, call=call, yes=yes, preview=preview, as_json=as_json)
    raise typer.Exit(asyncio.run(module.undo_run(log, run, options)))


@app.command(epilog=_EXITS)
def archive(  # noqa: PLR0913, PLR0917 - one for each option
    run: Annotated[str, argument("[RUN]", "Run to archive. Default: all that --before names.")] = "",
    before: Annotated[
        str, typer.Option(metavar="AGE", help="Archive runs that ended this long ago, such as 30d. Default: 30d.")
    ] = "30d",
    folder: Annotated[
        Path, typer.Option("--folder", metavar="FOLDER", help="Folder for the archives. Default: archive.")
    ] = Path("archive"),
    sign: Annotated[bool, typer.Option("--sign", help="Sign each archive with this user's key.")] = False,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move runs that are over from the log to files that anyone can verify.

    Each file is written, read back and verified before its run is removed from the log. Artifacts stay. With a log in
    Postgres, use the role that owns the tables.
    """
    seconds = parse_duration(before) or 0.0
    module = _load_module("session.archive")
    options = module.make_options(folder, sign=sign)
    raise typer.Exit(asyncio.run(module.archive_runs(log, run, seconds, options, as_json)))


@app.command(epilog=_EXITS)
def restore(
    file: Annotated[Path, argument("FILE", "Archive of a run.")], log: LogOption = None, as_json: JsonOption = False
) -> None:
    """Put an archived run back into its log, after verifying the file."""
    asyncio.run(_load_module("session.archive").restore_archive(log, file, as_json))


@app.command(epilog=_EXITS)
def erase(
    run: RunArgument,
    reason: Annotated[str, option("Why the run is erased. It stays in the record.", metavar="TEXT")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before.")] = False,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Erase a run that is over for good, with its child runs and the artifacts that only they refer to.

    A record stays: id, number of events, last hash, who erased it, when and why. With a log in Postgres, use the role
    that owns the tables.
    """
    raise typer.Exit(asyncio.run(_load_module("session.archive").erase(log, run, reason, yes, as_json)))


@app.command("export-test", epilog=_EXITS)
def export_test(
    run: RunArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="New file to write, such as test_run.py.")
    ],
    agent: Annotated[
        str,
        typer.Option(metavar="PLACE", help="Your agent, as package.module:function. Default: the recorded tools."),
    ] = "",
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run as a pytest file that needs no model, no network and no keys."""
    asyncio.run(_load_module("session.replay").export_run_test(log, run, output, agent, as_json))


async def _print_events(log: Path | None, run_ref: str, after: int, following: bool, as_json: bool) -> None:
    rows = RunPrinter()
    async with open_log(log) as event_log:
        run_id = await resolve_run(event_log, run_ref)
        started_at = (await read_first_event(event_log, run_id)).at
        async for event in (follow_events if following else read_events)(event_log, run_id, max(after, -1)):
            if as_json:
                echo_json_line(event)
            else:
                rows.print_event(event, started_at)


def _format_row(run: ListedRun) -> tuple[Any, ...]:
    age = format_duration(time.time_ns() - run.started_at) if run.started_at else "?"
    run_id, state, agent = shorten_id(run.run_id), style_state(run.state), shorten_line(run.agent, 16)
    task = shorten_line(run.task)
    if run.kind is RunKind.SESSION:
        who = f" for {run.requester}" if run.requester else ""
        task = shorten_line(f"session{f' over {run.framework}' if run.framework else ''}{who}")
    return run_id, state, agent, age, str(run.questions or ""), task


def _run_until_interrupted(work: Any) -> None:
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _load_module(name: str) -> Any:
    return import_module(f"interlock.cli.{name}")
