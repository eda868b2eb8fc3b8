"""One run while it is driven in this process: shown live, with questions at the terminal, and interruptible.

    code = run_and_report(prepared, lambda runner: runner.start(task))
    code = run_and_report(prepared, lambda runner: runner.open(run_id), resumed_run_id=run_id)

`run_and_report` returns when the run is over, waits for a person or was stopped. The run is in the log in any case.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import StringIO
from typing import NamedTuple

from rich.console import Console

from ...domain.errors import InterlockError, LogFencedError, ModelError
from ...domain.event import decode_event
from ...domain.json import JsonObject
from ...interaction.terminal import TerminalInteractionProvider
from ...policy.files.saved_rules import find_rule_problem
from ...rendering.text import pluralize
from ...runs.handle import RunHandle
from ...runs.result import AgentResult
from ...runs.runner import Runner
from ..config.logs import add_log_option, shorten_id
from ..display.live import LiveView
from ..display.live_region import LiveRegion, make_live_console
from ..display.output import echo, echo_json, echo_notice
from ..display.run_list import list_stopped
from ..exit_codes import ExitCode
from .agent import AGENT_NAME, PreparedRun, open_runner
from .interrupts import InterruptHandler, signal_handlers
from .result_format import build_resume_command, format_result, get_exit_code, stopped_to_json
from .result_format import result_to_json as json_of
from .terminal import TerminalModes, TerminalPerson, preserve_terminal

_TICK_SECONDS = 0.1
#: So many runs are looked at before a new one begins.
_MAX_RECENT_RUNS = 200

StartRun = Callable[[Runner], Awaitable[RunHandle]]


class LiveSession(NamedTuple):
    """The runner, view and terminal of a live run."""

    runner: Runner
    view: LiveView
    region: LiveRegion
    interrupts: InterruptHandler
    modes: TerminalModes


class SessionOutcome(NamedTuple):
    """The exit code, and the JSON output of the run."""

    code: ExitCode
    result_json: JsonObject | None = None


class SessionOptions(NamedTuple):
    """How a run is driven: for a person, or for a program."""

    #: The resumed run: what happened before is not shown again.
    resumed_run_id: str = ""
    headless: bool = False
    as_json: bool = False


def run_and_report(
    prepared: PreparedRun,
    start_run: StartRun,
    *,
    resumed_run_id: str = "",
    headless: bool = False,
    as_json: bool = False,
) -> ExitCode:
    """Drive a run, print its result, and return the exit code."""
    outcome = run_session(prepared, start_run, SessionOptions(resumed_run_id, headless, as_json))
    if as_json and outcome.result_json:
        echo_json(outcome.result_json)
    return outcome.code


def run_session(prepared: PreparedRun, start_run: StartRun, options: SessionOptions) -> SessionOutcome:
    with preserve_terminal() as modes:
        try:
            return asyncio.run(_run_session(prepared, start_run, modes, options))
        except KeyboardInterrupt:
            echo("interlock: interrupted. What was begun is kept.", error=True)
            return SessionOutcome(ExitCode.INTERRUPTED)


@asynccontextmanager
async def open_session(
    prepared: PreparedRun, modes: TerminalModes, *, headless: bool = False, silent: bool = False, chat: bool = False
) -> AsyncGenerator[LiveSession]:
    region = LiveRegion(Console(file=StringIO()) if silent else make_live_console())
    view = LiveView(region)
    seconds = prepared.settings.approval_timeout_seconds
    terminal = TerminalInteractionProvider(seconds, "wait", find_rule_problem=find_rule_problem)
    person = TerminalPerson(terminal, view, modes) if terminal.interactive and not headless else None
    interrupts = InterruptHandler(view, person, exit_now=lambda: _exit_now(region, modes))
    extras = {} if person is None else {"interaction": person}
    async with open_runner(prepared, on_progress=view.on_progress, chat=chat, **extras) as runner:
        yield LiveSession(runner, view, region, interrupts, modes)


async def show_run(handle: RunHandle, session: LiveSession, after_seq: int = -1) -> AgentResult:
    """Show the run until it is over, waits or was stopped. Raise `ModelError` or `LogError` when it cannot continue."""
    view = session.view
    session.interrupts.attach(handle)
    display = asyncio.create_task(_show_events(handle, view, after_seq))
    refresh = asyncio.create_task(_refresh_view(view))
    if view.is_animated:
        session.modes.disable_echo()
    try:
        with signal_handlers(_signal_actions(session.interrupts)):
            return await handle.result()
    finally:
        await display
        refresh.cancel()
        view.stop()
        session.modes.restore()


async def restore_view(runner: Runner, run_id: str, view: LiveView) -> int:
    """Restore the view from earlier events without showing them, and return the last `seq`."""
    entries = await runner.log.read(run_id) if run_id else []
    for entry in entries:
        view.restore_event(decode_event(entry))
    return len(entries) - 1


async def _run_session(
    prepared: PreparedRun, start_run: StartRun, modes: TerminalModes, options: SessionOptions
) -> SessionOutcome:
    for note in prepared.notes:
        echo_notice(f"interlock: {note}")
    async with open_session(prepared, modes, headless=options.headless, silent=options.as_json) as session:
        if not options.resumed_run_id:
            await note_stopped_runs(session, prepared)
        last_seq = await restore_view(session.runner, options.resumed_run_id, session.view)
        handle = await start_run(session.runner)
        handle.on_model(session.view.on_model_event)
        session.view.print_note(_format_headline(handle, prepared), "dim")
        try:
            result = await show_run(handle, session, last_seq)
        except LogFencedError as error:
            _echo_taken_over(handle, prepared)
            return SessionOutcome(ExitCode.FAILED, stopped_to_json(handle.run_id, str(error), ExitCode.FAILED))
        except InterlockError as error:
            if options.as_json or not isinstance(error, ModelError):  # Else the view has said it.
                echo_notice(f"interlock: {error}")
            _echo_kept(handle, prepared)
            return SessionOutcome(ExitCode.FAILED, stopped_to_json(handle.run_id, str(error), ExitCode.FAILED))
        code = get_exit_code(result, session.interrupts.is_stopped)
        session.view.print_lines(*format_result(result, prepared, session.region.width))
    return SessionOutcome(code, json_of(result, code))


async def note_stopped_runs(session: LiveSession, prepared: PreparedRun) -> None:
    """Mention stopped runs of the same folder."""
    found = await list_stopped(session.runner.log, AGENT_NAME, _MAX_RECENT_RUNS)
    run_ids = [run.run_id for run in found if run.workspace == prepared.workspace]
    if run_ids:
        target = shorten_id(run_ids[0]) if len(run_ids) == 1 else "--all"
        command = add_log_option(f"interlock runs resume {target}", prepared.log_path)
        session.view.print_note(
            f"{pluralize(len(run_ids), 'run')} stopped in this folder. `{command}` goes on.", "yellow"
        )


async def _show_events(handle: RunHandle, view: LiveView, after_seq: int) -> None:
    async for event in handle.log_events(after_seq):
        view.on_event(event)


async def _refresh_view(view: LiveView) -> None:
    while view.is_animated:
        await asyncio.sleep(_TICK_SECONDS)
        view.refresh()


def _signal_actions(interrupts: InterruptHandler) -> dict[signal.Signals, Callable[[], None]]:
    return {
        signal.SIGINT: interrupts.interrupt,
        signal.SIGTERM: lambda: interrupts.stop("This process received SIGTERM."),
        signal.SIGHUP: lambda: interrupts.stop("The terminal is gone."),
    }


def _exit_now(region: LiveRegion, modes: TerminalModes) -> None:
    """Exit at once. Commands end with this process, and running calls have an unknown outcome in the log."""
    region.clear()
    modes.restore()
    os._exit(ExitCode.INTERRUPTED)


def _format_headline(handle: RunHandle, prepared: PreparedRun) -> str:
    return f"run {shorten_id(handle.run_id)}: {prepared.model.label}, mode {prepared.mode}, in {prepared.workspace}"


def _echo_taken_over(handle: RunHandle, prepared: PreparedRun) -> None:
    echo_notice(
        f"interlock: another process took run {shorten_id(handle.run_id)} over. Nothing more is done here. To see it:"
    )
    echo(f"  {add_log_option(f'interlock runs watch {shorten_id(handle.run_id)}', prepared.log_path)}", error=True)


def _echo_kept(handle: RunHandle, prepared: PreparedRun) -> None:
    echo("The run is kept as it is. To go on with it:", error=True)
    echo(f"  {build_resume_command(handle.run_id, prepared)}", error=True)
