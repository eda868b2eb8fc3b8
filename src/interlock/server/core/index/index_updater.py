"""Keeps the index up to date with the log, and notifies listeners.

A pass reads what was added to the log since the last one, page by page. The rows and the position of a page are written
in one transaction, then listeners are notified. So an event counts once, whatever happens in between, and is reported
once. When nothing was written, catching up costs a check of the log's version.

One pass runs at a time, in its own task: a cancelled caller does not stop it, and callers that come while it runs wait
for it. As it may have read the log before they wrote, they then wait for one more, and never for a third.

A damaged file is only marked; the next pass deletes it and rebuilds it.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, TypeVar

from ....storage.event_log import EventLog
from ..live.live_event import LiveEvent, to_live_event
from . import projection
from .index_file import IndexFile, IndexUnavailableError, delete_index_file, is_corruption
from .projection import RowBuffer
from .rows import DamagedRun

_T = TypeVar("_T")
#: Called with every page after it was written. Must not block.
IndexListener: TypeAlias = Callable[[Sequence[LiveEvent]], None]

PAGE_EVENTS = 500

_UPDATE_POSITION = "UPDATE place SET position = ?, run_id = ?, seq = ?, hash = ?, clean = 0"


class IndexUpdater:
    """Updates the index from the log."""

    def __init__(self, path: Path, log: EventLog) -> None:
        self.position = 0
        self._path = path
        self._log = log
        self._file: IndexFile | None = None
        self._is_corrupt = False
        self._is_closed = False
        #: The version of the log up to which it was read; None: it has to be read whatever the version is.
        self._seen_version: int | None = None
        #: Position of the last event that listeners were notified of.
        self._notified_position = 0
        self._pass_task: asyncio.Task[None] | None = None
        self._listeners: list[IndexListener] = []
        #: Known damage, which the events do not show: applied again whenever one of these runs is indexed.
        self._damaged: dict[str, DamagedRun] = {}

    def subscribe(self, listener: IndexListener) -> Callable[[], None]:
        """Call a listener after updates. Return the function that ends it."""
        self._listeners.append(listener)

        def end() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return end

    async def catch_up(self) -> None:
        """Update the index to the current end of the log."""
        if self._is_closed:
            raise IndexUnavailableError(f"The index {self._path} is closed.")
        if self._log.version() == self._seen_version:
            return
        if (passing := self._get_running_pass()) is not None:
            await asyncio.shield(passing)
            if self._log.version() == self._seen_version:
                return
        await asyncio.shield(self._get_running_pass() or self._start_pass())

    async def read_from_file(self, read: Callable[[IndexFile], Awaitable[_T]]) -> _T:
        """Read when the file is up to date; again when it had to be rebuilt."""
        last_error: sqlite3.Error | None = None
        for _ in range(2):
            await self.catch_up()
            file = self._file
            if file is None:
                break
            try:
                return await read(file)
            except sqlite3.Error as error:
                last_error = error
                if file is self._file and is_corruption(error):
                    self._mark_corrupt()
        raise IndexUnavailableError(
            f"The index {self._path} cannot be read: {last_error or 'it is closed'}."
        ) from last_error

    async def mark_damaged(self, runs: Sequence[DamagedRun]) -> None:
        """Show these runs as damaged from now on."""
        self._damaged |= {run.run_id: run for run in runs}

        async def mark(file: IndexFile) -> None:
            await asyncio.to_thread(_write, file, lambda connection: _apply_damage(connection, runs))

        await self.read_from_file(mark)

    async def close(self) -> None:
        """Wait for the running update and close the file."""
        self._is_closed = True
        if self._pass_task is not None:
            with suppress(Exception):  # raised in the callers that wait for the pass
                await asyncio.shield(self._pass_task)
        self._close_file()

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

    def _mark_corrupt(self) -> None:
        self._is_corrupt, self._seen_version = True, None

    async def _run_pass(self) -> None:
        for is_last in (False, True):
            version = self._log.version()
            try:
                await self._read_log(await self._open_file())
            except sqlite3.Error as error:
                if is_last or not is_corruption(error):
                    raise IndexUnavailableError(f"The index {self._path} cannot be written: {error}.") from error
                self._mark_corrupt()
            else:
                self._seen_version = None if self._is_corrupt else version
                return

    async def _open_file(self) -> IndexFile:
        if self._is_corrupt:
            self._close_file()
            delete_index_file(self._path)
        if self._file is None:
            file = await asyncio.to_thread(IndexFile, self._path)
            if not await self._is_of_this_log(file):
                file.close()
                delete_index_file(self._path)
                file = await asyncio.to_thread(IndexFile, self._path)
            self._file, self.position, self._is_corrupt = file, file.read_position().position, False
        return self._file

    async def _is_of_this_log(self, file: IndexFile) -> bool:
        """Return True if the log has the event that the file ends with, at its position."""
        try:
            position = file.read_position()
            found = await self._log.feed(position.position - 1, 1) if position.position else []
        except BaseException:
            file.close()
            raise
        return position.position == 0 or [position.is_position_of(placed) for placed in found] == [True]

    async def _read_log(self, file: IndexFile) -> None:
        is_full = True
        while is_full:
            page = [to_live_event(placed) for placed in await self._log.feed(self.position, PAGE_EVENTS)]
            is_full = len(page) == PAGE_EVENTS
            if page:
                await asyncio.to_thread(_write_page, file, page, self._damaged)
                self.position = page[-1].position
                self._notify_listeners(page)

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

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._seen_version = None, None


def _write_page(file: IndexFile, page: Sequence[LiveEvent], damaged: Mapping[str, DamagedRun]) -> None:
    def write(connection: sqlite3.Connection) -> None:
        position = file.read_position().position  # another process may be ahead
        new_events = [event for event in page if event.position > position]
        if not new_events:
            return
        rows = RowBuffer(connection)
        for event in new_events:
            projection.apply_event(event, rows)
        rows.save()
        touched = {event.entry.run_id for event in new_events}
        _apply_damage(connection, [run for run_id, run in damaged.items() if run_id in touched])
        projection.save_activity(connection, new_events)
        last = new_events[-1]
        connection.execute(_UPDATE_POSITION, (last.position, last.entry.run_id, last.entry.seq, last.entry.hash))

    _write(file, write)


def _apply_damage(connection: sqlite3.Connection, runs: Sequence[DamagedRun]) -> None:
    if runs:
        rows = RowBuffer(connection)
        for run in runs:
            projection.apply_damage(run, rows)
        rows.save()


def _write(file: IndexFile, write: Callable[[sqlite3.Connection], None]) -> None:
    with file.write_lock:
        connection = file.write_connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            write(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
