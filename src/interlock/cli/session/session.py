"""One run as it is moved on in this process: shown while it happens, asked about at the terminal, and interrupted.

    code = move_on(prepared, lambda runner: runner.start(task))
    code = move_on(prepared, lambda runner: runner.open(run_id), resumed=run_id)

`move_on` returns when the run is over, waits for a person or was stopped. The run is in the log in any case.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import StringIO
from typing import NamedTuple

from rich.console import Console

from ...domain.chain import decode_event
from ...domain.errors import InterlockError, LogFencedError, ModelError
from ...domain.json import JsonObject
from ...interaction.terminal import TerminalInteractionProvider
from ...policy.files.kept import find_rule_problem
from ...runs.handle import RunHandle
from ...runs.result import AgentResult
from ...runs.runner import Runner
from ..config.logs import short, with_log
from ..display.live import LiveView
from ..display.live_region import Region, live_console
from ..display.output import count, say, say_json, say_long
from ..display.run_list import stopped
from ..exit_codes import ExitCode
from .agent import NAME, Prepared, opened_runner
from .ending import as_json as json_of
from .ending import ending, exit_code_of, resume_command, stopped_as_json
from .interrupt import Interrupts
from .signals import signal_handlers
from .terminal import PersonAtTerminal, TerminalModes, terminal_as_it_was

_TICK_SECONDS = 0.1
#: So many runs are looked at before a new one begins.
_LOOKED_AT = 200

Begin = Callable[[Runner], Awaitable[RunHandle]]


class Stage(NamedTuple):
    """What a run is moved on with."""

    runner: Runner
    view: LiveView
    region: Region
    interrupts: Interrupts
    modes: TerminalModes


class Moved(NamedTuple):
    """How it ended, and for programs what became of the run."""

    code: ExitCode
    plain: JsonObject | None = None


class Shown(NamedTuple):
    """How a run is moved on for a person, or for a program."""

    #: The run that is gone on with: what happened before is not shown again.
    resumed: str = ""
    headless: bool = False
    as_json: bool = False


def move_on(
    prepared: Prepared, begin: Begin, *, resumed: str = "", headless: bool = False, as_json: bool = False
) -> ExitCode:
    """Say what there is to say, and return the exit code."""
    moved = moved_on(prepared, begin, Shown(resumed, headless, as_json))
    if as_json and moved.plain:
        say_json(moved.plain)
    return moved.code


def moved_on(prepared: Prepared, begin: Begin, shown: Shown) -> Moved:
    with terminal_as_it_was() as modes:
        try:
            return asyncio.run(_move_on(prepared, begin, modes, shown))
        except KeyboardInterrupt:
            say("interlock: interrupted. What was begun is kept.", error=True)
            return Moved(ExitCode.INTERRUPTED)


@asynccontextmanager
async def opened_stage(
    prepared: Prepared, modes: TerminalModes, *, headless: bool = False, silent: bool = False, chat: bool = False
) -> AsyncGenerator[Stage]:
    region = Region(Console(file=StringIO()) if silent else live_console())
    view = LiveView(region)
    seconds = prepared.settings.approval_timeout_seconds
    terminal = TerminalInteractionProvider(seconds, "wait", find_rule_problem=find_rule_problem)
    person = PersonAtTerminal(terminal, view, modes) if terminal.interactive and not headless else None
    interrupts = Interrupts(view, person, leave_now=lambda: _leave(region, modes))
    around = {} if person is None else {"interaction": person}
    async with opened_runner(prepared, on_progress=view.progress, chat=chat, **around) as runner:
        yield Stage(runner, view, region, interrupts, modes)


async def watched(handle: RunHandle, stage: Stage, after_seq: int = -1) -> AgentResult:
    """Show the run until it is over, waits or was stopped. `ModelError` or `LogError` when it cannot be moved on."""
    view = stage.view
    stage.interrupts.attach(handle)
    showing = asyncio.create_task(_show(handle, view, after_seq))
    ticking = asyncio.create_task(_tick(view))
    if view.moves:
        stage.modes.hush()
    try:
        with signal_handlers(_handlers(stage.interrupts)):
            return await handle.result()
    finally:
        await showing
        ticking.cancel()
        view.rest()
        stage.modes.restore()


async def remembered(runner: Runner, run_id: str, view: LiveView) -> int:
    """What happened so far is not shown again: the last event."""
    entries = await runner.log.read(run_id) if run_id else []
    for entry in entries:
        view.remember(decode_event(entry))
    return len(entries) - 1


async def _move_on(prepared: Prepared, begin: Begin, modes: TerminalModes, shown: Shown) -> Moved:
    for note in prepared.notes:
        say_long(f"interlock: {note}")
    async with opened_stage(prepared, modes, headless=shown.headless, silent=shown.as_json) as stage:
        if not shown.resumed:
            await say_stopped(stage, prepared)
        seen = await remembered(stage.runner, shown.resumed, stage.view)
        handle = await begin(stage.runner)
        handle.on_model(stage.view.heard)
        stage.view.say(_headline(handle, prepared), "dim")
        try:
            result = await watched(handle, stage, seen)
        except LogFencedError as error:
            _say_taken_over(handle, prepared)
            return Moved(ExitCode.FAILED, stopped_as_json(handle.run_id, str(error), ExitCode.FAILED))
        except InterlockError as error:
            if shown.as_json or not isinstance(error, ModelError):  # Else the view has said it.
                say_long(f"interlock: {error}")
            _say_kept(handle, prepared)
            return Moved(ExitCode.FAILED, stopped_as_json(handle.run_id, str(error), ExitCode.FAILED))
        code = exit_code_of(result, stage.interrupts.stopped)
        stage.view.show(*ending(result, prepared, stage.region.width))
    return Moved(code, json_of(result, code))


async def say_stopped(stage: Stage, prepared: Prepared) -> None:
    """Runs that stopped in the same folder are easily forgotten."""
    found = await stopped(stage.runner.log, NAME, _LOOKED_AT)
    here = [run.run_id for run in found if run.workspace == prepared.workspace]
    if here:
        which = short(here[0]) if len(here) == 1 else "--all"
        command = with_log(f"interlock runs resume {which}", prepared.named_log)
        stage.view.say(f"{count(len(here), 'run')} stopped in this folder. `{command}` goes on.", "yellow")


async def _show(handle: RunHandle, view: LiveView, after_seq: int) -> None:
    async for event in handle.log_events(after_seq):
        view.event(event)


async def _tick(view: LiveView) -> None:
    while view.moves:
        await asyncio.sleep(_TICK_SECONDS)
        view.tick()


def _handlers(interrupts: Interrupts) -> dict[signal.Signals, Callable[[], None]]:
    return {
        signal.SIGINT: interrupts.interrupt,
        signal.SIGTERM: lambda: interrupts.stop("This process received SIGTERM."),
        signal.SIGHUP: lambda: interrupts.stop("The terminal is gone."),
    }


def _leave(region: Region, modes: TerminalModes) -> None:
    """At once. Commands end with this process, and what was under way has an unknown outcome in the log."""
    region.clear()
    modes.restore()
    os._exit(ExitCode.INTERRUPTED)


def _headline(handle: RunHandle, prepared: Prepared) -> str:
    return f"run {short(handle.run_id)}: {prepared.model.shown}, mode {prepared.mode}, in {prepared.workspace}"


def _say_taken_over(handle: RunHandle, prepared: Prepared) -> None:
    say_long(f"interlock: another process took run {short(handle.run_id)} over. Nothing more is done here. To see it:")
    say(f"  {with_log(f'interlock runs watch {short(handle.run_id)}', prepared.named_log)}", error=True)


def _say_kept(handle: RunHandle, prepared: Prepared) -> None:
    say("The run is kept as it is. To go on with it:", error=True)
    say(f"  {resume_command(handle.run_id, prepared)}", error=True)
