"""Watch a run from any process: the same view as where it is moved on, fed from the log alone."""

import asyncio
from contextlib import suppress
from pathlib import Path

import typer

from ..domain.event import ApprovalRequested, Event, InputRequested, UserSaid
from ..history.fold import load
from .exit_codes import ExitCode
from .live import LiveView, said_lines
from .live_region import Region, live_console
from .logs import log_path
from .runs_follow import ENDS, follow
from .runs_holders import holders
from .runs_log import named_run, opened, short, with_log

_FRAME_SECONDS = 0.1
_GOOD_ENDS = frozenset(("run.completed", "run.degraded"))


async def watch(named: Path | None, wanted: str) -> None:
    """Until the run ends; the exit code says how."""
    async with opened(named) as log:
        run_id = await named_run(log, wanted)
        here = (await load(log, run_id)).ledger.next_seq
        watched = _Watched(run_id, named, is_held=run_id in await holders(log_path(named)))
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
    watched.say_end()


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
            case ApprovalRequested(question=question) | InputRequested(question=question):
                command = with_log(f"interlock approvals show {short(question.action_id)}", self._named)
                self.view.say(f"  waits for a person: {command}", "yellow")
            case _:
                pass

    def say_who_has_it(self) -> None:
        if not self._is_held:
            command = with_log(f"interlock runs resume {short(self._run_id)}", self._named)
            self.view.say(f"No living process has this run now. To go on with it: {command}", "yellow")

    def say_end(self) -> None:
        if self._last is None:
            return
        word = self._last.type.removeprefix("run.")
        message = "" if word == "completed" else f": {getattr(self._last.fact, 'message', '')}"
        command = with_log(f"interlock runs show {short(self._run_id)}", self._named)
        self.view.say(f"{word}{message.rstrip(': ')}. More: {command}")
        if self._last.type not in _GOOD_ENDS:
            raise typer.Exit(ExitCode.FAILED)
