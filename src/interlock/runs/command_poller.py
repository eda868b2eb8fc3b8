"""Delivers commands to the runs that this process drives. Polling the log version is cheap; commands are read only when
it changed. A command stays queued until it was applied.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from ..domain.errors import LogError
from ..storage.event_log import EventLog, QueuedCommand
from ..storage.polling import POLL_SECONDS

#: Whether it was applied. Else it stays queued for the next owner.
CommandHandler = Callable[[QueuedCommand], Awaitable[bool]]


class CommandPoller:
    """Polls the log for commands and delivers them to subscribed runs."""

    def __init__(self, log: EventLog, poll_seconds: float = POLL_SECONDS) -> None:
        self._log = log
        self._poll_seconds = poll_seconds
        self._handlers: dict[str, CommandHandler] = {}
        #: The version of the log up to which commands were delivered.
        self._seen_version = -1
        self._lock = asyncio.Lock()
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __contains__(self, run_id: object) -> bool:
        """Return True if the run is driven in this process."""
        return run_id in self._handlers

    async def subscribe(self, run_id: str, handler: CommandHandler) -> None:
        """Deliver commands for the run from now on; queued ones are delivered at once."""
        self._handlers[run_id] = handler
        await self.poll(run_id)
        self._start()

    def subscribe_new(self, run_id: str, handler: CommandHandler) -> None:
        """Deliver commands from now on for a run that is not in the log yet: none can be queued."""
        self._handlers[run_id] = handler
        self._start()

    async def poll(self, run_id: str) -> None:
        """Deliver the queued commands of a run without waiting for the next poll."""
        async with self._lock:
            if run_id in self._handlers:
                await self._deliver(run_id, await self._log.queued_commands(run_id))

    def notify(self) -> None:
        """Look at once: a command was enqueued in this process."""
        self._wakeup.set()

    def unsubscribe(self, run_id: str) -> None:
        """Stop polling for a run; the task ends with the last one."""
        self._handlers.pop(run_id, None)
        if not self._handlers and self._task is not None:
            self._task.cancel()
            self._task = None

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._poll_forever())

    async def _poll_forever(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_seconds):
                    await self._wakeup.wait()
            self._wakeup.clear()
            with suppress(LogError):  # it is polled again, and an append reports the problem
                await self._poll_all()

    async def _poll_all(self) -> None:
        version = self._log.version()
        if version == self._seen_version:
            return
        async with self._lock:
            for run_id, commands in (await self._log.queued_commands_of(self._handlers)).items():
                await self._deliver(run_id, commands)
        self._seen_version = version

    async def _deliver(self, run_id: str, commands: Iterable[QueuedCommand]) -> None:
        for command in commands:
            handler = self._handlers.get(run_id)
            if handler is not None and await handler(command):
                await self._log.ack(run_id, command.key)
