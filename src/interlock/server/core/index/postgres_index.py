"""The index in the database of a log that writes it itself: nothing has to be caught up with before a read.

Only listeners follow the log, from where it ends when it is first read.
"""

from collections.abc import Sequence
from typing import Any

from ....domain.rendering import truncate
from ....storage.indexed_log import IndexedLog
from ....storage.projection import MAX_TEXT_CHARS
from ....storage.rollups import RollupCounter
from ..live.live_event import to_live_event
from .activity import ActivityRow, list_activity_rows
from .feed_follower import PAGE_EVENTS, FeedFollower
from .rows import DamagedRun
from .statements import POSTGRES, SqlCondition, SqlValue

_END = (1 << 63) - 1
#: Counted in one transaction.
_ROLLUP_EVENTS = 2_000


class PostgresIndex(FeedFollower):
    """The index of a log in Postgres."""

    dialect = POSTGRES
    #: There is no file.
    own_paths: tuple[str, ...] = ()

    def __init__(self, log: IndexedLog) -> None:
        super().__init__(log)
        self._indexed_log = log
        self._is_opened = False
        self._counter = RollupCounter()

    async def fetch_all(self, sql: str, parameters: Sequence[SqlValue]) -> list[Any]:
        """Return the rows of a query."""
        return await self._indexed_log.index.fetch(sql, parameters)

    async def fetch_one(self, sql: str, parameters: Sequence[SqlValue]) -> Sequence[Any] | None:
        """Return a row by its key, or None."""
        rows = await self.fetch_all(sql, parameters)
        return rows[0] if rows else None

    async def list_activity(self, limit: int, where: SqlCondition) -> list[ActivityRow]:
        """Return the most recent events of the runs that fulfil the condition, newest first."""
        found: list[ActivityRow] = []
        before = _END
        while len(found) < limit:
            page = await self._indexed_log.index.list_recent(before, limit, where.sql, where.parameters)
            if not page:
                break
            for placed, agent, status in page:
                found += list_activity_rows(to_live_event(placed), agent, status)
            before = page[-1].placed.position
        return found[:limit]

    async def mark_damaged(self, runs: Sequence[DamagedRun]) -> None:
        """Show these runs as damaged from now on."""
        for run in runs:
            message = truncate(run.message, MAX_TEXT_CHARS)
            await self._indexed_log.index.mark_damaged(run.run_id, message, is_closed=bool(run.closed_by))

    async def refresh_rollups(self) -> bool:
        """Add the figures of the next page of events. Return True if none were left."""
        after = await self._indexed_log.index.read_rollup_position()
        page = await self._log.feed(after, _ROLLUP_EVENTS)
        if not page:
            return True
        events = [event for event in (to_live_event(placed).event for placed in page) if event is not None]
        runs = await self._indexed_log.index.find_run_facts(events)
        counted = self._counter.count((event, runs[event.run_id]) for event in events if event.run_id in runs)
        is_added = await self._indexed_log.index.add_rollups(after, page[-1].position, counted)
        return is_added and len(page) < _ROLLUP_EVENTS

    async def _run_pass(self) -> None:
        version = self._log.version()
        if not self._is_opened:
            await self._indexed_log.index.reindex()
            self.position = self._notified_position = await self._log.feed_position()
            self._is_opened = True
        is_full = True
        while is_full:
            page = [to_live_event(placed) for placed in await self._log.feed(self.position, PAGE_EVENTS)]
            is_full = len(page) == PAGE_EVENTS
            if page:
                self.position = page[-1].position
                self._notify_listeners(page)
        self._seen_version = version
