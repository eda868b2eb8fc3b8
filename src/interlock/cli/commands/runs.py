"""`interlock runs`: look at runs, go on with them, end them. What moves a run is loaded only when it is used."""

import asyncio
import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from ...domain.tool import Mode
from ..config.logs import LogFile, RunName, complete_run, has_log, named_run, opened, short
from ..display.follow import events_of, first_event, follow
from ..display.formatting import StateWord, first_words, for_how_long, state_text
from ..display.output import say, say_json, say_table
from ..display.run_details import Picture, as_plain, picture, say_picture
from ..display.run_events import Rows, say_json_line
from ..display.run_list import ListedRun, Which, list_runs
from ..exit_codes import ExitCode, exits
from ..options import BaseUrl, Headless, Json, Model, PolicyFile, Provider, Script, written

_EXITS = exits(
    {
        ExitCode.OK: "done",
        ExitCode.FAILED: "the run failed, or is not to be had",
        ExitCode.USAGE: "bad usage, or something that cannot be read",
        ExitCode.WAITING: "the run waits for a person",
        ExitCode.INTERRUPTED: "interrupted",
    }
)

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, epilog=_EXITS
)


@app.callback()
def runs() -> None:
    """List, show, watch, resume, cancel and fork runs.

    A run is named by its id, by the first letters of it, or as `last`.
    """


@app.command("list", epilog=_EXITS)
def list_(
    state: Annotated[
        list[StateWord] | None,
        typer.Option(metavar="STATE", help=f"Only these: {', '.join(StateWord)}. May be given more than once."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="So many at most.")] = 20,
    nested: Annotated[bool, typer.Option("--nested", help="Also runs inside a call of another run.")] = False,
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """List runs, the newest first.

    A run is waiting for a person, running in a living process, stopped because none has it, resting because it has
    answered all that was said in a chat, or over.
    """
    which = Which(limit=limit, states=frozenset(state or ()), inside=nested)
    found = asyncio.run(_list(log, which)) if has_log(log) else []
    if as_json:
        say_json(found)
    elif found:
        say_table(("RUN", "STATE", "AGENT", "BEGUN", "ASKS", "TASK"), [_row(run) for run in found])
    else:
        say("There are no such runs." if state else "There are no runs yet. `interlock run` starts one.")


@app.command(epilog=_EXITS)
def show(run: RunName, log: LogFile = None, as_json: Json = False) -> None:
    """Show what a run is, where it stands, what was done, and what to type next."""
    shown = asyncio.run(_picture(log, run))
    if as_json:
        say_json(as_plain(shown))
    else:
        say_picture(shown, time.time_ns(), log)


@app.command(epilog=_EXITS)
def events(
    run: RunName,
    after: Annotated[int, typer.Option(metavar="N", help="Only what comes after event N.")] = -1,
    following: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """Show the events of a run, a line for each. With --json, each line is an event."""
    _until_interrupted(_events(log, run, after, following, as_json))


@app.command(epilog=_EXITS)
def watch(run: RunName, log: LogFile = None, as_json: Json = False) -> None:
    """Watch a run, whichever process moves it on, until it ends."""
    if as_json:
        _until_interrupted(_events(log, run, -1, following=True, as_json=True))
    else:
        _until_interrupted(_module("display.watch").watch(log, run))


@app.command(epilog=_EXITS)
def resume(  # noqa: PLR0913 - one for each option
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN]",
            help="A run: its id, the first letters of it, or `last`.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ] = "",
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Every run that stopped and waits for nobody, one after the other.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Also when a living process has it: that one can write no more.")
    ] = False,
    model: Model = None,
    provider: Provider = None,
    base_url: BaseUrl = None,
    mode: Annotated[
        Mode | None,
        typer.Option(help="How much it may do without asking. Default: as before, or less.", show_default=False),
    ] = None,
    policy: PolicyFile = None,
    workspace: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder to work in, for a run that does not say it.", show_default=False),
    ] = None,
    script: Script = None,
    headless: Headless = False,
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """Go on with a run in this process: after an answer, a pause, or a crash.

    It works in the folder that it was begun in. Nothing that was done is done again. With --all, as after a reboot:
    all runs that a dead process left behind.
    """
    if bool(run) is every:
        raise typer.BadParameter("name a run, or all that stopped with --all")
    module = _module("session.resume")
    options = module.Options(
        log=log,
        settings=written(
            model=model, provider=provider, base_url=base_url, mode=mode, policy=policy and policy.absolute()
        ),
        workspace=workspace,
        script=script,
        headless=headless,
        take_over=take_over,
        as_json=as_json,
    )
    raise typer.Exit(module.resume_all(options) if every else module.resume(run, options))


@app.command(epilog=_EXITS)
def cancel(
    run: RunName,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the log.", show_default=False)] = "",
    by: Annotated[str, typer.Option(metavar="NAME", help="Who says so. Default: your login name.")] = "",
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """End a run for good: what runs is cancelled, what waits stays undone."""
    asyncio.run(_module("session.cancel").cancel(log, run, reason, by, as_json))


@app.command(epilog=_EXITS)
def fork(
    run: RunName,
    at: Annotated[
        int | None, typer.Option(metavar="N", help="After event N. Default: after the last, or before its end.")
    ] = None,
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """Make a new run that goes on from a place in another one, which stays as it is.

    It has the other one's memory and none of its approvals. Nothing is executed before it is resumed.
    """
    asyncio.run(_module("session.fork").fork(log, run, at, as_json))


@app.command("export-test", epilog=_EXITS)
def export_test(
    run: RunName,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="A new file, such as test_it.py.")],
    agent: Annotated[
        str,
        typer.Option(
            metavar="PLACE", help="Where your agent comes from: package.module:function. Default: recorded tools."
        ),
    ] = "",
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """Write a run as a pytest file that needs no model, no network and no keys."""
    asyncio.run(_module("session.fork").export_test(log, run, output, agent, as_json))


async def _list(log: Path | None, which: Which) -> list[ListedRun]:
    async with opened(log) as there:
        return await list_runs(there, await there.holders(), which)


async def _picture(log: Path | None, wanted: str) -> Picture:
    async with opened(log) as there:
        return await picture(there, await named_run(there, wanted), await there.holders())


async def _events(log: Path | None, wanted: str, after: int, following: bool, as_json: bool) -> None:
    rows = Rows()
    async with opened(log) as there:
        run_id = await named_run(there, wanted)
        started_at = (await first_event(there, run_id)).at
        async for event in (follow if following else events_of)(there, run_id, max(after, -1)):
            if as_json:
                say_json_line(event)
            else:
                rows.event(event, started_at)


def _row(run: ListedRun) -> tuple[Any, ...]:
    begun = for_how_long(time.time_ns() - run.started_at) if run.started_at else "?"
    asks = str(run.questions) if run.questions else ""
    return short(run.run_id), state_text(run.state), first_words(run.agent, 16), begun, asks, first_words(run.task)


def _until_interrupted(work: Any) -> None:
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _module(name: str) -> Any:
    return import_module(f"interlock.cli.{name}")
