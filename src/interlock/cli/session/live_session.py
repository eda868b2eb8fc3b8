"""One run while it is driven in this process: shown live, with questions at the terminal, and interruptible.

    code = run_and_report(prepared, lambda runner: runner.start(task), SessionOptions())

`run_and_report` returns when the run is over, waits for a person or was stopped. The run is in the log in any case.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from io import StringIO
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from ...domain.errors import InterlockError, LogFencedError, ModelError
from ...domain.event import decode_event
from ...domain.json import JsonObject
from ...domain.state.lifecycle import RunState
from ...domain.state.verification import VerificationStatus
from ...interaction.terminal import TerminalInteractionProvider
from ...rendering.text import pluralize, shorten_line
from ...runs.handle import RunHandle
from ...runs.result import AgentResult
from ...runs.runner import Runner
from ..config.logs import add_log_option, shorten_id
from ..display.live import LiveView
from ..display.live_region import LiveRegion, make_live_console, wrap_line
from ..display.output import echo, echo_json, echo_notice, make_visible
from ..display.run_list import list_stopped
from ..exit_codes import ExitCode
from .agent import AGENT_NAME, PreparedRun, open_runner
from .dialog_support import LocalDialogSupport
from .terminal import (
    InterruptHandler,
    TerminalModes,
    TerminalPerson,
    preserve_terminal,
    signal_handlers,
    watch_keys,
)

_LABEL_CHARS = 12
_TICK_SECONDS = 0.1
#: So many runs are looked at before a new one begins.
_MAX_RECENT_RUNS = 200
_VERIFICATION_LABELS: Mapping[VerificationStatus, tuple[str, str]] = {
    "passed": ("verified", "green"),
    "failed": ("failed", "red"),
    "stale": ("stale", "yellow"),
    "none": ("unverified", "yellow"),
}
_STATE_STYLES: Mapping[RunState, str] = {RunState.COMPLETED: "green", RunState.FAILED: "red", RunState.CANCELLED: "red"}
_REFUSED_CODES = frozenset(("policy_denied", "budget_exceeded", "user_denied", "guardrail_refused", "consent_refused"))
_CALL_FIELDS = ("call_id", "tool", "ok", "code", "summary")

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


def run_and_report(prepared: PreparedRun, start_run: StartRun, options: SessionOptions) -> ExitCode:
    """Drive a run, print its result, and return the exit code."""
    outcome = run_session(prepared, start_run, options)
    if options.as_json and outcome.result_json:
        echo_json(outcome.result_json)
    return outcome.code


def run_session(prepared: PreparedRun, start_run: StartRun, options: SessionOptions) -> SessionOutcome:
    """Drive a run until it is over, waits for a person or was stopped."""
    with preserve_terminal() as modes:
        try:
            return asyncio.run(_run_session(prepared, start_run, modes, options))
        except KeyboardInterrupt:
            echo("interlock: interrupted. What was begun is kept.", error=True)
            return SessionOutcome(ExitCode.INTERRUPTED)


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
        name = shorten_id(handle.run_id)
        headline = f"run {name}: {prepared.model.label}, mode {prepared.mode}, in {prepared.workspace}"
        session.view.print_note(headline, "dim")
        try:
            result = await show_run(handle, session, last_seq)
        except InterlockError as error:
            if isinstance(error, LogFencedError):
                echo_notice(f"interlock: another process took run {name} over. Nothing more is done here. To see it:")
                command = add_log_option(f"interlock runs watch {name}", prepared.log_path)
            else:
                if options.as_json or not isinstance(error, ModelError):  # Else the view has said it.
                    echo_notice(f"interlock: {error}")
                echo("The run is kept. To resume it:", error=True)
                command = build_resume_command(handle.run_id, prepared)
            echo(f"  {command}", error=True)
            return SessionOutcome(ExitCode.FAILED, stopped_to_json(handle.run_id, str(error)))
        code = get_exit_code(result, session.interrupts.is_stopped)
        session.view.print_lines(*format_result(result, prepared, session.region.width))
    return SessionOutcome(code, _result_to_json(result, code))


@asynccontextmanager
async def open_session(
    prepared: PreparedRun, modes: TerminalModes, *, headless: bool = False, silent: bool = False, chat: bool = False
) -> AsyncGenerator[LiveSession]:
    """Open the runner of a prepared run, with a view and a person at the terminal."""
    settings = prepared.settings
    region = LiveRegion(Console(file=StringIO()) if silent else make_live_console(), notify=settings.notify)
    view = LiveView(region, mode=prepared.mode, log_path=prepared.log_path)
    seconds = settings.approval_timeout_seconds
    opened: list[Runner] = []
    support = LocalDialogSupport(prepared.files.log, lambda name: opened[0].app.registry.find(name) if opened else None)
    terminal = TerminalInteractionProvider(seconds, "wait", support=support)
    person = TerminalPerson(terminal, view, modes) if terminal.interactive and not headless else None

    def exit_now() -> None:
        """Exit at once. Commands end with this process, and running calls have an unknown outcome in the log."""
        region.clear()
        modes.restore()
        os._exit(ExitCode.INTERRUPTED)

    interrupts = InterruptHandler(view, person, exit_now=exit_now)
    extras = {} if person is None else {"interaction": person}
    async with open_runner(prepared, on_progress=view.on_progress, chat=chat, **extras) as runner:
        opened.append(runner)
        yield LiveSession(runner, view, region, interrupts, modes)


async def show_run(handle: RunHandle, session: LiveSession, after_seq: int = -1) -> AgentResult:
    """Show the run until it is over, waits or was stopped. Raise `ModelError` or `LogError` when it cannot continue."""
    view, interrupts = session.view, session.interrupts

    async def show_events() -> None:
        async for event in handle.log_events(after_seq):
            view.on_event(event)

    async def refresh_view() -> None:
        while view.is_animated:
            await asyncio.sleep(_TICK_SECONDS)
            view.refresh()

    interrupts.attach(handle)
    display, refresh = asyncio.create_task(show_events()), asyncio.create_task(refresh_view())
    if view.is_animated:
        watch_keys(view, session.modes)
    handlers: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGINT: interrupts.interrupt,
        signal.SIGTERM: lambda: interrupts.stop("This process received SIGTERM."),
        signal.SIGHUP: lambda: interrupts.stop("The terminal is gone."),
    }
    try:
        with signal_handlers(handlers):
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


async def note_stopped_runs(session: LiveSession, prepared: PreparedRun) -> None:
    """Mention stopped runs of the same folder."""
    found = await list_stopped(session.runner.log, AGENT_NAME, _MAX_RECENT_RUNS)
    run_ids = [run.run_id for run in found if run.workspace == prepared.workspace]
    if run_ids:
        target = shorten_id(run_ids[0]) if len(run_ids) == 1 else "--all"
        command = add_log_option(f"interlock runs resume {target}", prepared.log_path)
        stopped = pluralize(len(run_ids), "run")
        session.view.print_note(f"{stopped} stopped in this folder. `{command}` resumes.", "yellow")


def get_exit_code(result: AgentResult, stopped: bool) -> ExitCode:
    """Return the exit code of a result. `stopped`: the run was stopped here."""
    if result.state is RunState.COMPLETED:
        last_code = result.observations[-1].code if result.observations else ""
        completed = ExitCode.REFUSED if last_code in _REFUSED_CODES else ExitCode.OK
        return ExitCode.FAILED if result.conflict else completed
    if stopped:
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED if result.state.is_over else ExitCode.WAITING


def build_resume_command(run_id: str, prepared: PreparedRun) -> str:
    """Return the command to resume. The run remembers its model, policy and mode."""
    return add_log_option(f"interlock runs resume {shorten_id(run_id)}", prepared.log_path)


def format_verification(result: AgentResult, width: int) -> list[Text]:
    """Format what was verified."""
    label, style = _VERIFICATION_LABELS[result.verification.status]
    return _format_fact(label, result.verification.message, width, style)


def format_result(result: AgentResult, prepared: PreparedRun, width: int, resume: str = "") -> list[Text]:
    """Format a result. `resume`: the command to resume, where that is not the usual one."""
    is_over, lines = result.state.is_over, [Text()]
    for question in result.questions:
        reason = (question.reason or question.prompt).rstrip(".")
        lines += _format_fact("waits", f"{question.headline} ({reason})", width, "yellow")
    if result.observations and (is_over or result.verification.status != "none"):
        lines += format_verification(result, width)
    if result.conflict:
        lines += _format_fact("conflict", result.conflict, width, "bold red")
    usage = result.usage
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out" if usage.input_tokens else ""
    parts = (pluralize(len(result.observations), "call"), tokens, f"cost {usage.cost:,.4f}" if usage.cost else "")
    lines += _format_fact("used", "; ".join(filter(None, parts)), width)
    if is_over:
        message = result.message if result.state is not RunState.COMPLETED else ""
        lines += _format_fact(result.state.value, message, width, _STATE_STYLES.get(result.state, "yellow"))
    commands = _suggest_commands(result, prepared, resume)
    return [*lines, *(Text(f"  {command:43}  {about}", "dim") for command, about in commands)]


def _suggest_commands(result: AgentResult, prepared: PreparedRun, resume: str) -> Iterator[tuple[str, str]]:
    log = prepared.log_path
    if result.questions:
        question = shorten_id(result.questions[0].action_id)
        yield add_log_option(f"interlock approvals show {question}", log), "see all of it"
        yield add_log_option(f"interlock approvals approve {question}", log), "or reject"
    if result.state.is_over:
        yield add_log_option(f"interlock runs show {shorten_id(result.run_id)}", log), "look at the run"
    else:
        yield resume or build_resume_command(result.run_id, prepared), "resume the run"


def _format_fact(label: str, text: str, width: int, style: str = "") -> list[Text]:
    """Format a label and the text beside it in as many rows as it takes."""
    rows = wrap_line(make_visible(shorten_line(text, 1_000)), width - _LABEL_CHARS - 2)
    first = Text("  ").append(f"{label:{_LABEL_CHARS}}" if rows[0] else label, style).append(rows[0])
    return [first, *(Text(" " * (_LABEL_CHARS + 2) + row) for row in rows[1:])]


def _result_to_json(result: AgentResult, code: ExitCode) -> JsonObject:
    return {
        "run_id": result.run_id,
        "state": result.state.value,
        "status": result.status,
        "text": result.text,
        "message": result.message,
        "verification": {"status": result.verification.status, "message": result.verification.message},
        "conflict": result.conflict,
        "usage": {name: getattr(result.usage, name) for name in result.usage.__struct_fields__},
        "calls": [{name: getattr(record, name) for name in _CALL_FIELDS} for record in result.observations],
        "questions": [
            {
                "action_id": question.action_id,
                "run_id": question.run_id,
                "tool": question.tool_name,
                "capability": question.capability,
                "title": question.headline,
                "prompt": question.prompt,
                "reason": question.reason,
            }
            for question in result.questions
        ],
        "exit_code": code.value,
    }


def stopped_to_json(run_id: str, message: str) -> JsonObject:
    """Return JSON output for a run that could not continue and stays resumable."""
    code = ExitCode.FAILED.value
    return {"run_id": run_id, "state": "stopped", "text": "", "message": message, "exit_code": code}
