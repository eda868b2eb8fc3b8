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
        #: The next look at the version of the log.
        self._timer: asyncio.TimerHandle | None = None
        #: The task that delivers what was found, and whether more was enqueued meanwhile.
        self._task: asyncio.Task[None] | None = None
        self._is_notified = False

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
        if self._task is not None:
            self._is_notified = True
        elif self._timer is not None:
            self._timer.cancel()
            self._look()

    def unsubscribe(self, run_id: str) -> None:
        """Stop polling for a run; with the last one, stop altogether."""
        self._handlers.pop(run_id, None)
        if self._handlers:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _start(self) -> None:
        if self._timer is None and self._task is None:
            self._look_later()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._poll_seconds, self._look)

    def _look(self) -> None:
        """Deliver commands if the log changed. Without a change that takes no task."""
        self._timer = None
        try:
            is_changed = self._log.version() != self._seen_version
        except LogError:  # it is polled again, and an append reports the problem
            is_changed = False
        if is_changed:
            self._task = asyncio.create_task(self._deliver_all())
        else:
            self._look_later()

    async def _deliver_all(self) -> None:
        task = asyncio.current_task()
        try:
            with suppress(LogError):  # it is polled again, and an append reports the problem
                await self._poll_all()
        finally:
            if self._task is task:
                self._task = None
                self._look_later()
                if self._is_notified:
                    self._is_notified = False
                    self.notify()

    async def _poll_all(self) -> None:
        version = self._log.version()
        async with self._lock:
            for run_id, commands in (await self._log.queued_commands_of(self._handlers)).items():
                await self._deliver(run_id, commands)
        self._seen_version = version

    async def _deliver(self, run_id: str, commands: Iterable[QueuedCommand]) -> None:
        for command in commands:
            handler = self._handlers.get(run_id)
            if handler is not None and await handler(command):
                await self._log.ack(run_id, command.key)
