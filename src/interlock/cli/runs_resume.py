"""Go on with a run in this process: in the folder that it works in, with the agent that `run` has."""

import asyncio
from pathlib import Path

import msgspec
import typer

from ..domain.errors import ConfigurationError, RunClaimedError
from ..domain.event import BatchStarted, RunStarted
from ..domain.ledger import Ledger
from ..domain.lifecycle import RUN_TRANSITIONS
from ..domain.tool import Mode
from ..history.fold import load
from ..log.interface import EventLog
from .agent import NAME, Prepared, Wanted, prepare
from .exit_codes import ExitCode
from .logs import around, named_run, opened, short, with_log
from .run_session import move_on
from .runs_follow import events_of
from .show import say, say_wrong

_STRICTEST_FIRST = tuple(Mode)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What was said on the command line."""

    log: Path | None = None
    #: By name, as for `run`.
    settings: dict[str, str] = {}
    script: Path | None = None
    headless: bool = False
    take_over: bool = False
    as_json: bool = False


class _Stopped(msgspec.Struct, frozen=True):
    """A run that can be gone on with."""

    run_id: str
    workspace: str
    mode: Mode


def resume(wanted: str, options: Options) -> ExitCode:
    """Until it is over, waits, or is interrupted."""
    stopped = asyncio.run(_look(wanted, options))
    prepared = _prepared(stopped, options)
    try:
        return move_on(
            prepared,
            lambda runner: runner.open(stopped.run_id, force=options.take_over),
            resumed=stopped.run_id,
            headless=options.headless,
            as_json=options.as_json,
        )
    except RunClaimedError as error:  # somebody was faster
        say_wrong(error)
        raise typer.Exit(ExitCode.FAILED) from None


async def _look(wanted: str, options: Options) -> _Stopped:
    async with opened(options.log) as log:
        named = await named_run(log, wanted)
        run_id = (*around(named), named)[0]
        if run_id != named and not options.as_json:
            say(f"{short(named)} is inside of {short(run_id)}, which is resumed.", error=True)
        ledger = (await load(log, run_id)).ledger
        _check(ledger, options.log)
        holder = (await log.holders()).get(run_id, "")
        if holder and not options.take_over:
            _refuse(run_id, holder, options.log)
        return await _stopped(log, run_id)


def _check(ledger: Ledger, log: Path | None) -> None:
    name = short(ledger.run_id)
    if not RUN_TRANSITIONS[ledger.state]:
        command = with_log(f"interlock runs fork {name}", log)
        say(f"interlock: {name} is {ledger.state.value}: it cannot go on. `{command}` makes a new run.", error=True)
        raise typer.Exit(ExitCode.FAILED)
    if ledger.agent != NAME:
        raise ConfigurationError(
            f"{name} is a run of the agent {ledger.agent[:80]!r}, which belongs to another program: resume it there. "
            "Its questions can be answered from here."
        )


def _refuse(run_id: str, holder: str, log: Path | None) -> None:
    name = short(run_id)
    watch = with_log(f"interlock runs watch {name}", log)
    say(
        f"interlock: {name} is moved on by {holder}, which is alive. Nothing was done. `{watch}` shows it, and its "
        "questions can be answered from here. --take-over takes it away from that process.",
        error=True,
    )
    raise typer.Exit(ExitCode.FAILED)


async def _stopped(log: EventLog, run_id: str) -> _Stopped:
    workspace, mode = "", Mode.DEFAULT
    async for event in events_of(log, run_id):
        match event.fact:
            case RunStarted(workspace=folder):
                workspace = folder
            case BatchStarted(mode=latest):
                mode = latest
            case _:
                pass
    return _Stopped(run_id, workspace, mode)


def _prepared(stopped: _Stopped, options: Options) -> Prepared:
    """Without a word about it, a run gets no freer than it was."""
    prepared = prepare(
        Wanted(
            workspace=Path(stopped.workspace),
            settings=options.settings,
            script=options.script,
            log=options.log,
            headless=options.headless,
        )
    )
    if "mode" in options.settings:
        return prepared
    mode = min(prepared.mode, stopped.mode, key=_STRICTEST_FIRST.index)
    return msgspec.structs.replace(prepared, mode=mode)
