"""Reads what was added to the log, and notifies listeners of every event once, in order.

One pass runs at a time, in its own task: a cancelled caller does not stop it, and callers that come while it runs wait
for it. As it may have read the log before they wrote, they then wait for one more, and never for a third. When nothing
was written, catching up costs a check of the log's version.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from ....domain.errors import InterlockError
from ....storage.event_log import EventLog
from ..live.live_event import LiveEvent

#: Called with every page of events. Must not block.
IndexListener: TypeAlias = Callable[[Sequence[LiveEvent]], None]

PAGE_EVENTS = 500


class IndexUnavailableError(InterlockError):
    """The index cannot be created or read. Nothing is lost: everything in it is also in the log."""


class FeedFollower(ABC):
    """Follows the log. What is done with its events is the matter of a subclass."""

    def __init__(self, log: EventLog) -> None:
        #: The position of the last event that was read.
        self.position = 0
        self._log = log
        self._is_closed = False
        #: The version of the log up to which it was read; None: it has to be read whatever the version is.
        self._seen_version: int | None = None
        #: Position of the last event that listeners were notified of.
        self._notified_position = 0
        self._pass_task: asyncio.Task[None] | None = None
        self._listeners: list[IndexListener] = []

    def subscribe(self, listener: IndexListener) -> Callable[[], None]:
        """Notify the listener of every event from now on, page by page. Return the function that ends it."""
        self._listeners.append(listener)

        def end() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return end

    async def catch_up(self) -> None:
        """Wait until everything was read that was in the log at the time of the call."""
        if self._is_closed:
            raise IndexUnavailableError("The index is closed.")
        if self._log.version() == self._seen_version:
            return
        if (passing := self._get_running_pass()) is not None:
            await asyncio.shield(passing)
            if self._log.version() == self._seen_version:
                return
        await asyncio.shield(self._get_running_pass() or self._start_pass())

    async def close(self) -> None:
        """Wait for the running pass. Closing twice is fine."""
        self._is_closed = True
        if self._pass_task is not None:
            with suppress(Exception):  # raised in the callers that wait for the pass
                await asyncio.shield(self._pass_task)

    @abstractmethod
    async def _run_pass(self) -> None:
        """Read the log to its end, and set `_seen_version`."""

    def _get_running_pass(self) -> asyncio.Task[None] | None:
        """Return the running pass. One that just ended does not count: it may have read before the caller wrote."""
        return None if self._pass_task is None or self._pass_task.done() else self._pass_task

    def _start_pass(self) -> asyncio.Task[None]:
        self._pass_task = asyncio.create_task(self._run_pass())
        self._pass_task.add_done_callback(self._on_pass_done)
        return self._pass_task

    def _on_pass_done(self, task: asyncio.Task[None]) -> None:
        if self._pass_task is task:
            self._pass_task = None
        if not task.cancelled():
            task.exception()  # all waiters may be gone

    def _notify_listeners(self, page: list[LiveEvent]) -> None:
        """Notify all listeners, even if one of them fails."""
        new_events = [event for event in page if event.position > self._notified_position]
        self._notified_position = max(self._notified_position, self.position)
        for listener in tuple(self._listeners):
            try:
                listener(new_events)
            except Exception as error:
                context = {"message": "a listener of the index failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)
