"""How the index keeps up with the log, and who is told when there is something new.

A pass reads what the log has had since the last one, page by page. The rows and the place of a page are written in one
transaction, and then those who listen are told of it. So an event counts once, whatever happens in between, and is told
once. When nobody wrote, catching up costs a look at the log's version.

One pass runs at a time, in a task of its own: a caller that goes away does not stop it, and callers that come while it
runs wait for it. As it may have read the log before they wrote, they then wait for one more, and never for a third.

A file that turns out to be damaged is only marked by whoever sees it; the next pass deletes it and begins anew.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, TypeVar

from ....storage.event_log import EventLog
from ..live.event import LiveEvent, live
from . import activity, projection
from .file import IndexFailedError, IndexFile, delete, is_spoiled
from .indexed import Rows

_T = TypeVar("_T")
#: Is told of every page after it was written. It must not wait.
Listener: TypeAlias = Callable[[Sequence[LiveEvent]], None]

PAGE_EVENTS = 500

_SET_PLACE = "UPDATE place SET position = ?, run_id = ?, seq = ?, hash = ?"


class IndexPass:
    def __init__(self, path: Path, log: EventLog) -> None:
        self.position = 0
        self._path = path
        self._log = log
        self._file: IndexFile | None = None
        self._is_spoiled = False
        self._is_closed = False
        #: The version of the log up to which it was read; None: it has to be read whatever the version is.
        self._seen: int | None = None
        #: Of the last event that listeners were told of.
        self._told = 0
        self._passing: asyncio.Task[None] | None = None
        self._listeners: list[Listener] = []

    def on_change(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)

        def end() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return end

    async def catch_up(self) -> None:
        if self._is_closed:
            raise IndexFailedError(f"The index {self._path} is closed.")
        if self._log.version() == self._seen:
            return
        if (passing := self._under_way()) is not None:
            await asyncio.shield(passing)
            if self._log.version() == self._seen:
                return
        await asyncio.shield(self._under_way() or self._begin())

    async def on_file(self, read: Callable[[IndexFile], Awaitable[_T]]) -> _T:
        """Read when the file is up to date; once more when it had to be made anew."""
        fault: sqlite3.Error | None = None
        for _ in range(2):
            await self.catch_up()
            file = self._file
            if file is None:
                break
            try:
                return await read(file)
            except sqlite3.Error as error:
                fault = error
                if file is self._file and is_spoiled(error):
                    self._spoil()
        raise IndexFailedError(f"The index {self._path} cannot be read: {fault or 'it is closed'}.") from fault

    async def close(self) -> None:
        self._is_closed = True
        if self._passing is not None:
            with suppress(Exception):  # whoever waits for the pass gets it
                await asyncio.shield(self._passing)
        self._shut()

    def _under_way(self) -> asyncio.Task[None] | None:
        """A pass that has just ended is none: it may have read the log before whoever asks now wrote."""
        return None if self._passing is None or self._passing.done() else self._passing

    def _begin(self) -> asyncio.Task[None]:
        self._passing = asyncio.create_task(self._run())
        self._passing.add_done_callback(self._passed)
        return self._passing

    def _passed(self, task: asyncio.Task[None]) -> None:
        if self._passing is task:
            self._passing = None
        if not task.cancelled():
            task.exception()  # everybody who waited may be gone

    def _spoil(self) -> None:
        self._is_spoiled, self._seen = True, None

    async def _run(self) -> None:
        for is_last in (False, True):
            seen = self._log.version()
            try:
                await self._read_log(await self._opened())
            except sqlite3.Error as error:
                if is_last or not is_spoiled(error):
                    raise IndexFailedError(f"The index {self._path} cannot be written: {error}.") from error
                self._spoil()
            else:
                self._seen = None if self._is_spoiled else seen
                return

    async def _opened(self) -> IndexFile:
        if self._is_spoiled:
            self._shut()
            delete(self._path)
        if self._file is None:
            file = await asyncio.to_thread(IndexFile, self._path)
            if not await self._is_of_this_log(file):
                file.close()
                delete(self._path)
                file = await asyncio.to_thread(IndexFile, self._path)
            self._file, self.position, self._is_spoiled = file, file.place().position, False
        return self._file

    async def _is_of_this_log(self, file: IndexFile) -> bool:
        """Does the log have the event that the file ends with, in its place?"""
        try:
            place = file.place()
            found = await self._log.feed(place.position - 1, 1) if place.position else []
        except BaseException:
            file.close()
            raise
        return place.position == 0 or [place.is_at(placed) for placed in found] == [True]

    async def _read_log(self, file: IndexFile) -> None:
        is_full = True
        while is_full:
            page = [live(placed) for placed in await self._log.feed(self.position, PAGE_EVENTS)]
            is_full = len(page) == PAGE_EVENTS
            if page:
                await asyncio.to_thread(_write, file, page)
                self.position = page[-1].position
                self._tell(page)

    def _tell(self, page: list[LiveEvent]) -> None:
        """A listener that fails is a bug of its own, and no reason to keep the page from the others."""
        fresh = [told for told in page if told.position > self._told]
        self._told = max(self._told, self.position)
        for listener in tuple(self._listeners):
            try:
                listener(fresh)
            except Exception as error:
                about = {"message": "a listener of the index failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(about)

    def _shut(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._seen = None, None


def _write(file: IndexFile, page: Sequence[LiveEvent]) -> None:
    with file.write_lock:
        connection = file.writing
        connection.execute("BEGIN IMMEDIATE")
        try:
            position = file.place().position  # another process may have come further
            _apply(connection, [told for told in page if told.position > position])
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _apply(connection: sqlite3.Connection, page: Sequence[LiveEvent]) -> None:
    if not page:
        return
    rows = Rows(connection)
    for told in page:
        projection.apply(told, rows)
    rows.save()
    activity.keep(connection, page)
    last = page[-1]
    connection.execute(_SET_PLACE, (last.position, last.entry.run_id, last.entry.seq, last.entry.hash))
