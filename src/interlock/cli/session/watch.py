"""Watches a run from any process: the same live view, fed from the log alone."""

import asyncio
from contextlib import suppress
from pathlib import Path

import typer
from rich.text import Text

from ...domain.event import ApprovalRequested, ConsentRequested, Event, InputRequested, UserMessageReceived
from ...history.fold import load_run
from ..config.logs import add_log_option, is_in_database, open_log, resolve_run, shorten_id
from ..display.live import LiveView, format_speech
from ..display.live_region import LiveRegion, make_live_console
from ..display.output import make_visible
from ..display.run_list import TERMINAL_EVENTS, follow_events, read_events
from ..exit_codes import ExitCode
from .terminal import preserve_terminal

_FRAME_SECONDS = 0.1
_TRANSCRIPT_OUTPUT_LINES = 100
_SUCCESS_EVENTS = frozenset(("run.completed", "run.degraded"))


async def watch_run(log_path: Path | None, run_ref: str) -> None:
    """Watch until the run ends; the exit code says how."""
    with preserve_terminal() as modes:
        modes.disable_echo()
        run_watch = await _watch_run(log_path, run_ref)
    run_watch.print_end()


async def print_transcript(log_path: Path | None, run_ref: str) -> None:
    """Print a run from its first event on: messages, calls and the ends of their outputs."""
    region = LiveRegion(make_live_console(), animated=False)
    view = LiveView(region, log_path=log_path, max_output_lines=_TRANSCRIPT_OUTPUT_LINES)
    async with open_log(log_path) as log:
        async for event in read_events(log, await resolve_run(log, run_ref)):
            if isinstance(event.fact, UserMessageReceived):
                view.print_lines(*format_speech(event.fact.by or "you", event.fact.text, region.width))
            view.on_event(event)


async def _watch_run(log_path: Path | None, run_ref: str) -> "_RunWatch":
    async with open_log(log_path) as log:
        run_id = await resolve_run(log, run_ref)
        ledger = (await load_run(log, run_id)).ledger
        next_seq = ledger.next_seq
        # The agent of another framework has its run only while a tool is called.
        is_held = bool(ledger.framework) or bool(await log.lease_holder(run_id))
        run_watch = _RunWatch(run_id, log_path, is_held=is_held)
        frames = asyncio.create_task(run_watch.draw_frames())
        try:
            async for event in follow_events(log, run_id):
                run_watch.show_event(event)
                if event.seq == next_seq - 1 and event.type not in TERMINAL_EVENTS:
                    run_watch.print_if_unowned()
        finally:
            frames.cancel()
            with suppress(asyncio.CancelledError):
                await frames
            run_watch.view.stop()
    return run_watch


class _RunWatch:
    def __init__(self, run_id: str, log_path: Path | None, *, is_held: bool) -> None:
        self._region = LiveRegion(make_live_console())
        self.view = LiveView(self._region, log_path=log_path)
        self._run_id = run_id
        self._log_path = log_path
        self._is_held = is_held
        self._last: Event | None = None

    async def draw_frames(self) -> None:
        while self._region.is_animated:
            await asyncio.sleep(_FRAME_SECONDS)
            self.view.refresh()

    def show_event(self, event: Event) -> None:
        self._last = event
        self.view.on_event(event)
        match event.fact:
            case UserMessageReceived(text=text, by=by):
                self.view.print_lines(*format_speech(by or "you", text, self._region.width))
            case (
                ApprovalRequested(question=question)
                | InputRequested(question=question)
                | ConsentRequested(question=question)
            ):
                self.view.print_note("  waits for a person:", "yellow")
                self._print_command(f"interlock approvals show {shorten_id(question.action_id)}")
            case _:
                pass

    def print_if_unowned(self) -> None:
        if not self._is_held and is_in_database(self._log_path):
            self.view.print_note("No running process has this run now. A worker continues it.", "yellow")
        elif not self._is_held:
            self.view.print_note("No running process has this run now. To resume it:", "yellow")
            self._print_command(f"interlock runs resume {shorten_id(self._run_id)}")

    def print_end(self) -> None:
        if self._last is None:
            return
        state = self._last.type.removeprefix("run.")
        message = "" if state == "completed" else getattr(self._last.fact, "message", "")
        self.view.print_note(f"{state}: {message}" if message else state)
        self._print_command(f"interlock runs show {shorten_id(self._run_id)}")
        if self._last.type not in _SUCCESS_EVENTS:
            raise typer.Exit(ExitCode.FAILED)

    def _print_command(self, command: str) -> None:
        """Print a command on a separate line and uncut, so that it can be copied."""
        self.view.print_lines(Text(f"  {make_visible(add_log_option(command, self._log_path))}"))
