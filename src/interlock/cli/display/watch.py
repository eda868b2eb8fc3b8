"""Watch a run from any process: the same view as where it is moved on, fed from the log alone."""

import asyncio
from contextlib import suppress
from pathlib import Path

import typer
from rich.text import Text

from ...domain.event import ApprovalRequested, ConsentRequested, Event, InputRequested, UserSaid
from ...history.fold import load
from ..config.logs import named_run, opened, short, with_log
from ..exit_codes import ExitCode
from ..session.terminal import terminal_as_it_was
from .follow import ENDS, follow
from .live import LiveView, said_lines
from .live_region import Region, live_console
from .output import visible_line

_FRAME_SECONDS = 0.1
_GOOD_ENDS = frozenset(("run.completed", "run.degraded"))


async def watch(named: Path | None, wanted: str) -> None:
    """Until the run ends; the exit code says how."""
    with terminal_as_it_was() as modes:
        modes.hush()
        watched = await _watch(named, wanted)
    watched.say_end()


async def _watch(named: Path | None, wanted: str) -> "_Watched":
    async with opened(named) as log:
        run_id = await named_run(log, wanted)
        here = (await load(log, run_id)).ledger.next_seq
        watched = _Watched(run_id, named, is_held=run_id in await log.holders())
        frames = asyncio.create_task(watched.draw())
        try:
            async for event in follow(log, run_id):
                watched.show(event)
                if event.seq == here - 1 and event.type not in ENDS:
                    watched.say_who_has_it()
        finally:
            frames.cancel()
            with suppress(asyncio.CancelledError):
                await frames
            watched.view.rest()
    return watched


class _Watched:
    def __init__(self, run_id: str, named: Path | None, *, is_held: bool) -> None:
        self._region = Region(live_console())
        self.view = LiveView(self._region)
        self._run_id = run_id
        self._named = named
        self._is_held = is_held
        self._last: Event | None = None

    async def draw(self) -> None:
        while self._region.moves:
            await asyncio.sleep(_FRAME_SECONDS)
            self.view.tick()

    def show(self, event: Event) -> None:
        self._last = event
        self.view.event(event)
        match event.fact:
            case UserSaid(text=text, by=by):
                self.view.show(*said_lines(by or "you", text, self._region.width))
            case (
                ApprovalRequested(question=question)
                | InputRequested(question=question)
                | ConsentRequested(question=question)
            ):
                self.view.say("  waits for a person:", "yellow")
                self._say_command(f"interlock approvals show {short(question.action_id)}")
            case _:
                pass

    def say_who_has_it(self) -> None:
        if not self._is_held:
            self.view.say("No living process has this run now. To go on with it:", "yellow")
            self._say_command(f"interlock runs resume {short(self._run_id)}")

    def say_end(self) -> None:
        if self._last is None:
            return
        word = self._last.type.removeprefix("run.")
        message = "" if word == "completed" else getattr(self._last.fact, "message", "")
        self.view.say(f"{word}: {message}" if message else word)
        self._say_command(f"interlock runs show {short(self._run_id)}")
        if self._last.type not in _GOOD_ENDS:
            raise typer.Exit(ExitCode.FAILED)

    def _say_command(self, command: str) -> None:
        """On a line of its own, and whole: it is to be copied."""
        self.view.show(Text(f"  {visible_line(with_log(command, self._named))}"))
