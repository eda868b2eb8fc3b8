"""Brings notes to the runs that are moved on in this process. It looks whether anybody wrote, which costs next to
nothing, and only then asks for notes. A note stays where it is until somebody has taken it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ..domain.errors import LogError
from ..storage.event_log import EventLog, Note

LOOK_SECONDS = 0.02

#: Was it taken? Else it stays for whoever has the run next.
OnNote = Callable[[Note], Awaitable[bool]]


class NoteWatch:
    def __init__(self, log: EventLog, look_seconds: float = LOOK_SECONDS) -> None:
        self._log = log
        self._look_seconds = look_seconds
        self._runs: dict[str, OnNote] = {}
        #: The version of the log up to which notes were brought.
        self._seen = -1
        self._bringing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def __contains__(self, run_id: object) -> bool:
        """Is it moved on in this process?"""
        return run_id in self._runs

    async def watch(self, run_id: str, on_note: OnNote) -> None:
        """From now on; what was left before is brought at once."""
        self._runs[run_id] = on_note
        await self.bring(run_id)
        if self._task is None:
            self._task = asyncio.create_task(self._look())

    async def bring(self, run_id: str) -> None:
        """What was left for it until now, without waiting for the next look."""
        async with self._bringing:
            if run_id in self._runs:
                await self._bring(run_id, self._runs[run_id])

    def forget(self, run_id: str) -> None:
        self._runs.pop(run_id, None)
        if not self._runs and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._look_seconds)
            with suppress(LogError):  # it is looked again, and whoever appends is told what is wrong
                await self._bring_all()

    async def _bring_all(self) -> None:
        version = self._log.version()
        if version == self._seen:
            return
        async with self._bringing:
            for run_id, on_note in list(self._runs.items()):
                await self._bring(run_id, on_note)
        self._seen = version

    async def _bring(self, run_id: str, on_note: OnNote) -> None:
        for note in await self._log.notes(run_id):
            if await on_note(note):
                await self._log.take_away(run_id, note.key)
