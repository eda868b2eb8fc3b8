"""The index in a file, kept up to date with the log: every read catches up with it first.

A pass reads what was added to the log since the last one, page by page. The rows and the position of a page are written
in one transaction, then listeners are notified. So an event counts once, whatever happens in between, and is reported
once. A damaged file is only marked; the next pass deletes it and rebuilds it.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ....domain.event import Event
from ....storage import projection
from ....storage.event_log import EventLog
from ....storage.removal import RunRemoval
from ....storage.rollups import RollupCounter, RunFacts
from ..live.live_event import LiveEvent, to_live_event
from . import activity
from .activity import ActivityRow
from .feed_follower import PAGE_EVENTS, FeedFollower, IndexUnavailableError
from .file_rows import RowBuffer, forget_runs, save_activity, save_damage, save_rollups
from .index_file import IndexFile, delete_index_file, is_corruption
from .rows import DamagedRun
from .statements import SQLITE, SqlCondition, SqlValue, to_sql_values

_T = TypeVar("_T")

_UPDATE_POSITION = "UPDATE place SET position = ?, run_id = ?, seq = ?, hash = ?, clean = 0"
_ACTIVITY = (
    "SELECT activity.number, activity.run_id, seq, at, type, title, tone, icon, tool, action_id, text, agent, status"
    " FROM activity CROSS JOIN runs ON runs.run_id = activity.run_id"
)


class IndexUpdater(FeedFollower):
    """The index of a log without one. Belongs to one event loop; the file is opened on first use."""

    dialect = SQLITE

    def __init__(self, path: Path, log: EventLog) -> None:
        super().__init__(log)
        self._path = path
        self._file: IndexFile | None = None
        self._is_corrupt = False
        self._counter = RollupCounter()
        #: The number of the last erasure that the file knows of.
        self._erasure = 0
        #: Known damage, which the events do not show: applied again whenever one of these runs is indexed.
        self._damaged: dict[str, DamagedRun] = {}

    @property
    def own_paths(self) -> tuple[str, ...]:
        """The paths of its files, which no tool may access."""
        path = str(self._path.resolve())
        return tuple(f"{path}{ending}" for ending in ("", "-wal", "-shm", "-journal"))

    async def fetch_all(self, sql: str, parameters: Sequence[SqlValue]) -> list[Any]:
        """Return the rows of a query, which is executed in a thread."""

        def fetch(file: IndexFile) -> list[Any]:
            with file.read_lock:
                return file.read_connection.execute(sql, to_sql_values(parameters)).fetchall()

        return await self._read_from_file(lambda file: asyncio.to_thread(fetch, file))

    async def fetch_one(self, sql: str, parameters: Sequence[SqlValue]) -> Sequence[Any] | None:
        """Return a row by its key, found in the event loop, which is faster than a thread."""

        async def find(file: IndexFile) -> Sequence[Any] | None:
            return file.lookup_connection.execute(sql, to_sql_values(parameters)).fetchone()

        return await self._read_from_file(find)

    async def list_activity(self, limit: int, where: SqlCondition) -> list[ActivityRow]:
        """Return the most recent events of the runs that fulfil the condition, newest first."""
        sql = f"{_ACTIVITY} WHERE {where.sql} ORDER BY activity.number DESC LIMIT ?"
        found = await self.fetch_all(sql, (*where.parameters, min(limit, activity.MAX_ACTIVITY_ROWS)))
        names = ActivityRow.__struct_fields__
        return [ActivityRow(**dict(zip(names, row, strict=True))) for row in found]

    async def mark_damaged(self, runs: Sequence[DamagedRun]) -> None:
        """Show these runs as damaged from now on."""
        self._damaged |= {run.run_id: run for run in runs}

        async def mark(file: IndexFile) -> None:
            await asyncio.to_thread(_write, file, lambda connection: save_damage(connection, runs))

        await self._read_from_file(mark)

    async def refresh_rollups(self) -> bool:
        """Bring the figures up to date. They are written with the rows."""
        await self.catch_up()
        return True

    async def close(self) -> None:
        """Wait for the running update and close the file."""
        await super().close()
        self._close_file()

    async def _read_from_file(self, read: Callable[[IndexFile], Awaitable[_T]]) -> _T:
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
            self._erasure = 0
            try:
                await self._forget_erased(file)
            except BaseException:
                file.close()
                raise
            self._file, self.position, self._is_corrupt = file, file.read_position().position, False
        return self._file

    async def _forget_erased(self, file: IndexFile) -> None:
        """Delete the rows of runs that were erased since the last look."""
        if not isinstance(self._log, RunRemoval):
            return
        while page := await self._log.erased_runs(self._erasure):
            erased = [run.run_id for _, run in page]
            await asyncio.to_thread(_write, file, lambda connection, erased=erased: forget_runs(connection, erased))
            self._erasure = page[-1][0]

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
                await asyncio.to_thread(_write_page, file, page, self._damaged, self._counter)
                self.position = page[-1].position
                self._notify_listeners(page)
        await self._forget_erased(file)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._seen_version = None, None


def _write_page(
    file: IndexFile, page: Sequence[LiveEvent], damaged: Mapping[str, DamagedRun], counter: RollupCounter
) -> None:
    def write(connection: sqlite3.Connection) -> None:
        position = file.read_position().position  # another process may be ahead
        new_events = [event for event in page if event.position > position]
        if not new_events:
            return
        touched = {str(event.entry.run_id) for event in new_events}
        rows = RowBuffer(connection, touched)
        counted: list[tuple[Event, RunFacts]] = []
        for live in new_events:
            event = live.event
            run = projection.apply_event(live.entry, event, live.problem, live.position, rows)
            if event is not None and counter.needs(event):
                counted.append((event, RunFacts(run.agent, bool(run.parent), partial(rows.find_asked_at, run))))
        rows.save()
        save_rollups(connection, counter.count(counted))
        save_damage(connection, [run for run_id, run in damaged.items() if run_id in touched])
        save_activity(connection, new_events)
        last = new_events[-1]
        connection.execute(_UPDATE_POSITION, (last.position, last.entry.run_id, last.entry.seq, last.entry.hash))

    _write(file, write)


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
