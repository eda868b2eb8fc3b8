"""Watch a run from any process: the same view as where it runs, fed from the log alone."""

import asyncio
from contextlib import suppress
from pathlib import Path

import typer

from ..domain.event import ApprovalRequested, Event, InputRequested, UserSaid
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
    """Until the run ends; then the exit code says how."""
    region = Region(live_console())
    view = LiveView(region)
    last = ""
    async with opened(named) as log:
        run_id = await named_run(log, wanted)
        is_held = run_id in await holders(log_path(named))
        frames = asyncio.create_task(_frames(view))
        try:
            async for event in follow(log, run_id):
                _show(view, region, event, named)
                last = event.type
                is_last = event.seq == ...
        finally:
            frames.cancel()
            with suppress(asyncio.CancelledError):
                await frames
            view.rest()
