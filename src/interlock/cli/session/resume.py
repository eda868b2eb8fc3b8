"""Go on with a run in this process: in the folder that it works in, with the agent that `run` has."""

import asyncio
import os
from pathlib import Path

import msgspec

from ...domain.errors import ConfigurationError, InterlockError, RunClaimedError, RunEndedError
from ...domain.event import BatchStarted, RunStarted
from ...domain.state.ledger import Ledger
from ...domain.tool import Mode
from ...history.fold import load
from ...storage.event_log import EventLog
from ..config.logs import around, has_log, named_run, opened, short, with_log
from ..display.follow import events_of
from ..display.output import say, say_json, say_wrong
from ..display.run_list import stopped
from ..exit_codes import ExitCode
from .agent import NAME, Prepared, Wanted, prepare
from .ending import stopped_as_json
from .session import Moved, Shown, moved_on

_STRICTEST_FIRST = tuple(Mode)
_WORST_LAST = (ExitCode.OK, ExitCode.WAITING, ExitCode.FAILED, ExitCode.INTERRUPTED)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What was said on the command line."""

    log: Path | None = None
    #: By name, as for `run`.
    settings: dict[str, str] = {}
    #: For a run that has no folder of its own.
    workspace: Path | None = None
    script: Path | None = None
    headless: bool = False
    take_over: bool = False
    as_json: bool = False


class _Wanted(msgspec.Struct, frozen=True):
    """A run that can be gone on with."""

    run_id: str
    workspace: str
    mode: Mode


def resume(wanted: str, options: Options) -> ExitCode:
    """Until it is over, waits, or is interrupted."""
    try:
        moved = _moved(wanted, options)
    except (RunClaimedError, RunEndedError) as error:
        say_wrong(error)
        return ExitCode.FAILED
    if options.as_json and moved.plain:
        say_json(moved.plain)
    return moved.code


def resume_all(options: Options) -> ExitCode:
    """Every run that stopped and waits for nobody, one after the other, the oldest first. What cannot go on is told,
    and the next one does."""
    found = asyncio.run(_all_stopped(options.log)) if has_log(options.log) else []
    if not found and not options.as_json:
        say("No run stopped.")
    ended: list[Moved] = []
    for run_id in found:
        ended.append(_moved_or_told(run_id, options))
        if ended[-1].code is ExitCode.INTERRUPTED:
            break
    if options.as_json:
        say_json([moved.plain for moved in ended if moved.plain])
    return max((moved.code for moved in ended), key=_WORST_LAST.index, default=ExitCode.OK)


async def _all_stopped(named: Path | None) -> list[str]:
    async with opened(named) as log:
        return [run.run_id for run in await stopped(log, NAME)]


def _moved_or_told(run_id: str, options: Options) -> Moved:
    try:
        return _moved(run_id, options)
    except InterlockError as error:
        say(f"run {short(run_id)} stays as it is:", error=True)
        say_wrong(error)
        return Moved(ExitCode.FAILED, stopped_as_json(run_id, str(error), ExitCode.FAILED))


def _moved(wanted: str, options: Options) -> Moved:
    run = asyncio.run(_look(wanted, options))
    return moved_on(
        _prepared(run, options),
        lambda runner: runner.open(run.run_id, force=options.take_over),
        Shown(run.run_id, options.headless, options.as_json),
    )


async def _look(wanted: str, options: Options) -> _Wanted:
    async with opened(options.log) as log:
        named = await named_run(log, wanted)
        run_id = (*around(named), named)[0]
        if run_id != named and not options.as_json:
            say(f"{short(named)} is inside of {short(run_id)}, which is resumed.", error=True)
        ledger = (await load(log, run_id)).ledger
        _check(ledger, options.log)
        holder = (await log.holders()).get(run_id, "")
        if holder and not options.take_over:
            raise _refusal(run_id, holder, options.log)
        return await _as_it_was(log, run_id)


def _check(ledger: Ledger, log: Path | None) -> None:
    name = short(ledger.run_id)
    if ledger.is_over:
        command = with_log(f"interlock runs fork {name}", log)
        raise RunEndedError(f"{name} is {ledger.state.value}: it cannot go on. `{command}` makes a new run.")
    if ledger.created_by:
        raise ConfigurationError(
            f"{name} was made on a server, which goes on with it by itself. Its questions can be answered from here."
        )
    if ledger.agent != NAME:
        raise ConfigurationError(
            f"{name} is a run of the agent {ledger.agent[:80]!r}, which belongs to another program: resume it there. "
            "Its questions can be answered from here."
        )


def _refusal(run_id: str, holder: str, log: Path | None) -> RunClaimedError:
    name = short(run_id)
    watch = with_log(f"interlock runs watch {name}", log)
    return RunClaimedError(
        f"{name} is moved on by {holder}, which is alive. Nothing was done. `{watch}` shows it, and its questions can "
        "be answered from here. --take-over takes it away from that process."
    )


async def _as_it_was(log: EventLog, run_id: str) -> _Wanted:
    workspace, mode = "", Mode.DEFAULT
    async for event in events_of(log, run_id):
        match event.fact:
            case RunStarted(workspace=folder, mode=first):
                workspace, mode = folder, first
            case BatchStarted(mode=latest):
                mode = latest
            case _:
                pass
    return _Wanted(run_id, workspace, mode)


def _folder(run: _Wanted, options: Options) -> Path:
    """Where it was begun. A run is not moved to another folder: what it did and knows is about that one."""
    name, named = short(run.run_id), options.workspace
    if not run.workspace and named is None:
        raise ConfigurationError(
            f"{name} says not in which folder it works. Nothing was done. Name one with --workspace."
        )
    if run.workspace and named is not None and os.path.realpath(named) != os.path.realpath(run.workspace):
        raise ConfigurationError(f"{name} works in {run.workspace}, and not in {named}. Nothing was done.")
    return Path(run.workspace) if named is None else named


def _prepared(run: _Wanted, options: Options) -> Prepared:
    """Without a word about it, a run gets no freer than it was."""
    prepared = prepare(
        Wanted(
            workspace=_folder(run, options),
            settings=options.settings,
            script=options.script,
            log=options.log,
            headless=options.headless,
        )
    )
    if "mode" in options.settings:
        return prepared
    mode = min(prepared.mode, run.mode, key=_STRICTEST_FIRST.index)
    return msgspec.structs.replace(prepared, mode=mode)
